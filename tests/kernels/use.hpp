// Calls of the library, computed by the kernels that a test chooses.
#pragma once

#include <optional>

#include "kernels/units.hpp"

namespace attn::kernels {

// While it lives, every call computes by these kernels, which must live as long; then by those of before.
class UseKernels {
 public:
  explicit UseKernels(const Kernels& kernels) : before_(&active()) { use(&kernels); }
  ~UseKernels() { use(before_); }
  UseKernels(const UseKernels&) = delete;
  UseKernels& operator=(const UseKernels&) = delete;

 private:
  const Kernels* before_;
};

// A test of a unit, all of whose calls that unit computes.
class CallsOnUnits : public Units {
 protected:
  void SetUp() override {
    Units::SetUp();
    if (!IsSkipped()) use_.emplace(kernels_);
  }

 private:
  std::optional<UseKernels> use_;
};

}  // namespace attn::kernels
