// The steps of attention, in the order in which they are taken: the one list of their names, with what reports, figures
// and the command need to know of each.
#pragma once

#include <span>
#include <string_view>

namespace attn {

enum class StepKind {
  tokens,   // (t, d): a row for each token
  heads,    // (h, t, d): a vector for each token of each head
  scores,   // (h, tq, tk), up to what softmax takes
  weights,  // (h, tq, tk), from softmax on
};

struct Step {
  std::string_view name;
  StepKind kind;
  bool of_keys;  // a row for each key, not for each query
  std::string_view title, meaning;

  bool pairs() const noexcept { return kind == StepKind::scores || kind == StepKind::weights; }
};

std::span<const Step> known_steps() noexcept;
// The step of that name, or null where there is none.
const Step* find_step(std::string_view name) noexcept;

// The scores that softmax takes: the last of their kind that has(name) says is there; empty for none.
template <class Has>
std::string_view softmax_input(Has&& has) {
  std::string_view last;
  for (const Step& step : known_steps()) {
    if (step.kind == StepKind::scores && has(step.name)) last = step.name;
  }
  return last;
}

}  // namespace attn
