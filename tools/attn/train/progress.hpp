// How a run is seen: a bar on a terminal, plain lines elsewhere, JSON lines for machines.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "attn/train.hpp"
#include "common/status_line.hpp"

namespace attn::tool {

class Progress {
 public:
  enum class Form { bar, lines, json };

  // `last` is the step that the run ends with. With `minutes` 0 there is no limit of time.
  Progress(Form form, const Trainer& run, std::int64_t last, std::int64_t log_every, double minutes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // After each step.
  void show(const Trainer::Step& step);
  // Ends the bar's line.
  void finish();
  double seconds() const;
  double tokens_per_second() const;  // of this run's steps, measurements included

 private:
  std::string bar_text(const Trainer::Step& step, std::size_t columns) const;
  std::string line_text(const Trainer::Step& step) const;
  std::string json_text(const Trainer::Step& step) const;
  std::string skipped_text(const Trainer::Step& step) const;
  std::string overfitting_text() const;
  double seconds_left() const;

  Form form_;
  const Trainer& run_;
  std::int64_t last_, log_every_, first_step_;
  double minutes_;
  std::chrono::steady_clock::time_point start_;
  StatusLine line_;
};

// The measurement with the lowest validation loss: its step, and the loss. None before the first one.
std::optional<std::pair<std::int64_t, double>> lowest_validation(const Trainer& run);

// Whether with this measurement a text begins to be learned by heart: it is the first one of which both is true, that
// the validation loss was lowest three or more measurements ago, and that the last 20 steps had a loss 2 % below that.
bool begins_to_overfit(const Trainer& run);

// "3 min 20 s", "12 s".
std::string duration_text(double seconds);

}  // namespace attn::tool
