#include "train/files.hpp"

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/io.hpp"
#include "common/format.hpp"
#include "common/ranks.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "train/divergence.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

fs::path beside(fs::path model, const char* extension) { return model.replace_extension(extension); }

std::string curve_svg(const Run& run) {
  figure::Series training{"training", {}, run.losses()}, validation{"validation", {}, {}};
  for (std::size_t i = 0; i < training.y.size(); ++i) training.x.push_back(static_cast<double>(i + 1));
  for (const auto& [step, loss] : run.validations()) {
    validation.x.push_back(static_cast<double>(step));
    validation.y.push_back(loss);
  }
  const figure::Series all[] = {training, validation};
  return figure::line_chart(all, {.title = "Loss", .x = "step", .y = "nats a token"});
}

}  // namespace

TrainingFiles::TrainingFiles(const std::string& model, const std::string& curve)
    : model_(model),
      checkpoint_(beside(model, ".training.safetensors")),
      curve_(curve.empty() ? beside(model, ".svg") : fs::path(curve)) {}

void TrainingFiles::require_new() const {
  for (const fs::path& path : {model_, checkpoint_}) {
    if (!fs::exists(path)) continue;
    throw Error(Error::Kind::argument, "--out", "no model there yet", formatted("\"{}\"", escaped(path.string())),
                "continue it by --resume, or replace it by --force");
  }
}

// The checkpoint first: the model and the curve can be written again from it.
void TrainingFiles::save(Run& run) {
  distributed::Transport* const ranks = run.ranks().transport;
  together(ranks, [&] {
    if (!run.finite()) throw diverged(formatted("other weights after step {}", run.steps_done()), *this);
  });
  const auto whole = run.whole_weights();
  run.save(checkpoint_);
  kept_ = run.steps_done();
  together(ranks, [&] {
    if (!run.ranks().first()) return;
    run.model().save(model_, run.steps_done());
    io::save_text(curve_, curve_svg(run));
  });
  saved_ = run.steps_done();
}

std::string TrainingFiles::kept() const {
  if (kept_ < 0) return "nothing was saved yet";
  return formatted("\"{}\" is still the checkpoint of step {}", escaped(checkpoint_.string()), kept_);
}

}  // namespace attn::tool
