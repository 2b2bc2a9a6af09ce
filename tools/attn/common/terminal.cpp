#include "common/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "attn/print.hpp"
#include "common/format.hpp"
#include "core/escape.hpp"
#include "io/output_file.hpp"
#include "report/figure/text.hpp"

namespace attn::tool {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

constexpr std::string_view kBeforeLabel = "  # ";

// Labels are cut where a line would have more than `columns`.
std::string with_labels(const Tensor& tensor, std::span<const std::string> labels, const PrintOptions& options,
                        std::size_t columns = std::string::npos) {
  const std::string text = to_string(tensor, options);
  // The rows that are shown: all, or the first and the last few.
  const std::size_t edge = static_cast<std::size_t>(options.edge_items);
  const bool gap = tensor.numel() > options.threshold && labels.size() > 2 * edge;
  const std::size_t shown = gap ? 2 * edge : labels.size();
  std::vector<std::string> lines = lines_of(text);
  std::size_t row = 0;
  for (std::string& line : lines) {
    if (line.find(']') == std::string::npos) continue;  // a row may take several lines, and this is not its last
    const std::size_t index = gap && row % shown >= edge ? labels.size() - shown + row % shown : row % shown;
    line.append(kBeforeLabel);
    const std::size_t room = columns - std::min(width_of(line), columns);
    line.append(figure::shortened(escaped(labels[index]), std::min(room, kLongestLabel)));
    ++row;
  }
  return joined(lines, "\n");
}

// As width_of(), without codes of style.
std::size_t shown_width(std::string_view text) noexcept {
  std::size_t width = width_of(text);
  for (std::size_t at = text.find('\x1b'); at != std::string_view::npos; at = text.find('\x1b', at + 1)) {
    width -= std::min(text.find('m', at), text.size() - 1) + 1 - at;
  }
  return width;
}

// The first word of a text with the blanks before it, and the next one too where the first is an operator.
std::string_view next_part(std::string_view text) {
  constexpr std::string_view operators[]{"+", "-", "·", "/", "=", "→"};
  const auto end_of_word = [&](std::size_t from) {
    return std::min(text.find(' ', std::min(text.find_first_not_of(' ', from), text.size())), text.size());
  };
  const std::size_t start = std::min(text.find_first_not_of(' '), text.size()), end = end_of_word(0);
  const bool joins = std::ranges::find(operators, text.substr(start, end - start)) != std::end(operators);
  return text.substr(0, joins ? end_of_word(end) : end);
}

// A line in several ones.
std::string broken(std::string_view line, std::size_t columns, std::size_t hanging) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::string result(indent, ' ');
  std::size_t column = indent;
  for (line.remove_prefix(indent); !line.empty();) {
    std::string_view part = next_part(line);
    line.remove_prefix(part.size());
    if (column > indent && column + shown_width(part) > columns) {
      result.append("\n").append(indent + hanging, ' ');
      column = indent + hanging;
      part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    }
    result.append(part);
    column += shown_width(part);
  }
  return result;
}

std::size_t widest_line(std::string_view text) {
  std::size_t widest = 0;
  for (const std::string& line : lines_of(text)) widest = std::max(widest, width_of(line));
  return widest;
}

}  // namespace

void write_stdout(std::string_view text) { io::OutputFile("-", "attn").write(text); }

void write_stderr(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t done = ::write(STDERR_FILENO, text.data(), text.size());
    if (done >= 0) text.remove_prefix(static_cast<std::size_t>(done));
    if (done < 0 && errno != EINTR) return;
  }
}

Style Style::of_stdout() { return of_stdout("auto"); }

Style Style::of_stdout(std::string_view when) {
  if (when == "256") return Style(figure::Depth::palette);
  if (when == "24bit") return Style(figure::Depth::full);
  const std::string_view term = environment("TERM"), depth = environment("COLORTERM");
  const bool welcome = isatty(STDOUT_FILENO) && environment("NO_COLOR").empty() && !term.empty() && term != "dumb";
  if (when == "never" || (when == "auto" && !welcome)) return Style(figure::Depth::none);
  return Style(depth == "truecolor" || depth == "24bit" ? figure::Depth::full : figure::Depth::palette);
}

std::size_t terminal_width(int descriptor) noexcept {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kColumns;
  return size.ws_col;
}

std::size_t text_columns() noexcept { return std::clamp<std::size_t>(terminal_width(STDOUT_FILENO), 20, kColumns); }

std::string fitted(std::string_view text, int descriptor, std::size_t hanging) {
  if (isatty(descriptor) == 0) return std::string(text);
  const std::size_t columns = terminal_width(descriptor);
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) {
    if (shown_width(line) > columns) line = broken(line, columns, hanging);
  }
  return joined(lines, "\n");
}

std::string Style::wrap(std::string_view code, std::string_view text) const {
  return coloured() ? formatted("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string Style::heading(std::string_view text) const { return wrap("1;36", text); }
std::string Style::strong(std::string_view text) const { return wrap("1", text); }
std::string Style::faint(std::string_view text) const { return wrap("2", text); }

std::size_t width_of(std::string_view text) noexcept { return figure::columns_of(text); }

std::string padded(std::string_view text, std::size_t width) {
  std::string result(text);
  result.append(width - std::min(width, width_of(text)), ' ');
  return result;
}

std::string heatmap(const Tensor& weights, const std::vector<std::string>& tokens, const Style& style,
                    const Tensor& keep) {
  if (!style.coloured()) return {};
  return figure::terminal_heatmap(weights, {.tokens = tokens, .keep = keep},
                                  {.columns = text_columns(), .depth = style.depth()});
}

std::string labelled(const Tensor& tensor, std::span<const std::string> labels) {
  const std::size_t columns = text_columns();
  PrintOptions options{.line_width = static_cast<int>(columns)};
  // PyTorch's lines may end with brackets past their width; where they are its lines no more, they need not.
  if (columns < kColumns) options.line_width -= static_cast<int>(tensor.rank()) + 1;
  if (labels.empty() || tensor.rank() < 2) return to_string(tensor, options);
  const std::string whole = with_labels(tensor, labels, options);
  if (widest_line(whole) <= columns) return whole;
  std::size_t longest = 0;
  for (const std::string& label : labels) longest = std::max(longest, std::min(width_of(label), kLongestLabel));
  longest += width_of(kBeforeLabel);
  options.line_width -= static_cast<int>(std::min(longest, columns / 2)) + 2;  // "])" may stand between
  return with_labels(tensor, labels, options, columns);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  if (size != 0 && (size < 5e-5 || size >= 1e6)) return formatted("{:.3e}", value);
  const std::string text = formatted("{:.4f}", value);
  return text == "-0.0000" ? "0.0000" : text;
}

std::string vector_text(std::span<const double> values) {
  constexpr std::size_t shown = 5;
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text.append(", ");
    if (values.size() > shown && i == 3) {
      text.append("…, ");
      i = values.size() - 1;
    }
    text.append(number_text(values[i]));
  }
  return text.append("]");
}

std::vector<double> values_of(const Tensor& row) {
  const Tensor wide = row.to(DType::f64).contiguous();
  const double* first = wide.data<double>();
  return {first, first + wide.numel()};
}

}  // namespace attn::tool
