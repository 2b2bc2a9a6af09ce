#include "check/results.hpp"

namespace attn::check {

void Results::add_shape(std::string what, const Tensor& tensor) {
  Tensor sizes = Tensor::empty({static_cast<std::int64_t>(tensor.rank())}, DType::i64);
  for (std::size_t i = 0; i < tensor.rank(); ++i) sizes.data<std::int64_t>()[i] = tensor.shape()[i];
  add(std::move(what), sizes);
}

Tensor six_words() {
  return Tensor::of({{0.43f, 0.15f, 0.89f},    // Your
                     {0.55f, 0.87f, 0.66f},    // journey
                     {0.57f, 0.85f, 0.64f},    // starts
                     {0.22f, 0.58f, 0.33f},    // with
                     {0.77f, 0.25f, 0.10f},    // one
                     {0.05f, 0.80f, 0.55f}});  // step
}

}  // namespace attn::check
