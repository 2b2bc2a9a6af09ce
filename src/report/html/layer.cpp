#include "report/html/layer.hpp"

#include <array>

#include "report/html/scores.hpp"
#include "report/pca.hpp"

namespace attn::report_page {
namespace {

std::string_view kind_name(StepKind kind) {
  constexpr std::array<std::string_view, 4> names{"tokens", "heads", "scores", "weights"};
  return names[static_cast<std::size_t>(kind)];
}

void write_points(Json& json, const std::string& label, const Tensor& x, const Projection& projection) {
  json.object().name("name").text(label).name("size").number(x.size(1)).name("explained").array();
  for (const double share : projection.explained) json.number(share);
  json.end().name("points").floats(projected(x, projection)).end();
}

}  // namespace

void write_step(Json& json, const Step& step) {
  json.name("name").text(step.name).name("kind").text(kind_name(step.kind));
  json.name("ofKeys").boolean(step.of_keys).name("meaning").text(step.meaning);
}

void write_sinks(Json& json, const Block& block) {
  if (!block.sinks.defined()) return;
  json.name("sinks").array();
  for (std::int64_t head = 0; head < block.weights().size(0); ++head) {
    json.number(block.sinks.view({-1}).at({head}));
  }
  json.end();
}

void write_scores(Json& json, const Tensor& weights) {
  std::vector<HeadScores> heads(static_cast<std::size_t>(weights.size(0)));
  for_each(std::ssize(heads), 16 * static_cast<double>(weights.numel()),
           [&](std::int64_t head) { heads[static_cast<std::size_t>(head)] = head_scores(weights.select(0, head)); });
  json.name("scores").array();
  for (const HeadScores& s : heads) {
    json.object().name("entropy").number(s.entropy).name("distance").number(s.distance);
    json.name("first").number(s.first).name("previous").number(s.previous);
    json.name("diagonal").number(s.diagonal).end();
  }
  json.end();
}

void write_kinds(Json& json, const std::vector<HeadKinds>& heads) {
  json.name("kinds").array();
  for (const HeadKinds& k : heads) {
    json.object().name("first").number(k.first).name("previous").number(k.previous);
    json.name("same").number(k.same).name("induction").number(k.induction).end();
  }
  json.end();
}

void write_space(Json& json, const Block& block) {
  struct Cloud {
    std::string label;
    Tensor x;
    Projection axes;
  };
  const Tensor* inputs = block.find("inputs");
  json.name("space").array();
  std::vector<Cloud> clouds;
  const auto add = [&](const std::string& label, const Tensor& x) {
    if (x.numel() != 0) clouds.push_back({label, x, {}});
  };
  if (inputs && inputs->numel() != 0) {
    add("inputs", *inputs);
    if (const Tensor* context = block.find("context")) {
      for (std::int64_t head = 0; head < context->size(0); ++head) {
        add("context " + std::to_string(head), context->select(0, head));
      }
    }
    for (const char* step : {"merged", "output"}) {
      if (const Tensor* x = block.find(step)) add(step, *x);
    }
  }
  const auto shares = [&](const Cloud& cloud) { return cloud.x.size(1) == inputs->size(1); };
  constexpr double each = 400;  // operations a number, about
  const double numbers = clouds.empty() ? 0 : static_cast<double>(inputs->numel());
  for_each(std::ssize(clouds), each * numbers, [&](std::int64_t i) {
    Cloud& cloud = clouds[static_cast<std::size_t>(i)];
    if (i == 0 || !shares(cloud)) cloud.axes = principal_axes(cloud.x);
  });
  for (const Cloud& cloud : clouds) {
    write_points(json, cloud.label, cloud.x, shares(cloud) ? clouds.front().axes : cloud.axes);
  }
  json.end();
}

void write_checks(Json& json, const std::vector<Check>& checks) {
  json.name("health").array();
  for (const Check& check : checks) {
    json.object().name("name").text(check.name).name("holds").boolean(check.holds);
    json.name("value").number(check.value).name("bound").number(check.bound).name("told").text(check.told).end();
  }
  json.end();
}

}  // namespace attn::report_page
