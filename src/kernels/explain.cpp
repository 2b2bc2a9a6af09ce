#include "kernels/explain.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attn::kernels {
namespace {

std::string count(std::int64_t n, const std::string& thing) {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

std::string products(const Plan& plan) {
  switch (plan.family) {
    case Family::float_tiles:
    case Family::float_decode:
      return "multiply-adds of float32";
    case Family::int8_decode:
      return "products of bytes";
    case Family::bf16_tiles:
      break;
  }
  const char* const names[] = {"products of bf16", "three products of bf16 parts", "six products of bf16 parts"};
  return names[plan.parts - 1];
}

Explanation begin(const char* call, const Plan& plan) {
  const std::int64_t tasks = std::accumulate(plan.tasks, plan.tasks + plan.phases, std::int64_t{0});
  return {call, plan.isa, products(plan), plan.reason, {}, {}, tasks};
}

std::string sizes(const Problem& p) {
  const std::string text = (p.tq == 1 ? "1 query" : std::to_string(p.tq) + " queries") + ", " + count(p.tk, "key") +
                           ", depth " + std::to_string(p.d);
  return p.dv == p.d ? text : text + ", values of " + std::to_string(p.dv);
}

std::string sizes(std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  return count(rows, "row") + ", depth " + std::to_string(depth) + ", " + count(columns, "column");
}

}  // namespace

Explanation explain(const Problem& p, const ForwardPlan& plan) {
  Explanation e = begin(plan.decodes() ? "decode" : "forward", plan);
  e.sizes = sizes(p);
  e.cut = plan.decodes() ? count(plan.chunk_keys, "key") + " a task" : count(plan.block_keys, "key") + " a block";
  return e;
}

Explanation explain(const Problem& p, const BackwardPlan& plan) {
  Explanation e = begin("backward", plan);
  e.sizes = sizes(p);
  e.cut = plan.steps_apart ? count(plan.step, "key") + " a task, sums of dq over " + std::to_string(plan.chunk)
                           : count(plan.chunk, "key") + " a task, " + std::to_string(plan.step) + " at a time";
  return e;
}

Explanation explain(const Product& p, const ProductPlan& plan) {
  Explanation e = begin("product", plan);
  e.sizes = sizes(p.m, p.k, p.n);
  e.cut = std::to_string(plan.depth) + " of the depth at a time, " + count(plan.task_rows, "row") + " a task";
  return e;
}

Explanation explain(const FewRows& p, const FewRowsPlan& plan) {
  Explanation e = begin("few rows", plan);
  e.sizes = sizes(p.m, p.k, p.n);
  e.cut = count(plan.task_outputs, "column") + " a task";
  return e;
}

std::string text(const Explanation& e) {
  constexpr std::size_t width = 80;
  std::string all = e.call + " on " + e.isa + ": " + e.products + "\n  " + e.reason + "\n", line = "  " + e.sizes;
  for (const std::string& part : {e.cut, count(e.tasks, "task")}) {
    if (line.size() + 2 + part.size() <= width) {
      line += "; " + part;
    } else {
      all += line + "\n";
      line = "  " + part;
    }
  }
  all += line + "\n";
  if (e.threads == 0) return all;
  const long busy = std::lround(100 * e.schedule.speed_up() / e.threads);
  return all + "  on " + count(e.threads, "thread") + ": " + count(e.schedule.waves, "wave") + ", " +
         std::to_string(busy) + " % busy\n";
}

constinit thread_local PlanRecord* PlanRecord::current = nullptr;

void PlanRecord::add(const Explanation& e) {
  if (std::find(plans_.begin(), plans_.end(), e) == plans_.end()) plans_.push_back(e);
}

}  // namespace attn::kernels
