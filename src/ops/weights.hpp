// Modules do this alike with weights that may be elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attn/module.hpp"
#include "attn/weights.hpp"

namespace attn {

// Throws Error (argument) where the value is absent().
void require_present(const Parameter& parameter);
// The value, contiguous. Throws Error (shape) unless it has `count` numbers: somebody may have put another in its place
// since the module, or its forward pass, was made.
Tensor numbers_of(const char* op, const Parameter& parameter, std::int64_t count);
// Throws Error (shape) unless the gradient, to which backward() adds, has the value's shape.
void require_gradient_shape(const Parameter& parameter);

// The weights of a part, while this lives; those of the next one are fetched meanwhile. Without a source they are
// always there.
class Held {
 public:
  Held(WeightSource* source, std::size_t part) : source_(source), part_(part) {
    if (source_) source_->take(part);
  }
  Held(WeightSource* source, std::size_t part, std::optional<std::size_t> next) : Held(source, part) { also(next); }
  ~Held() {
    if (source_) source_->release(part_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // One more that is fetched.
  void also(std::optional<std::size_t> next) const {
    if (source_ && next) source_->begin(*next);
  }

 private:
  WeightSource* source_;
  std::size_t part_;
};

}  // namespace attn
