#include "common/command_line.hpp"

#include <string_view>

#include "report/utf8.hpp"

namespace attn::tool {
namespace {

std::string& stored() {
  static std::string line;
  return line;
}

std::string quoted(std::string_view word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+.,:/@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) return std::string(word);
  std::string text = "'";
  for (const char c : word) text.append(c == '\'' ? "'\\''" : std::string(1, c));
  return text.append("'");
}

}  // namespace

void set_command_line(std::span<char* const> arguments) {
  std::string line = "attn";  // however the program was reached
  for (std::size_t i = 1; i < arguments.size(); ++i) line.append(" ").append(quoted(arguments[i]));
  stored() = valid_utf8(line);
}

const std::string& command_line() { return stored(); }

}  // namespace attn::tool
