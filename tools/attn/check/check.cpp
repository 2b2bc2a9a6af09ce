#include "check/check.hpp"

#include <array>
#include <string_view>

#include "check/printed.hpp"
#include "check/results.hpp"

namespace attn::check {
namespace {

struct Notebook {
  std::string_view name;
  std::string_view printed;
  void (*compute)(Results&);
};

constexpr std::array<Notebook, 5> notebooks{{
    {"000",
#include "check/printed/000.inc"
     , notebook_000},
    {"001",
#include "check/printed/001.inc"
     , notebook_001},
    {"002",
#include "check/printed/002.inc"
     , notebook_002},
    {"003",
#include "check/printed/003.inc"
     , notebook_003},
    {"004",
#include "check/printed/004.inc"
     , notebook_004},
}};

// A printed entry without a computed value fails, and so does a computed one that is printed nowhere.
std::vector<Comparison> compare_all(const Notebook& notebook, const Results& results) {
  std::vector<Comparison> rows;
  auto computed = results.values();
  for (const Printed& printed : parse_printed(notebook.printed)) {
    Comparison row;
    row.detail = "not computed";
    for (auto it = computed.begin(); it != computed.end(); ++it) {
      if (it->first != printed.what) continue;
      row = compare(printed, it->second);
      computed.erase(it);
      break;
    }
    row.notebook = notebook.name;
    row.what = printed.what;
    rows.push_back(row);
  }
  for (const auto& [what, value] : computed) {
    rows.push_back({std::string(notebook.name), what, 0, 0, false, "printed nowhere"});
  }
  return rows;
}

}  // namespace

std::vector<Comparison> run(const Recipe& recipe) {
  std::vector<Comparison> all;
  for (const Notebook& notebook : notebooks) {
    Results results(recipe);
    notebook.compute(results);
    for (Comparison& row : compare_all(notebook, results)) all.push_back(std::move(row));
  }
  return all;
}

}  // namespace attn::check
