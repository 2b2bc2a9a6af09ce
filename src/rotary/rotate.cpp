// The rotation of vectors by a table, forward and back.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "attn/error.hpp"
#include "attn/rotary.hpp"
#include "core/order.hpp"
#include "core/parallel.hpp"
#include "reference/loops.hpp"

namespace attn {
namespace {

constexpr const char* kRotary = "rotary";
constexpr std::int64_t kTaskElements = 8192;

// One dimension of x: its size, and how far apart neighbours are in x, in the result, and in the table.
struct Dim {
  std::int64_t size, x, out, table;
};

// A row's three loops are written once, and compiled for each of these layouts; dense, where neighbours
// are one element apart.
template <RotaryLayout layout, bool dense>
struct Places {
  std::int64_t half, x_step, out_step;

  std::int64_t first(std::int64_t i) const { return layout == RotaryLayout::halves ? i : 2 * i; }
  std::int64_t second(std::int64_t i) const { return layout == RotaryLayout::halves ? i + half : 2 * i + 1; }
  std::int64_t in_x(std::int64_t element) const { return dense ? element : element * x_step; }
  std::int64_t in_out(std::int64_t element) const { return dense ? element : element * out_step; }
};

void check(const Tensor& x, const RotaryTable& table) {
  const Tensor &cos = table.cos, &sin = table.sin;
  if (!x.defined() || !cos.defined() || !sin.defined()) {
    throw Error(Error::Kind::argument, kRotary, "x, cos and sin", "an undefined tensor");
  }
  for (const Tensor* t : {&cos, &sin}) {
    if (t->dtype() != DType::f32) throw Error(Error::Kind::dtype, kRotary, "cos and sin of float32", name(t->dtype()));
  }
  if (!is_floating(x.dtype())) {
    throw Error(Error::Kind::dtype, kRotary, "x of float32, float64, float16 or bfloat16", name(x.dtype()));
  }
  if (!(cos.shape() == sin.shape()) || cos.rank() < 2 || cos.rank() > 3) {
    throw Error(Error::Kind::shape, kRotary, "cos and sin of one shape (t, rotary_dim / 2) or (b, t, rotary_dim / 2)",
                cos.shape().str() + " and " + sin.shape().str());
  }
  const bool batch = cos.rank() == 3;
  if (x.rank() < (batch ? 3U : 2U) || x.size(-2) != cos.size(-2) || (batch && x.size(0) != cos.size(0))) {
    throw Error(Error::Kind::shape, kRotary,
                "x (" + std::string(batch ? std::to_string(cos.size(0)) + ", " : "") + "…, " +
                    std::to_string(cos.size(-2)) + ", d), for the table's positions",
                x.shape().str());
  }
  if (2 * cos.size(-1) > x.size(-1)) {
    throw Error(Error::Kind::shape, kRotary, "vectors of at least rotary_dim = " + std::to_string(2 * cos.size(-1)),
                x.shape().str());
  }
}

// The places of x's dimensions but the last, from the farthest apart to the nearest.
std::vector<std::size_t> farthest_first(const Tensor& x) {
  return order_of(x.rank() - 1,
                  [&](std::size_t a, std::size_t b) { return std::abs(x.strides()[a]) > std::abs(x.strides()[b]); });
}

// Rows are taken as they lie in x's memory.
std::vector<Dim> dims_of(const Tensor& x, const Tensor& out, const RotaryTable& table) {
  std::vector<Dim> dims;
  const std::size_t places = x.rank() - 2;  // the dimension of positions
  const std::int64_t half = table.cos.size(-1), text = table.cos.rank() == 3 ? table.cos.size(1) * half : 0;
  for (const std::size_t i : farthest_first(x)) {
    dims.push_back({x.shape()[i], x.strides()[i], out.strides()[i], i == places ? half : i == 0 ? text : 0});
  }
  return dims;
}

// An empty tensor of x's shape, whose dimensions lie in memory in the order of x's.
Tensor empty_like(const Tensor& x) {
  const std::vector<std::size_t> order = farthest_first(x);
  Shape strides = x.shape();
  std::int64_t step = x.shape().back();
  strides.back() = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<std::int64_t>(x.shape()[order[i]], 1);
  }
  const Tensor memory = Tensor::empty(x.shape(), x.dtype());
  return Tensor::from_blob(memory.raw(), x.shape(), strides, x.dtype(), memory.storage());
}

// Every pair (a, b) of a row becomes (a·cos − b·sin, b·cos + a·sin). The pairs are copied first, so that out may be x,
// and so that the loop in the middle is the same for every layout, dtype and stride.
template <class T, class Number, class P>
void turn_row(const T* x, T* out, const float* cos, const float* sin, Number sign, const P& at, Number* a) {
  Number* const b = a + at.half;
  for (std::int64_t i = 0; i < at.half; ++i) {
    a[i] = static_cast<Number>(x[at.in_x(at.first(i))]);
    b[i] = static_cast<Number>(x[at.in_x(at.second(i))]);
  }
  constexpr auto kLargest = static_cast<Number>(reference::largest<T>());
  int past = 0;
  for (std::int64_t i = 0; i < at.half; ++i) {
    const Number c = static_cast<Number>(cos[i]), s = sign * static_cast<Number>(sin[i]);
    const Number first = a[i] * c - b[i] * s, second = b[i] * c + a[i] * s;
    past |= static_cast<int>(!(std::abs(first) <= kLargest)) | static_cast<int>(!(std::abs(second) <= kLargest));
    a[i] = first;
    b[i] = second;
  }
  if (past != 0) {  // finite in, finite out: once more, wider
    using Wide = reference::Wide<T>;
    for (std::int64_t i = 0; i < at.half; ++i) {
      const Wide p = reference::widen(x[at.in_x(at.first(i))]), q = reference::widen(x[at.in_x(at.second(i))]);
      const Wide c = static_cast<Wide>(cos[i]), s = static_cast<Wide>(sign) * static_cast<Wide>(sin[i]);
      a[i] = static_cast<Number>(reference::narrow<T>(p * c - q * s));
      b[i] = static_cast<Number>(reference::narrow<T>(q * c + p * s));
    }
  }
  for (std::int64_t i = 0; i < at.half; ++i) {
    out[at.in_out(at.first(i))] = static_cast<T>(a[i]);
    out[at.in_out(at.second(i))] = static_cast<T>(b[i]);
  }
}

// Calls row(x's offset, out's, the table's) for rows [first, last) of the dimensions, the last of which runs fastest.
template <class F>
void for_rows(const std::vector<Dim>& dims, std::int64_t first, std::int64_t last, const F& row) {
  std::array<std::int64_t, Shape::max_rank> index{};
  Dim at{0, 0, 0, 0};
  const auto move = [&at](const Dim& d, std::int64_t by) {
    at.x += by * d.x, at.out += by * d.out, at.table += by * d.table;
  };
  std::int64_t left = first;
  for (std::size_t i = dims.size(); i-- > 0; left /= dims[i].size) {
    index[i] = left % dims[i].size;
    move(dims[i], index[i]);
  }
  for (std::int64_t n = first; n < last; ++n) {
    row(at.x, at.out, at.table);
    for (std::size_t i = dims.size(); i-- > 0;) {
      move(dims[i], 1);
      if (++index[i] < dims[i].size) break;
      move(dims[i], -dims[i].size);
      index[i] = 0;
    }
  }
}

template <class T, class P>
void turn(const Tensor& x, const Tensor& out, const RotaryTable& table, bool back, const P& at) {
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const std::vector<Dim> dims = dims_of(x, out, table);
  const Tensor cos = table.cos.contiguous(), sin = table.sin.contiguous();
  const std::int64_t d = x.size(-1), rows = x.numel() / d, run = std::max<std::int64_t>(1, kTaskElements / d);
  const Number sign = back ? -1 : 1;
  const bool copies = x.raw() != out.raw();
  parallel_for((rows + run - 1) / run, static_cast<std::size_t>(2 * at.half) * sizeof(Number),
               static_cast<double>(x.numel()), [&](std::int64_t task, void* scratch) {
                 for_rows(dims, task * run, std::min(rows, (task + 1) * run),
                          [&](std::int64_t in_x, std::int64_t in_out, std::int64_t in_table) {
                            const T* from = x.data<T>() + in_x;
                            T* to = out.data<T>() + in_out;
                            turn_row(from, to, cos.data<float>() + in_table, sin.data<float>() + in_table, sign, at,
                                     static_cast<Number*>(scratch));
                            for (std::int64_t i = 2 * at.half; copies && i < d; ++i)
                              to[at.in_out(i)] = from[at.in_x(i)];
                          });
               });
}

void turn(const Tensor& x, const Tensor& out, const RotaryTable& table, bool back) {
  if (x.numel() == 0) return;
  const std::int64_t half = table.cos.size(-1), x_step = x.stride(-1), out_step = out.stride(-1);
  const bool dense = x_step == 1 && out_step == 1;
  reference::visit_floating(kRotary, x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto with = [&]<RotaryLayout layout>() {
      dense ? turn<T>(x, out, table, back, Places<layout, true>{half, 1, 1})
            : turn<T>(x, out, table, back, Places<layout, false>{half, x_step, out_step});
    };
    table.layout == RotaryLayout::halves ? with.template operator()<RotaryLayout::halves>()
                                         : with.template operator()<RotaryLayout::interleaved>();
  });
}

// Whether a step of each dimension leads past all that shorter steps lead to.
bool lies_apart(const Tensor& x) {
  const auto step = [&](std::size_t i) { return std::abs(x.strides()[i]); };
  for (std::size_t i = 0; i < x.rank(); ++i) {
    std::int64_t within = 0;
    for (std::size_t j = 0; j < x.rank(); ++j)
      if (j != i && x.shape()[j] > 1 && step(j) <= step(i)) within += step(j) * (x.shape()[j] - 1);
    if (x.shape()[i] > 1 && step(i) <= within) return false;
  }
  return true;
}

}  // namespace

Tensor rotary(const Tensor& x, const RotaryTable& table) {
  check(x, table);
  const Tensor out = empty_like(x);
  turn(x, out, table, false);
  return out;
}

Tensor rotary_backward(const Tensor& dy, const RotaryTable& table) {
  check(dy, table);
  // y = R · x, so dx = Rᵀ · dy: the angles' signs turn, the factor stays
  const Tensor dx = empty_like(dy);
  turn(dy, dx, table, true);
  return dx;
}

void rotary_in_place(const Tensor& x, const RotaryTable& table) {
  check(x, table);
  if (x.numel() > 0 && !lies_apart(x)) {
    throw Error(Error::Kind::argument, kRotary, "x whose elements lie apart, to be changed in place",
                "strides " + x.strides().str(), "clone() it");
  }
  turn(x, x, table, false);
}

}  // namespace attn
