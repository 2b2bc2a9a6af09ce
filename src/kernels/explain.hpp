// Plans in words, for whoever asks how a call is computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/plan.hpp"

namespace attn::kernels {

struct Explanation {
  std::string call;      // "forward", "backward", "decode", "product" or "few rows"
  std::string isa;       // "amx"
  std::string products;  // "six products of bf16 parts"
  std::string reason;    // "highest precision: three parts hold float32"
  std::string sizes;     // "512 queries, 4096 keys, depth 128"
  std::string cut;       // "128 keys a block"
  std::int64_t tasks;    // of all phases

  bool operator==(const Explanation&) const = default;
};

Explanation explain(const Problem& p, const ForwardPlan& plan);
Explanation explain(const Problem& p, const BackwardPlan& plan);
Explanation explain(const Product& p, const ProductPlan& plan);
Explanation explain(const FewRows& p, const FewRowsPlan& plan);

// A few lines of at most 80 columns.
std::string text(const Explanation& e);

// While it lives, it hears of every plan that its thread makes, of equal ones once.
class PlanListener {
 public:
  PlanListener() : before_(current) { current = this; }
  ~PlanListener() { current = before_; }
  PlanListener(const PlanListener&) = delete;
  PlanListener& operator=(const PlanListener&) = delete;

  const std::vector<Explanation>& heard() const { return heard_; }

  // To the one that listens, if any.
  template <class P, class Made>
  static void tell(const P& p, const Made& plan) {
    if (current) current->hear(explain(p, plan));
  }

 private:
  void hear(const Explanation& e);

  static constinit thread_local PlanListener* current;
  PlanListener* before_;
  std::vector<Explanation> heard_;
};

}  // namespace attn::kernels
