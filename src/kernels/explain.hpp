// Plans in words, for whoever asks how a call is computed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/parallel.hpp"
#include "kernels/plan.hpp"
#include "kernels/schedule.hpp"
#include "kernels/targets.hpp"

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

// While it lives, it writes down the plans that its thread carries out, and equal ones once. It changes none.
class PlanRecord {
 public:
  enum class Of { plans, plans_and_schedules };

  explicit PlanRecord(Of what = Of::plans) : before_(current), what_(what) { current = this; }
  ~PlanRecord() { current = before_; }
  PlanRecord(const PlanRecord&) = delete;
  PlanRecord& operator=(const PlanRecord&) = delete;

  const std::vector<Explanation>& plans() const { return plans_; }

  template <class P, class Made>
  static void add(const P& p, const Made& plan, int threads) {
    if (!current) return;
    Explanation e = explain(p, plan);
    if (current->what_ == Of::plans_and_schedules) e.threads = threads, e.schedule = simulate(work(p, plan), threads);
    current->add(e);
  }

 private:
  void add(const Explanation& e);

  static constinit thread_local PlanRecord* current;
  PlanRecord* before_;
  Of what_;
  std::vector<Explanation> plans_;
};

// The plan by which a call is carried out here and now.
template <class P, class... Result>
auto plan_to_run(const P& p, const Result&... result) {
  const int threads = planned_threads();
  const auto made = plan(p, result..., active(), threads);
  PlanRecord::add(p, made, threads);
  return made;
}

}  // namespace attn::kernels
