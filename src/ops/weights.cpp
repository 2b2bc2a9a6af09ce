#include "ops/weights.hpp"

#include <limits>
#include <string>

#include "attn/error.hpp"
#include "core/lasting.hpp"

namespace attn {
namespace {

// One number for all: a path that forgets to ask gives NaN.
const Tensor& nothing() {
  static const Tensor& one = lasting([] { return Tensor::full({1}, std::numeric_limits<double>::quiet_NaN()); });
  return one;
}

}  // namespace

Tensor absent(const Shape& shape) { return nothing().expand(shape); }

bool is_absent(const Tensor& value) noexcept { return value.raw() == nothing().raw(); }

void require_present(const Parameter& parameter) {
  if (!parameter.value.defined()) {
    throw Error(Error::Kind::argument, "weights", "a module with its weights",
                "one that was moved from, or none in it");
  }
  if (!is_absent(parameter.value)) return;
  throw Error(Error::Kind::argument, "weights", "the values of " + parameter.name,
              "none here, as they are divided among ranks",
              "call the model that set_weights() was called of, or gather() them first");
}

Tensor numbers_of(const char* op, const Parameter& parameter, std::int64_t count) {
  if (parameter.value.numel() == count) return parameter.value.contiguous();
  throw Error(Error::Kind::shape, op, parameter.name + " of " + std::to_string(count) + " numbers, as it was",
              parameter.value.shape().str());
}

void require_gradient_shape(const Parameter& parameter) {
  if (parameter.grad.shape() == parameter.value.shape()) return;
  throw Error(Error::Kind::shape, "backward",
              "a gradient of the shape of " + parameter.name + ", " + parameter.value.shape().str(),
              parameter.grad.shape().str(), "zero_grad() leaves none");
}

}  // namespace attn
