// The kernels under test: every instruction set of this build, and AMX's on emulated tiles.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/testing.hpp"
#include "kernels/targets.hpp"
#if defined(ATTN_AMX_EMULATED)
#include "kernels/processor.hpp"
#endif

namespace attn::kernels {

#if defined(ATTN_AMX_EMULATED)
extern const Kernels kernels_amx_emulated;
#endif

// Returns the units that split a float32 number into at least so many parts of bf16: 0 for all, 1 where they have
// products of bf16, 3 where large float32 is such products too.
inline std::vector<std::string> unit_names(int least_parts = 0) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const Kernels& kernels) {
    const int most = kernels.bf16_forward ? kernels.bf16_forward->most_parts : 0;
    if (most >= least_parts) names.push_back(name);
  };
  for (const Target& target : targets()) add(std::string(target.isa), *target.kernels);
#if defined(ATTN_AMX_EMULATED)
  add("amx_emulated", kernels_amx_emulated);
#endif
  return names;
}

// Null where this processor cannot run them.
inline const Kernels* unit_named(const std::string& name) {
#if defined(ATTN_AMX_EMULATED)
  if (name == "amx_emulated") return has_avx512bf16() ? &kernels_amx_emulated : nullptr;
#endif
  for (const Target& target : targets()) {
    if (target.isa == name && target.supported) return target.kernels;
  }
  return nullptr;
}

// Uninitialised memory that shows when it is read: every float is NaN, and sanitizers see its end.
struct Poisoned {
  std::unique_ptr<void, void (*)(void*)> data{nullptr, std::free};

  explicit Poisoned(std::size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    data.reset(std::aligned_alloc(64, bytes == 0 ? 64 : bytes));
    std::memset(data.get(), 0xff, bytes);
  }
};

// [0, n) in a random order.
inline std::vector<std::int64_t> shuffled(std::int64_t n, std::mt19937_64& random) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// A product's tasks in the order given, as two threads might share them: false when a result left the range.
inline bool run_product(const kernels::Product& p, const kernels::ProductPlan& plan, const void* packed,
                        const std::vector<std::int64_t>& order) {
  struct Queue {
    const std::int64_t *next, *end;
  };
  const auto take = [](void* from, bool early) {
    auto* queue = static_cast<Queue*>(from);
    const bool waits = early && (queue->end - queue->next) % 3 == 1;
    return queue->next < queue->end && !waits ? *queue->next++ : -1;
  };
  const std::int64_t *begin = order.data(), *end = begin + order.size(), *middle = begin + order.size() / 3;
  bool fits = true;
  for (Queue queue : {Queue{begin, middle}, Queue{middle, end}}) {
    const Poisoned scratch(plan.scratch);
    fits = plan.kernel->run(p, plan, packed, {take, &queue}, scratch.data.get()) && fits;
  }
  return fits;
}

class Units : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Kernels* unit = unit_named(GetParam());
    if (!unit) GTEST_SKIP() << "this processor has no " << GetParam();
    kernels_ = *unit;
  }

  // Tells whether a long test ends here: where tests are shortened, on a unit whose code others have, too. That of avx2
  // is compiled for wider and narrower vectors and for Arm's, and that of avx512bf16 for tiles, which are emulated.
  [[nodiscard]] bool left_to_nightly() const {
    static const std::set<std::string> of_others{"scalar", "avx512", "amx_emulated", "neon", "neondot"};
    if (!test::shortened() || !of_others.contains(GetParam())) return false;
    [] { GTEST_SKIP() << "make nightly runs this on " << GetParam(); }();
    return true;
  }

  // Returns the unit that is compared with those that multiply parts of float32. Its kernels compute what is too small
  // for parts.
  static const Kernels& multiply_adds() { return *unit_named("avx512"); }

  // Tells whether products of bf16 parts are the unit's own.
  bool has_matrix() const { return kernels_.bf16_product != nullptr; }

  Kernels kernels_{};
};

}  // namespace attn::kernels
