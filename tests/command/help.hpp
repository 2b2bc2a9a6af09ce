// Reads text back that the command prints: its layout; of --help, verbs, options, descriptions, examples.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace attn::test {

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// One column a code point.
inline std::ptrdiff_t columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

// A text to be read: its lines fit, one blank line parts its paragraphs, and its last line ends it.
inline void expect_layout(const std::string& text) {
  for (const std::string& line : lines_of(text)) EXPECT_LE(columns(line), 80) << line;
  EXPECT_FALSE(text.starts_with("\n") || text.ends_with("\n\n") || text.find("\n\n\n") != std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\n")) << text;
}

inline std::vector<std::string> examples_of(const std::string& help) {
  std::vector<std::string> examples;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (inside && line.starts_with("  ")) examples.push_back(line.substr(2));
    inside = line == "Examples:" || (inside && line.starts_with("  "));
  }
  return examples;
}

// Every verb, as the command itself lists them.
inline std::vector<std::string> verbs_of(const std::string& help) {
  std::vector<std::string> verbs;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (inside && line.starts_with("  ") && line[2] != ' ') verbs.push_back(line.substr(2, line.find(' ', 2) - 2));
    inside = line == "Verbs:" || (inside && line.starts_with("  "));
  }
  return verbs;
}

// Every option's first long name, with what is told of it on one line.
inline std::vector<std::pair<std::string, std::string>> described(const std::string& help) {
  constexpr std::size_t column = 24;
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string& line : lines_of(help)) {
    if (line.starts_with("Examples:")) break;
    if (line.starts_with("  -")) {
      const std::size_t begin = line.find("--");
      options.emplace_back(line.substr(begin, line.find_first_of(" ,", begin) - begin), "");
      const std::size_t gap = line.find("  ", begin), what = line.find_first_not_of(' ', gap);
      if (gap != std::string::npos && what != std::string::npos) options.back().second = line.substr(what);
    } else if (line.starts_with(std::string(column, ' ')) && !options.empty()) {
      std::string& what = options.back().second;
      what += (what.empty() ? "" : " ") + line.substr(column);
    }
  }
  return options;
}

// Returns all names of all options, such as --colours and --colors.
inline std::vector<std::string> options_of(const std::string& help) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(help)) {
    if (!line.starts_with("  -")) continue;
    std::istringstream left(line.substr(2, line.find(' ', 2) - 2));
    for (std::string name; std::getline(left, name, ',');) names.push_back(name);
  }
  return names;
}

}  // namespace attn::test
