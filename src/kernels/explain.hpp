// Plans in words, for whoever asks how a call is computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "kernels/plan.hpp"
#include "kernels/schedule.hpp"

namespace attn::kernels {

struct Explanation {
  std::string call;      // "forward", "backward", "decode", "product" or "few rows"
  std::string isa;       // "amx"
  std::string products;  // "six products of bf16 parts"
  std::string reason;    // "highest precision: three parts hold float32"
  std::string sizes;     // "512 queries, 4096 keys, depth 128"
  std::string cut;       // "128 keys a block"
  std::int64_t tasks;    // of all phases
  int threads = 0;       // of the schedule; 0: none was asked for
  Schedule schedule{};

  bool operator==(const Explanation&) const = default;
};

Explanation explain(const Problem& p, const ForwardPlan& plan);
Explanation explain(const Problem& p, const BackwardPlan& plan);
Explanation explain(const Product& p, const ProductPlan& plan);
Explanation explain(const FewRows& p, const FewRowsPlan& plan);

// A few lines of at most 80 columns.
std::string text(const Explanation& e);

// While it lives, it hears of every plan that its thread makes, of equal ones once. Where `threads` is not 0, plans are
// made for so many, and it hears how their tasks share out.
class PlanListener {
 public:
  explicit PlanListener(int threads = 0)
      : before_(current), threads_(threads == 0 && current ? current->threads_ : threads) {
    current = this;
  }
  ~PlanListener() { current = before_; }
  PlanListener(const PlanListener&) = delete;
  PlanListener& operator=(const PlanListener&) = delete;

  const std::vector<Explanation>& heard() const { return heard_; }

  // That plans are made for.
  static int threads() noexcept { return current && current->threads_ > 0 ? current->threads_ : thread_count(); }

  // To the one that listens, if any.
  template <class P, class Made>
  static void tell(const P& p, const Made& plan) {
    if (!current) return;
    Explanation e = explain(p, plan);
    if (current->threads_ > 0) e.threads = current->threads_, e.schedule = simulate(work(p, plan), current->threads_);
    current->hear(e);
  }

 private:
  void hear(const Explanation& e);

  static constinit thread_local PlanListener* current;
  PlanListener* before_;
  int threads_;
  std::vector<Explanation> heard_;
};

}  // namespace attn::kernels
