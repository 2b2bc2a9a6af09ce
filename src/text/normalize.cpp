#include "text/normalize.hpp"

#include <algorithm>

#include "text/nfc.hpp"

namespace attn::text {
namespace {

// Bytes of the first piece of `text`, which is not empty.
std::size_t first_length(std::string_view text, const Splitter& step) {
  switch (step.kind) {
    case Splitter::Kind::pattern:
      return piece_length(text, *step.pattern);
    case Splitter::Kind::digits:
      return digits_length(text, step.together);
    case Splitter::Kind::after:
      return std::min(text.find(step.literal), text.size() - step.literal.size()) + step.literal.size();
    case Splitter::Kind::metaspace:
      return step.together ? text.size() : std::min(text.find(kBlank, 1), text.size());
    case Splitter::Kind::blank_before:
      break;
  }
  return text.size();
}

// What is put before the pieces, where something is.
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

}  // namespace

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

std::string normalized(std::string_view text, std::span<const Normalizer> steps) {
  std::string result(text);
  for (const Normalizer& step : steps) {
    if (step.kind == Normalizer::Kind::nfc) result = nfc(result);
    if (step.kind == Normalizer::Kind::replace) result = replaced_all(result, step.from, step.to);
    if (step.kind == Normalizer::Kind::prepend && !result.empty()) result.insert(0, step.to);
  }
  return result;
}

void split(std::string_view text, bool at_start, std::span<const Splitter> steps,
           const std::function<void(std::string_view)>& take) {
  if (text.empty()) return;
  if (steps.empty()) return take(text);
  const Splitter& step = steps.front();
  std::string own;
  if (step.kind == Splitter::Kind::metaspace || step.kind == Splitter::Kind::blank_before) {
    own = changed(text, at_start, step);
    text = own;
  }
  while (!text.empty()) {
    const std::size_t length = first_length(text, step);
    split(text.substr(0, length), at_start, steps.subspan(1), take);
    text.remove_prefix(length);
    at_start = false;
  }
}

}  // namespace attn::text
