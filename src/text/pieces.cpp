#include "text/pieces.hpp"

#include "attn/tokenizer.hpp"
#include "core/lasting.hpp"
#include "text/description.hpp"
#include "text/normalize.hpp"

namespace attn {
namespace text {
namespace {

using Behavior = Splitter::Behavior;

// This is put before the pieces, where something is.
std::string changed(std::string_view text, bool at_start, const Splitter& step) {
  if (step.kind == Splitter::Kind::blank_before) {
    std::string with_blank(text.starts_with(' ') ? 0 : 1, ' ');
    return with_blank.append(text);
  }
  std::string blanks = replaced_all(text, " ", kBlank);
  const bool wanted =
      step.prepend == Splitter::Prepend::always || (step.prepend == Splitter::Prepend::first && at_start);
  return wanted && !blanks.starts_with(kBlank) ? std::string(kBlank) + blanks : blanks;
}

// A part of a text that was found, or that lies between what was.
struct Part {
  std::size_t begin, end;
  bool found;
};

// Whether the behaviour makes one of two parts that follow each other.
bool are_joined(Behavior behavior, const Part& last, const Part& part) {
  if (behavior == Behavior::merged_with_previous) return part.found && !last.found;
  if (behavior == Behavior::merged_with_next) return !part.found && last.found;
  return behavior == Behavior::contiguous && part.found == last.found;
}

}  // namespace

Splitter split_at(std::string_view pattern, Splitter::Behavior behavior) {
  constexpr io::Origin origin{"BPETokenizer", "a pattern of attn's own"};
  return {.pattern = std::make_shared<const Regex>(pattern, origin), .behavior = behavior};
}

void Cutter::cut(std::string_view text, bool at_start, std::size_t step, const Take& take) {
  if (text.empty()) return;
  if (step == steps_.size()) return take(text);
  const Splitter& now = steps_[step];
  if (now.kind != Splitter::Kind::pattern) return cut(changed(text, at_start, now), at_start, step + 1, take);
  Part waiting{0, 0, false};  // what may still grow
  const auto hand_on = [&] {
    if (now.behavior == Behavior::removed && waiting.found) return;
    cut(text.substr(waiting.begin, waiting.end - waiting.begin), at_start && waiting.begin == 0, step + 1, take);
  };
  const auto push = [&](const Part& part) {
    const bool joined = are_joined(now.behavior, waiting, part);
    if (!joined) hand_on();
    waiting = {joined ? waiting.begin : part.begin, part.end, part.found};
  };
  if (memory_.size() < steps_.size()) memory_.resize(steps_.size());
  Search search(*now.pattern, text, memory_[step]);
  std::size_t done = 0;
  while (const auto found = search.next()) {
    if (done < found->begin) push({done, found->begin, now.invert});
    push({found->begin, found->end, !now.invert});
    done = found->end;
  }
  if (done < text.size()) push({done, text.size(), now.invert});
  hand_on();
}

}  // namespace text

std::vector<std::string_view> gpt2_pieces(std::string_view text) {
  static const text::Splitter& gpt2 = lasting([] { return text::split_at(text::kGpt2Pattern); });
  std::vector<std::string_view> pieces;
  text::Cutter(std::span(&gpt2, 1)).cut(text, true, [&](std::string_view piece) { pieces.push_back(piece); });
  return pieces;
}

}  // namespace attn
