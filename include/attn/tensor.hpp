// Tensor: a strided view of shared storage, as in PyTorch and NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "attn/dtype.hpp"
#include "attn/shape.hpp"

namespace attn {

// Copying a Tensor copies the view, not the elements (clone() does that), and
// `const` is shallow: it guards shape and pointer. Strides count elements and may
// be zero (expand) or negative. A default-constructed Tensor holds nothing:
// defined() is false. Dimensions may be given from the end: -1 is the last.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor(Tensor&& from) noexcept;  // which holds nothing afterwards
  Tensor& operator=(Tensor&& from) noexcept;
  ~Tensor() = default;

  // New storage, aligned to 64 bytes. Throws Error (shape) for a negative or
  // overflowing size, std::bad_alloc when there is no memory.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor ones(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
  // Small literals, float32: of({1, 2}) is (2), of({{1, 2}, {3, 4}}) is (2, 2).
  static Tensor of(std::initializer_list<float> values);
  static Tensor of(std::initializer_list<std::initializer_list<float>> rows);
  // Copies `values`, which are row-major.
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape) {
    return copy_of(values.data(), values.size(), shape, dtype_of<T>);
  }
  // A view of memory that the caller owns; `owner` is kept alive with the view.
  static Tensor from_blob(void* data, const Shape& shape, const Shape& strides, DType dtype,
                          std::shared_ptr<void> owner = nullptr);

  bool defined() const noexcept { return data_ != nullptr; }
  std::size_t rank() const noexcept { return shape_.size(); }
  const Shape& shape() const noexcept { return shape_; }
  const Shape& strides() const noexcept { return strides_; }
  std::int64_t size(std::int64_t dim) const { return shape_[dim_index(dim, "size")]; }
  std::int64_t stride(std::int64_t dim) const { return strides_[dim_index(dim, "stride")]; }
  std::int64_t numel() const noexcept { return numel_; }
  DType dtype() const noexcept { return dtype_; }
  bool is_contiguous() const noexcept;
  // The storage keeps the elements alive. It is null for a blob without an owner.
  const std::shared_ptr<void>& storage() const noexcept { return storage_; }

  // The first element. data<T>() throws Error (dtype) when T is not the dtype.
  void* raw() const noexcept { return data_; }
  template <class T>
  T* data() const {
    if (dtype_of<T> != dtype_) wrong_dtype(dtype_of<T>);
    return static_cast<T*>(data_);
  }

  // One element of any dtype, as double; bounds are checked.
  double at(std::initializer_list<std::int64_t> index) const;
  void set(std::initializer_list<std::int64_t> index, double value);
  double item() const;  // of a tensor with one element

  // Views: no element is copied.
  Tensor view(const Shape& shape) const;  // contiguous only; one size may be -1
  Tensor transpose(std::int64_t a, std::int64_t b) const;
  Tensor select(std::int64_t dim, std::int64_t index) const;
  Tensor slice(std::int64_t dim, std::int64_t begin, std::int64_t end) const;
  Tensor expand(const Shape& shape) const;  // broadcasting, from the right
  Tensor unsqueeze(std::int64_t dim) const;

  // Copies, where needed.
  Tensor contiguous() const;  // itself when it is contiguous already
  Tensor clone() const;       // always a new, contiguous one
  Tensor to(DType dtype) const;
  void copy_from(const Tensor& source) const;  // same shape; converts the dtype; may overlap
  void fill(double value) const;

 private:
  static Tensor copy_of(const void* values, std::size_t count, const Shape& shape, DType dtype);
  [[noreturn]] void wrong_dtype(DType asked) const;
  void require_defined(const char* op) const;  // throws Error (argument)
  std::size_t dim_index(std::int64_t dim, const char* op) const {
    const auto rank = static_cast<std::int64_t>(shape_.size());
    if (dim < -rank || dim >= rank) wrong_dim(dim, op);
    return static_cast<std::size_t>(dim < 0 ? dim + rank : dim);
  }
  [[noreturn]] void wrong_dim(std::int64_t dim, const char* op) const;
  std::byte* address(std::initializer_list<std::int64_t> index) const;

  std::shared_ptr<void> storage_;
  void* data_ = nullptr;
  Shape shape_, strides_;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::f32;
};

// Stacks tensors of one shape and dtype along a new first dimension.
Tensor stack(std::span<const Tensor> tensors);
// Joins tensors along the last dimension. All other sizes must be equal.
Tensor concat_last(std::span<const Tensor> tensors);
// Lower-triangular ones of (rows, columns), as torch.tril(torch.ones(…)).
Tensor tril_ones(std::int64_t rows, std::int64_t columns, DType dtype = DType::f32);

}  // namespace attn
