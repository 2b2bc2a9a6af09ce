// A line of standard error that is written over while work goes on, and that always fits the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attn::tool {

class StatusLine {
 public:
  StatusLine() = default;
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { finish(); }

  // Columns that a text may have now: one less than the terminal's, which some terminals wrap at.
  static std::size_t room() noexcept;
  // In place of the text before; what does not fit is cut off, and "…" ends it.
  void show(std::string_view text);
  // Leaves an empty line where the text was.
  void clear();
  // Leaves the text, and begins a new line below it.
  void finish();

 private:
  std::size_t shown_ = 0;  // columns of the text now on the terminal
};

// A part of a status line, and how much it matters: parts of lower importance are left out first.
struct StatusPart {
  std::string text;
  int importance = 0;
};

// Those parts that fit into the columns, in their order, with two blanks between them.
std::string fitting(const std::vector<StatusPart>& parts, std::size_t columns);

}  // namespace attn::tool
