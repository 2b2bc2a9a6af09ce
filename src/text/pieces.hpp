// A text is cut into the pieces that a model's tokens lie within.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.hpp"

namespace attn::text {

// A step of how a text is cut. What one step yields is cut by the next.
struct Splitter {
  enum class Kind {
    pattern,       // cut where a pattern is found, or with `invert` where it is not
    blank_before,  // a blank before a piece without one
    metaspace      // blanks become ▁, and `prepend` says whether one begins a piece
  } kind = Kind::pattern;
  std::shared_ptr<const Regex> pattern{};
  enum class Behavior {
    isolated,
    removed,
    merged_with_previous,
    merged_with_next,
    contiguous
  } behavior = Behavior::isolated;
  bool invert = false;
  enum class Prepend { never, first, always } prepend = Prepend::never;
};

// The pattern must be known to be one.
Splitter split_at(std::string_view pattern, Splitter::Behavior behavior = Splitter::Behavior::isolated);

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Cuts one text after the other, on memory that is kept.
class Cutter {
 public:
  using Take = std::function<void(std::string_view)>;
  explicit Cutter(std::span<const Splitter> steps) : steps_(steps) {}

  // Hands the pieces on, in order. `at_start` says that the text is the beginning of a whole.
  void cut(std::string_view text, bool at_start, const Take& take) { cut(text, at_start, 0, take); }

 private:
  void cut(std::string_view text, bool at_start, std::size_t step, const Take& take);

  std::span<const Splitter> steps_;
  std::vector<Memory> memory_;
};

}  // namespace attn::text
