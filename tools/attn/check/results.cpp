#include "check/results.hpp"

namespace attn::check {

void Results::add_shape(std::string what, const Tensor& tensor) {
  Tensor sizes = Tensor::empty({static_cast<std::int64_t>(tensor.rank())}, DType::i64);
  for (std::size_t i = 0; i < tensor.rank(); ++i) sizes.data<std::int64_t>()[i] = tensor.shape()[i];
  add(std::move(what), sizes);
}

}  // namespace attn::check
