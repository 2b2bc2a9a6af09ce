// Runs of the fused gradient's kernels, as a call would make them, and comparisons of gradients.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "kernels/backward_case.hpp"
#include "kernels/units.hpp"

namespace attn {

class BackwardUnits : public kernels::Units {
 protected:
  void SetUp() override {
    Units::SetUp();
    if (GetParam() == "amx_emulated") static_cast<void>(left_to_nightly());
  }
};

struct Order {
  std::uint64_t shuffle = 0;  // 0: as they come
  std::size_t threads = 1;
};

// Every task once, in the order asked for.
template <class Task>
void run(std::int64_t tasks, std::size_t scratch_bytes, const Order& how, const Task& task) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(tasks));
  std::iota(order.begin(), order.end(), 0);
  if (how.shuffle) std::shuffle(order.begin(), order.end(), Random(how.shuffle));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < how.threads; ++t) {
    threads.emplace_back([&, t] {
      const kernels::Poisoned scratch(scratch_bytes);
      for (std::size_t i = t; i < order.size(); i += how.threads) task(order[i], scratch.data.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A result amid numbers that its kernel does not own: those keep their bits, or a task has written past its rows or
// columns. They are -0, which is another number as soon as a zero is added to it.
class Amid {
 public:
  Amid(Random& random, const Shape& shape, DType dtype, double begin)
      : all_(layout(random, {shape[0], shape[1], shape[2] + 2 * kMargin, shape[3] + 2 * kMargin}, dtype)) {
    all_.fill(-0.0);
    own = all_.slice(2, kMargin, kMargin + shape[2]).slice(3, kMargin, kMargin + shape[3]);
    own.fill(begin);
  }
  // What was written is taken out of it.
  Tensor taken() const {
    Tensor result = own.clone();
    own.fill(-0.0);
    const Tensor left = all_.to(DType::f32).contiguous();
    EXPECT_TRUE(std::all_of(left.data<float>(), left.data<float>() + left.numel(),
                            [](float x) { return x == 0 && std::signbit(x); }))
        << "written beside a result " << result.shape().str();
    return result;
  }
  Tensor own;

 private:
  static constexpr std::int64_t kMargin = 17;  // rows and columns: more than a vector has, of any unit
  Tensor all_;
};

struct Forward {
  Tensor output, lse;
};

inline Forward forward(const kernels::Kernels& kernels, const Case& c) {
  const kernels::Problem p = problem(c);
  Forward f{Tensor::empty({c.b, c.hq, c.tq, c.dv}, c.q.dtype()), Tensor::empty({c.b, c.hq, c.tq})};
  const kernels::ForwardPlan plan = kernels::plan_tiles(p, kernels, 1);
  const kernels::Poisoned shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    run(plan.tasks[phase], plan.scratch, {}, [&](std::int64_t task, void* scratch) {
      plan.kernel->run(p, plan, {rows(f.output), f.lse.data<float>(), p.tq, p.element}, phase, task, shared.data.get(),
                       scratch);
    });
  }
  return f;
}

inline bool all_finite(const Tensor& x) {
  const Tensor numbers = x.to(DType::f64).contiguous();
  return std::all_of(numbers.data<double>(), numbers.data<double>() + numbers.numel(),
                     [](double number) { return std::isfinite(number); });
}

inline AttentionGradient backward(const kernels::Kernels& kernels, const Case& c, const Forward& f,
                                  const Order& how = {}) {
  const kernels::Problem p = problem(c);
  Random random(7);
  const auto unwritten = [&](const Tensor& like) {
    return Amid(random, like.shape(), like.dtype(), std::numeric_limits<double>::quiet_NaN());
  };
  const Amid dq = unwritten(c.q), dk = unwritten(c.k), dv = unwritten(c.v);
  kernels::BackwardResult result{rows(dq.own), rows(dk.own), rows(dv.own), p.element};
  bool finite = true;
  result.finite = &finite;
  std::optional<Amid> d_bias;
  if (c.bias.defined()) {
    d_bias.emplace(random, c.bias.shape(), DType::f32, 0);
    const auto g = grid<float>(d_bias->own, c);
    result.bias = d_bias->own.data<float>();
    result.bias_batch = g.batch, result.bias_head = g.head, result.bias_query = g.query, result.bias_key = g.key;
  }
  const kernels::BackwardInput in{rows(f.output), rows(c.d_output), f.lse.data<float>(), p.tq};
  // One thread: its tasks can run in any order.
  const kernels::BackwardPlan plan = kernels::plan(p, result, kernels, 1);
  const kernels::Poisoned shared(plan.shared);
  for (int phase = 0; phase < plan.phases; ++phase) {
    run(plan.tasks[phase], plan.scratch, how, [&](std::int64_t task, void* scratch) {
      plan.kernel->run(p, plan, in, result, phase, task, shared.data.get(), scratch);
    });
  }
  const AttentionGradient out{dq.taken(), dk.taken(), dv.taken(), d_bias ? d_bias->taken() : Tensor{}};
  EXPECT_EQ(finite, all_finite(out.q) && all_finite(out.k) && all_finite(out.v)) << c.str();
  return out;
}

inline void expect_same_bits(const AttentionGradient& a, const AttentionGradient& b) {
  EXPECT_TRUE(test::identical(a.q, b.q)) << "dq";
  EXPECT_TRUE(test::identical(a.k, b.k)) << "dk";
  EXPECT_TRUE(test::identical(a.v, b.v)) << "dv";
  EXPECT_TRUE(a.bias.defined() == b.bias.defined() && (!a.bias.defined() || test::identical(a.bias, b.bias)))
      << "d_bias";
}

inline double largest(const Tensor& t) {
  const Tensor wide = t.to(DType::f64).contiguous();
  double most = 0;
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    const double x = std::fabs(wide.data<double>()[i]);
    if (!(x <= most) && !(std::isinf(x))) most = x;  // a NaN stays
  }
  return most;
}

inline double distance(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  double most = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double difference = std::fabs(x.data<double>()[i] - y.data<double>()[i]);
    if (!(difference <= most)) most = difference;
    if (std::isnan(difference)) return difference;
  }
  return most;
}

// The output is rounded to its dtype before it comes back, so a gradient that cancels to nothing keeps an error
// of an epsilon of what cancelled: `unit` is a score gradient's size, Σ_c |d_output · v|. So does one that sums
// weights and score gradients rounded to bf16, or to two parts.
inline void expect_close(const AttentionGradient& got, const AttentionGradient& want, const Case& c, bool matrix) {
  using kernels::Precision;
  const DType dtype = matrix && c.precision == Precision::medium ? DType::bf16 : c.q.dtype();
  const double in_f32 = matrix && c.precision == Precision::high ? 0x1p-16 : 0x1p-24;
  const double rounding = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : in_f32;
  const double epsilon = rounding + 3 * 0x1p-24;  // the dtype's, and a few of float32's on the way
  const double grown = 1 / (1 - c.dropout);
  const double unit = std::sqrt(static_cast<double>(c.dv)) * largest(c.v) * largest(c.d_output) * grown;
  const double rows = std::sqrt(static_cast<double>(c.tq * c.hq / c.hkv));
  const auto check = [&](const char* what, const Tensor& a, const Tensor& b, double error) {
    ASSERT_EQ(a.shape(), b.shape()) << what;
    EXPECT_LE(distance(a, b), epsilon * (largest(b) + error)) << what << ", largest " << largest(b);
  };
  check("dq", got.q, want.q, unit * c.scale * largest(c.k));
  check("dk", got.k, want.k, unit * c.scale * largest(c.q) * rows);
  check("dv", got.v, want.v, largest(c.d_output) * grown * rows);
  if (!c.bias.defined()) return;
  const double repeats = static_cast<double>(seen_keys(c).numel() / c.bias.numel());
  check("d_bias", got.bias, want.bias, unit * std::sqrt(repeats));
}

}  // namespace attn
