#include "common/plans.hpp"

#include <nlohmann/json.hpp>

namespace attn::tool {

std::string plans_text(const std::vector<kernels::Explanation>& plans) {
  if (plans.empty()) return "step by step, not fused: float64, or all weights were asked for\n";
  std::string all;
  for (const kernels::Explanation& plan : plans) all += kernels::text(plan);
  return all;
}

Json plans_json(const std::vector<kernels::Explanation>& plans) {
  Json all = Json::array();
  for (const kernels::Explanation& plan : plans) {
    Json one{{"call", plan.call},   {"isa", plan.isa}, {"products", plan.products}, {"reason", plan.reason},
             {"sizes", plan.sizes}, {"cut", plan.cut}, {"tasks", plan.tasks}};
    if (plan.threads > 0) {
      one.update({{"waves", plan.schedule.waves}, {"busy", plan.schedule.speed_up() / plan.threads}});
    }
    all.push_back(one);
  }
  return all;
}

}  // namespace attn::tool
