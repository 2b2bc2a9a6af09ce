// Tensors made from others: stacked, concatenated, triangular.
#include <algorithm>
#include <string>

#include "attn/error.hpp"
#include "attn/tensor.hpp"

namespace attn {
namespace {

void require_one_dtype(const char* op, std::span<const Tensor> tensors) {
  if (tensors.empty()) throw Error(Error::Kind::argument, op, "at least one tensor", "none");
  for (const Tensor& t : tensors) {
    if (!t.defined()) throw Error(Error::Kind::argument, op, "tensors", "one that holds nothing");
    if (t.dtype() != tensors.front().dtype()) {
      throw Error(Error::Kind::dtype, op, "tensors of " + std::string(name(tensors.front().dtype())), name(t.dtype()));
    }
  }
}

void require_sizes(const char* op, const Tensor& t, const Shape& shape) {
  if (!(t.shape() == shape)) throw Error(Error::Kind::shape, op, "a tensor " + shape.str(), t.shape().str());
}

}  // namespace

Tensor stack(std::span<const Tensor> tensors) {
  require_one_dtype("stack", tensors);
  const Tensor& first = tensors.front();
  for (const Tensor& t : tensors) require_sizes("stack", t, first.shape());
  Shape shape = first.shape();
  shape.insert(0, static_cast<std::int64_t>(tensors.size()));
  Tensor result = Tensor::empty(shape, first.dtype());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    result.select(0, static_cast<std::int64_t>(i)).copy_from(tensors[i]);
  }
  return result;
}

Tensor concat_last(std::span<const Tensor> tensors) {
  require_one_dtype("concat_last", tensors);
  Shape shape = tensors.front().shape();
  if (shape.empty()) throw Error(Error::Kind::shape, "concat_last", "at least one dimension", shape.str());
  std::int64_t last = 0;
  for (const Tensor& t : tensors) {
    Shape own = shape;
    own.back() = t.rank() == 0 ? 0 : t.size(-1);
    require_sizes("concat_last", t, own);
    last += own.back();
  }
  shape.back() = last;
  Tensor result = Tensor::empty(shape, tensors.front().dtype());
  std::int64_t begin = 0;
  for (const Tensor& t : tensors) {
    result.slice(-1, begin, begin + t.size(-1)).copy_from(t);
    begin += t.size(-1);
  }
  return result;
}

Tensor tril_ones(std::int64_t rows, std::int64_t columns, DType dtype) {
  Tensor result = Tensor::zeros({rows, columns}, dtype);
  for (std::int64_t i = 0; i < rows; ++i) result.select(0, i).slice(0, 0, std::min(i + 1, columns)).fill(1);
  return result;
}

}  // namespace attn
