#include "train/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/format.hpp"
#include "common/json.hpp"
#include "common/terminal.hpp"

namespace attn::tool {

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return formatted("{} h {} min", whole / 3600, whole % 3600 / 60);
  return whole >= 60 ? formatted("{} min {} s", whole / 60, whole % 60) : formatted("{} s", whole);
}

std::optional<std::pair<std::int64_t, double>> lowest_validation(const Trainer& run) {
  const auto& all = run.validations();
  const auto lowest = std::ranges::min_element(all, {}, &std::pair<std::int64_t, double>::second);
  return lowest == all.end() ? std::nullopt : std::optional(*lowest);
}

bool begins_to_overfit(const Trainer& run) {
  constexpr std::ptrdiff_t patience = 3, recent = 20;
  constexpr double clearly = 0.98;
  const auto& all = run.validations();
  const auto lowest = std::ranges::min_element(all, {}, &std::pair<std::int64_t, double>::second);
  const auto overfits = [&](const std::pair<std::int64_t, double>& measured) {
    const auto end = run.losses().begin() + measured.first;
    const auto from = end - std::min<std::ptrdiff_t>(measured.first, recent);
    return std::accumulate(from, end, 0.0) / static_cast<double>(end - from) < clearly * lowest->second;
  };
  if (all.end() - lowest <= patience || all.back().first != run.steps_done()) return false;
  return std::find_if(lowest + patience, all.end(), overfits) == all.end() - 1;
}

Progress::Progress(Form form, const Trainer& run, std::int64_t last, std::int64_t log_every, double minutes)
    : form_(form),
      run_(run),
      last_(last),
      log_every_(log_every),
      first_step_(run.steps_done()),
      minutes_(minutes),
      start_(std::chrono::steady_clock::now()) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double Progress::tokens_per_second() const {
  const auto steps = static_cast<double>(run_.steps_done() - first_step_);
  return steps * static_cast<double>(run_.tokens_a_step()) / std::max(seconds(), 1e-9);
}

double Progress::seconds_left() const {
  const auto done = static_cast<double>(run_.steps_done() - first_step_);
  const auto left = static_cast<double>(last_ - run_.steps_done());
  const double by_steps = seconds() / std::max(done, 1.0) * left;
  return minutes_ > 0 ? std::min(by_steps, 60 * minutes_ - seconds()) : by_steps;
}

// A bar where the terminal is wide enough, and as much as fits: the step first, then the time left, losses, and rate.
std::string Progress::bar_text(const Trainer::Step& step, std::size_t columns) const {
  constexpr std::size_t for_text = 70, least = 6, most = 22;
  std::vector<StatusPart> parts{{formatted("{}/{}", run_.steps_done(), last_), 5},
                                {formatted("loss {:.3f}", step.loss), 3}};
  if (!run_.validations().empty()) {
    parts.push_back({formatted("validation {:.3f}", run_.validations().back().second), 2});
  }
  parts.push_back({formatted("{:.0f} tokens/s", tokens_per_second()), 1});
  parts.push_back({duration_text(seconds_left()) + " left", 4});
  if (columns < for_text + least) return fitting(parts, columns);
  const std::size_t width = std::min(columns - for_text, most);
  const double part = static_cast<double>(run_.steps_done()) / static_cast<double>(last_);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(width - 2));
  const std::string bar = "[" + std::string(full, '#') + std::string(width - 2 - full, '.') + "] ";
  return bar + fitting(parts, columns - bar.size());
}

std::string Progress::line_text(const Trainer::Step& step) const {
  std::string text = formatted("step {:>6}  loss {:.4f}", run_.steps_done(), step.loss);
  if (step.validation) text += formatted("  validation {:.4f}", *step.validation);
  return text + formatted("  norm {:.2f}  rate {:.2e}  {:.0f} tokens/s  {} left\n", step.norm, step.rate,
                          tokens_per_second(), duration_text(seconds_left()));
}

std::string Progress::skipped_text(const Trainer::Step& step) const {
  if (form_ == Form::json) {
    const Json json{
        {"step", step.number}, {"skipped", true}, {"loss", json_number(step.loss)}, {"norm", json_number(step.norm)}};
    return json.dump() + "\n";
  }
  return formatted("step {:>6}  skipped: loss {}, gradient norm {}\n", step.number, step.loss, step.norm);
}

std::string Progress::json_text(const Trainer::Step& step) const {
  Json json{{"step", run_.steps_done()},
            {"loss", json_number(step.loss)},
            {"norm", json_number(step.norm)},
            {"rate", step.rate},
            {"tokens_per_second", std::round(tokens_per_second())},
            {"seconds", seconds()},
            {"seconds_left", seconds_left()}};
  if (step.validation) {
    json["validation"] = json_number(*step.validation);
    json["lowest"] = {{"step", lowest_validation(run_)->first},
                      {"validation", json_number(lowest_validation(run_)->second)}};
    if (begins_to_overfit(run_)) json["overfitting"] = true;
  }
  return json.dump() + "\n";
}

std::string Progress::overfitting_text() const {
  const auto [best, loss] = *lowest_validation(run_);
  return fitted(
      formatted("step {:>6}  overfitting: the validation loss was lowest at step {}, {:.4f}, and the training "
                "loss falls on, so that the text is learned by heart\n",
                run_.steps_done(), best, loss),
      STDERR_FILENO);
}

void Progress::show(const Trainer::Step& step) {
  if (!step.finite()) {
    finish();
    form_ == Form::json ? write_stdout(skipped_text(step)) : write_stderr(skipped_text(step));
    return;
  }
  const bool overfits = step.validation && form_ != Form::json && begins_to_overfit(run_);
  if (overfits) {
    finish();
    write_stderr(overfitting_text());
  }
  if (form_ == Form::bar) {
    line_.show(bar_text(step, StatusLine::room()));
    return;
  }
  const bool first = run_.steps_done() == first_step_ + 1;
  if (!first && run_.steps_done() != last_ && !step.validation && run_.steps_done() % log_every_ != 0) return;
  if (form_ == Form::json) {
    write_stdout(json_text(step));
  } else {
    write_stderr(line_text(step));
  }
}

void Progress::finish() { line_.finish(); }

}  // namespace attn::tool
