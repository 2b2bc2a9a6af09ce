// Sizes (or strides) of up to eight dimensions, held in place: no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace attn {

class Shape {
 public:
  static constexpr std::size_t max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)  // throws Error past max_rank
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes) : rank_(sizes.size()) {
    require_rank(rank_);
    std::copy(sizes.begin(), sizes.end(), begin());
  }

  std::size_t size() const noexcept { return rank_; }  // number of dimensions
  bool empty() const noexcept { return rank_ == 0; }
  std::int64_t operator[](std::size_t i) const noexcept { return sizes_[i]; }
  std::int64_t& operator[](std::size_t i) noexcept { return sizes_[i]; }
  std::int64_t back() const noexcept { return sizes_[rank_ - 1]; }
  std::int64_t& back() noexcept { return sizes_[rank_ - 1]; }
  const std::int64_t* begin() const noexcept { return sizes_.data(); }
  const std::int64_t* end() const noexcept { return sizes_.data() + rank_; }
  std::int64_t* begin() noexcept { return sizes_.data(); }
  std::int64_t* end() noexcept { return sizes_.data() + rank_; }
  void push_back(std::int64_t size);
  // Throw Error (argument) where i is past the last size, or for insert() past the place behind it.
  void erase(std::size_t i);
  void insert(std::size_t i, std::int64_t size);

  // The product of the sizes. Throws Error for a negative size, or past 2^63 - 1.
  std::int64_t numel() const;
  // The row-major strides of this shape, in elements.
  Shape contiguous_strides() const;
  // "(2, 6, 3)"
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) noexcept;

 private:
  static void require_rank(std::size_t rank) {
    if (rank > max_rank) too_many(rank);
  }
  [[noreturn]] static void too_many(std::size_t rank);
  [[noreturn]] void no_place(std::size_t i) const;

  std::array<std::int64_t, max_rank> sizes_{};
  std::size_t rank_ = 0;
};

}  // namespace attn
