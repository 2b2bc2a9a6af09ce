#include "attn/shape.hpp"

#include <algorithm>

#include "attn/error.hpp"

namespace attn {

void Shape::too_many(std::size_t rank) {
  throw Error(Error::Kind::shape, "shape", "at most 8 dimensions", std::to_string(rank));
}

void Shape::push_back(std::int64_t size) { insert(rank_, size); }

void Shape::no_place(std::size_t i) const {
  throw Error(Error::Kind::argument, "shape", "a place in " + str(), std::to_string(i));
}

void Shape::erase(std::size_t i) {
  if (i >= rank_) no_place(i);
  std::copy(begin() + i + 1, end(), begin() + i);
  --rank_;
}

void Shape::insert(std::size_t i, std::int64_t size) {
  require_rank(rank_ + 1);
  if (i > rank_) no_place(i);
  std::copy_backward(begin() + i, end(), end() + 1);
  sizes_[i] = size;
  ++rank_;
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  bool overflow = false, zero = false;
  for (const std::int64_t size : *this) {
    if (size < 0) throw Error(Error::Kind::shape, "shape", "sizes of at least 0", str());
    overflow = __builtin_mul_overflow(product, size, &product) || overflow;
    zero = zero || size == 0;
  }
  if (zero) return 0;  // whatever the order of the sizes
  if (overflow) throw Error(Error::Kind::shape, "shape", "fewer than 2^63 elements", str());
  return product;
}

Shape Shape::contiguous_strides() const {
  Shape strides = *this;
  std::int64_t step = 1;
  for (std::size_t i = rank_; i-- > 0;) {
    strides[i] = step;
    // Overflows only beside a size of 0, where no stride is ever taken.
    if (__builtin_mul_overflow(step, std::max<std::int64_t>(sizes_[i], 1), &step)) step = 1;
  }
  return strides;
}

std::string Shape::str() const {
  std::string text = "(";
  for (std::size_t i = 0; i < rank_; ++i) text.append(i == 0 ? "" : ", ").append(std::to_string(sizes_[i]));
  return text + (rank_ == 1 ? ",)" : ")");
}

bool operator==(const Shape& a, const Shape& b) noexcept { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace attn
