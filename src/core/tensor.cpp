#include "attn/tensor.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "attn/error.hpp"
#include "core/known.hpp"
#include "core/memory.hpp"
#include "core/visit.hpp"

namespace attn {
namespace {

std::shared_ptr<void> allocate(const Shape& shape, DType dtype) {
  std::size_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(shape.numel(), static_cast<std::int64_t>(size_of(dtype)), &bytes);
  try {
    if (fits) return attn::allocate(bytes);
  } catch (const OutOfMemory&) {
  }
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  throw OutOfMemory(fits ? bytes : most, "a tensor " + shape.str() + " of " + std::string(name(dtype)));
}

// Calls f(offset_a, offset_b) for each index of `shape`, in row-major order; offsets follow the two strides.
template <class F>
void for_each_offset(const Shape& shape, const Shape& a, const Shape& b, F&& f) {
  if (shape.numel() == 0) return;
  Shape index = shape;
  std::fill(index.begin(), index.end(), 0);
  std::int64_t at_a = 0, at_b = 0;
  for (;;) {
    f(at_a, at_b);
    std::size_t dim = shape.size();
    for (;; --dim) {
      if (dim == 0) return;
      const std::size_t d = dim - 1;
      if (++index[d] < shape[d]) {
        at_a += a[d], at_b += b[d];
        break;
      }
      at_a -= (shape[d] - 1) * a[d], at_b -= (shape[d] - 1) * b[d];
      index[d] = 0;
    }
  }
}

// Copies `count` elements, each so many elements behind the one before, as numbers of another type.
using CopyRow = void (*)(void* to, std::int64_t to_step, const void* from, std::int64_t from_step, std::int64_t count);

template <class To, class From>
void copy_row_of(void* to, std::int64_t to_step, const void* from, std::int64_t from_step, std::int64_t count) {
  auto* out = static_cast<To*>(to);
  const auto* in = static_cast<const From*>(from);
  if (to_step != 1 || from_step != 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i * to_step] = converted<To>(in[i * from_step]);
  } else if constexpr (std::is_same_v<To, From>) {
    std::memmove(out, in, static_cast<std::size_t>(count) * sizeof(To));
  } else {
    std::transform(in, in + count, out, converted<To, From>);
  }
}

CopyRow copy_row(DType to, DType from) {
  return visit(to, [from](auto to_zero) {
    return visit(from, [](auto from_zero) -> CopyRow { return copy_row_of<decltype(to_zero), decltype(from_zero)>; });
  });
}

// From the lowest byte of a tensor's elements to behind the highest.
std::pair<const std::byte*, const std::byte*> extent(const Tensor& t) {
  std::int64_t low = 0, high = 1;
  for (std::size_t i = 0; i < t.rank(); ++i) {
    const std::int64_t reach = (t.shape()[i] - 1) * t.strides()[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(t.dtype()));
  const auto* first = static_cast<const std::byte*>(t.raw());
  return {first + low * size, first + high * size};
}

Error shape_error(const char* op, const std::string& expected, const std::string& found) {
  return {Error::Kind::shape, op, expected, found};
}

}  // namespace

Tensor::Tensor(Tensor&& from) noexcept { *this = std::move(from); }

Tensor& Tensor::operator=(Tensor&& from) noexcept {
  if (this == &from) return *this;
  storage_ = std::move(from.storage_);
  data_ = std::exchange(from.data_, nullptr);
  shape_ = std::exchange(from.shape_, {});
  strides_ = std::exchange(from.strides_, {});
  numel_ = std::exchange(from.numel_, 0);
  dtype_ = std::exchange(from.dtype_, DType::f32);
  return *this;
}

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  auto storage = allocate(shape, dtype);
  void* data = storage.get();
  return from_blob(data, shape, shape.contiguous_strides(), dtype, std::move(storage));
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor result = empty(shape, dtype);
  std::memset(result.data_, 0, static_cast<std::size_t>(result.numel_) * size_of(dtype));
  return result;
}

Tensor Tensor::ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor result = empty(shape, dtype);
  result.fill(value);
  return result;
}

Tensor Tensor::of(std::initializer_list<float> values) {
  return from(std::span<const float>(values.begin(), values.size()), {static_cast<std::int64_t>(values.size())});
}

Tensor Tensor::of(std::initializer_list<std::initializer_list<float>> rows) {
  const auto columns = rows.size() == 0 ? 0 : rows.begin()->size();
  Tensor result = empty({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)});
  auto* out = result.data<float>();
  for (const auto& row : rows) {
    if (row.size() != columns) {
      throw shape_error("tensor", "rows of " + std::to_string(columns) + " values",
                        "a row of " + std::to_string(row.size()));
    }
    out = std::copy(row.begin(), row.end(), out);
  }
  return result;
}

Tensor Tensor::copy_of(const void* values, std::size_t count, const Shape& shape, DType dtype) {
  if (static_cast<std::size_t>(shape.numel()) != count) {
    throw shape_error("tensor", "values to fill " + shape.str(), std::to_string(count) + " values");
  }
  Tensor result = empty(shape, dtype);
  if (count != 0) std::memcpy(result.data_, values, count * size_of(dtype));
  return result;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, const Shape& strides, DType dtype,
                         std::shared_ptr<void> owner) {
  if (strides.size() != shape.size()) {
    throw shape_error("tensor", "one stride for each dimension of " + shape.str(), strides.str());
  }
  require_known("tensor", "a dtype", dtype, DType::boolean);
  // A tensor without elements may come without memory; its address only says that it is defined.
  alignas(64) static std::byte nothing[64];
  Tensor result;
  result.numel_ = shape.numel();
  if (data == nullptr && result.numel_ != 0) {
    throw Error(Error::Kind::argument, "tensor", "memory for " + shape.str(), "a null pointer");
  }
  result.storage_ = std::move(owner);
  result.data_ = data != nullptr ? data : nothing;
  result.shape_ = shape;
  result.strides_ = strides;
  result.dtype_ = dtype;
  return result;
}

void Tensor::wrong_dim(std::int64_t dim, const char* op) const {
  throw shape_error(op, "a dimension of " + shape_.str(), std::to_string(dim));
}

bool Tensor::is_contiguous() const noexcept {
  if (numel_ == 0) return true;
  std::int64_t step = 1;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

void Tensor::wrong_dtype(DType asked) const {
  throw Error(Error::Kind::dtype, "data", name(asked), name(dtype_), "convert with to(dtype)");
}

void Tensor::require_defined(const char* op) const {
  if (!defined()) throw Error(Error::Kind::argument, op, "a tensor", "an undefined one");
}

std::byte* Tensor::address(std::initializer_list<std::int64_t> index) const {
  require_defined("at");
  if (index.size() != shape_.size()) {
    throw shape_error("at", "an index for each dimension of " + shape_.str(),
                      std::to_string(index.size()) + " indices");
  }
  std::int64_t offset = 0;
  std::size_t dim = 0;
  for (const std::int64_t i : index) {
    if (i < 0 || i >= shape_[dim]) {
      throw shape_error("at", "an index inside " + shape_.str(),
                        std::to_string(i) + " in dimension " + std::to_string(dim));
    }
    offset += i * strides_[dim++];
  }
  return static_cast<std::byte*>(data_) + offset * static_cast<std::int64_t>(size_of(dtype_));
}

double Tensor::at(std::initializer_list<std::int64_t> index) const {
  const std::byte* p = address(index);
  return visit(dtype_, [p](auto zero) { return to_double(*reinterpret_cast<const decltype(zero)*>(p)); });
}

void Tensor::set(std::initializer_list<std::int64_t> index, double value) {
  std::byte* p = address(index);
  visit(dtype_, [&](auto zero) {
    using T = decltype(zero);
    *reinterpret_cast<T*>(p) = from_double<T>(value);
  });
}

double Tensor::item() const {
  if (numel_ != 1) throw shape_error("item", "a tensor of one element", shape_.str());
  return visit(dtype_, [this](auto zero) { return to_double(*static_cast<const decltype(zero)*>(data_)); });
}

Tensor Tensor::view(const Shape& shape) const {
  require_defined("view");
  if (!is_contiguous())
    throw shape_error("view", "a contiguous tensor (call contiguous() first)", "strides " + strides_.str());
  Shape sizes = shape;
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    if (std::find(open + 1, sizes.end(), -1) != sizes.end()) throw shape_error("view", "one size of -1", shape.str());
    *open = 1;
    const std::int64_t known = sizes.numel();
    *open = known == 0 ? 0 : numel_ / known;
  }
  if (sizes.numel() != numel_) {
    throw shape_error("view", "a shape of " + std::to_string(numel_) + " elements", shape.str());
  }
  return from_blob(data_, sizes, sizes.contiguous_strides(), dtype_, storage_);
}

Tensor Tensor::transpose(std::int64_t a, std::int64_t b) const {
  const std::size_t i = dim_index(a, "transpose"), j = dim_index(b, "transpose");
  Tensor result = *this;
  std::swap(result.shape_[i], result.shape_[j]);
  std::swap(result.strides_[i], result.strides_[j]);
  return result;
}

Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
  const std::size_t i = dim_index(dim, "select");
  const std::int64_t at = index < 0 ? index + shape_[i] : index;
  if (at < 0 || at >= shape_[i]) throw shape_error("select", "an index inside " + shape_.str(), std::to_string(index));
  Tensor result = slice(dim, at, at + 1);
  result.shape_.erase(i);
  result.strides_.erase(i);
  return result;
}

Tensor Tensor::slice(std::int64_t dim, std::int64_t begin, std::int64_t end) const {
  const std::size_t i = dim_index(dim, "slice");
  if (begin < 0 || begin > end || end > shape_[i]) {
    throw shape_error("slice", "0 <= begin <= end <= " + std::to_string(shape_[i]),
                      std::to_string(begin) + ":" + std::to_string(end));
  }
  Tensor result = *this;
  result.shape_[i] = end - begin;
  result.numel_ = result.shape_.numel();
  if (result.numel_ != 0) {
    result.data_ = static_cast<std::byte*>(data_) + begin * strides_[i] * static_cast<std::int64_t>(size_of(dtype_));
  }
  return result;
}

Tensor Tensor::expand(const Shape& shape) const {
  require_defined("expand");
  Shape strides = shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool own = i + shape_.size() >= shape.size();
    const std::size_t mine = own ? i + shape_.size() - shape.size() : 0;
    const bool same = own && shape_[mine] == shape[i];
    if (own && !same && shape_[mine] != 1)
      throw shape_error("expand", "sizes of 1 or those of " + shape.str(), shape_.str());
    strides[i] = same ? strides_[mine] : 0;
  }
  if (shape_.size() > shape.size())
    throw shape_error("expand", "at most the dimensions of " + shape.str(), shape_.str());
  return from_blob(data_, shape, strides, dtype_, storage_);
}

Tensor Tensor::unsqueeze(std::int64_t dim) const {
  require_defined("unsqueeze");
  const auto rank = static_cast<std::int64_t>(shape_.size());
  const std::int64_t at = dim < 0 ? dim + rank + 1 : dim;
  if (at < 0 || at > rank) throw shape_error("unsqueeze", "a place in " + shape_.str(), std::to_string(dim));
  Tensor result = *this;
  result.shape_.insert(static_cast<std::size_t>(at), 1);
  result.strides_.insert(static_cast<std::size_t>(at), 0);
  return result;
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  require_defined("clone");
  Tensor result = empty(shape_, dtype_);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  require_defined("to");
  Tensor result = empty(shape_, dtype);
  result.copy_from(*this);
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  require_defined("copy_from");
  source.require_defined("copy_from");
  if (!(source.shape_ == shape_)) throw shape_error("copy_from", "a source of " + shape_.str(), source.shape_.str());
  if (numel_ == 0) return;
  const bool same = data_ == source.data_ && strides_ == source.strides_ && dtype_ == source.dtype_;
  // Where two views overlap, an element may be written before it is read. Their storage does not tell: a user's own
  // memory has none.
  const auto [to, to_end] = extent(*this);
  const auto [from, from_end] = extent(source);
  if (!same && to < from_end && from < to_end) return copy_from(source.clone());
  const CopyRow copy = copy_row(dtype_, source.dtype_);
  auto* out = static_cast<std::byte*>(data_);
  const auto* in = static_cast<const std::byte*>(source.data_);
  if (is_contiguous() && source.is_contiguous()) return copy(out, 1, in, 1, numel_);
  const std::size_t last = rank() - 1;
  Shape rows = shape_;
  rows.erase(last);
  const auto out_size = static_cast<std::int64_t>(size_of(dtype_)),
             in_size = static_cast<std::int64_t>(size_of(source.dtype_));
  for_each_offset(rows, strides_, source.strides_, [&](std::int64_t o, std::int64_t i) {
    copy(out + o * out_size, strides_[last], in + i * in_size, source.strides_[last], shape_[last]);
  });
}

void Tensor::fill(double value) const {
  require_defined("fill");
  visit(dtype_, [&](auto zero) {
    using T = decltype(zero);
    auto* out = static_cast<T*>(data_);
    for_each_offset(shape_, strides_, strides_, [&](std::int64_t o, std::int64_t) { out[o] = from_double<T>(value); });
  });
}

}  // namespace attn
