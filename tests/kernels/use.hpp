// While it lives, every call computes by these kernels, which must live as long.
#pragma once

#include "kernels/targets.hpp"

namespace attn::kernels {

class UseKernels {
 public:
  explicit UseKernels(const Kernels& kernels) { use(&kernels); }
  ~UseKernels() { use(nullptr); }
  UseKernels(const UseKernels&) = delete;
  UseKernels& operator=(const UseKernels&) = delete;
};

}  // namespace attn::kernels
