#include "common/status_line.hpp"

#include <unistd.h>

#include <algorithm>

#include "common/terminal.hpp"
#include "report/figure/text.hpp"

namespace attn::tool {
namespace {

constexpr std::size_t kGap = 2;

}  // namespace

std::size_t StatusLine::room() noexcept { return std::max<std::size_t>(terminal_width(STDERR_FILENO), 2) - 1; }

void StatusLine::show(std::string_view text) {
  const std::size_t columns = room();
  const std::string part = figure::shortened(text, columns);
  // Blanks over what stood there, as a terminal that knows no escape codes needs them.
  write_stderr("\r" + padded(part, std::min(shown_, columns)));
  shown_ = width_of(part);
}

void StatusLine::clear() {
  if (shown_ == 0) return;
  show("");
  write_stderr("\r");
}

void StatusLine::finish() {
  if (shown_ > 0) write_stderr("\n");
  shown_ = 0;
}

std::string fitting(const std::vector<StatusPart>& parts, std::size_t columns) {
  std::vector<const StatusPart*> chosen;
  for (const StatusPart& part : parts) chosen.push_back(&part);
  const auto width = [&] {
    std::size_t total = 0;
    for (const StatusPart* part : chosen) total += width_of(part->text) + (total == 0 ? 0 : kGap);
    return total;
  };
  while (chosen.size() > 1 && width() > columns) {
    chosen.erase(std::ranges::min_element(chosen, {}, &StatusPart::importance));
  }
  std::string text;
  for (const StatusPart* part : chosen) text.append(text.empty() ? 0 : kGap, ' ').append(part->text);
  return text;
}

}  // namespace attn::tool
