// Dropout of a tensor's elements.
#pragma once

#include <memory>

#include "attn/module.hpp"
#include "attn/sequence.hpp"

namespace attn {

// Returns x · keep / (1 - p) in train mode, and x itself otherwise. Throws Error for a p outside [0, 1] (argument) and
// an x that is not float32 (dtype).
class Dropout : public Module {
 public:
  Dropout(double p, const Generator& rng);
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  // Throws Error before a forward pass (argument) and, where elements were dropped, for a dy of another shape (shape).
  Gradient backward(const Tensor& dy) override;
  // x is (…, t, width) then, of whose whole sequences these rows have the same elements dropped.
  void set_sequence(std::shared_ptr<SequencePart> part) { sequence_ = std::move(part); }

 private:
  double p_;
  Generator rng_;
  std::shared_ptr<SequencePart> sequence_;
  Tensor keep_;
  bool ran_ = false;  // a forward pass that backward() may follow
};

}  // namespace attn
