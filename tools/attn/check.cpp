// attn check: every number that the five notebooks print, computed and compared.
#include "check/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/format.hpp"
#include "common/json.hpp"
#include "common/terminal.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

using check::Comparison;

std::ptrdiff_t passed(const std::vector<Comparison>& rows) {
  return std::count_if(rows.begin(), rows.end(), [](const Comparison& row) { return row.ok; });
}

// A name that is too long for the terminal goes on in the next lines, below its beginning.
std::string table(const std::vector<Comparison>& rows) {
  constexpr std::size_t before = 10, behind = 20, least = 12;
  std::size_t width = 0;
  for (const Comparison& row : rows) width = std::max(width, width_of(row.what));
  if (isatty(STDOUT_FILENO) != 0) {
    const std::size_t columns = terminal_width(STDOUT_FILENO);
    width = std::clamp(columns - std::min(columns, before + behind), least, std::max(width, least));
  }
  std::string text = formatted("{:<8}  {}  {:>9}\n", "notebook", padded("what", width), "worst");
  for (const Comparison& row : rows) {
    const std::string what = wrapped(split(row.what, ' '), before + width, before);
    const std::size_t first = std::min(what.find('\n'), what.size());
    text += formatted("{:<8}  {}  {:>9.1e}  {}{}\n", row.notebook, padded(what.substr(0, first), width),
                      row.worst_difference, row.ok ? "ok" : "FAILED", what.substr(first));
    if (!row.ok) text += formatted("{:<8}  {}\n", "", row.detail);
  }
  return text +
         formatted("{} passed, {} failed\n", passed(rows), static_cast<std::ptrdiff_t>(rows.size()) - passed(rows));
}

Json report(const std::vector<Comparison>& rows) {
  Json json;
  json["passed"] = passed(rows);
  json["failed"] = static_cast<std::ptrdiff_t>(rows.size()) - passed(rows);
  json["comparisons"] = Json::array();
  for (const Comparison& row : rows) {
    json["comparisons"].push_back({{"notebook", row.notebook},
                                   {"what", row.what},
                                   {"numbers", row.numbers},
                                   {"worst_difference", row.worst_difference},
                                   {"ok", row.ok},
                                   {"detail", row.detail}});
  }
  return json;
}

}  // namespace

void define_check(Verb& verb, int& status) {
  struct Flags {
    std::string layer_order, rng;
    bool no_mask = false, json = false;
  };
  const auto flags = std::make_shared<Flags>();
  verb.add_option("--layer-order ORDER", flags->layer_order,
                  "Draw the weights of every module in this order, qkv or kqv, to see which numbers change.")
      .default_is("each notebook's own")
      .one_of({"qkv", "kqv"});
  verb.add_option("--rng NAME", flags->rng,
                  "Draw every dropout in this flavour, mkl or native, to see which numbers change.")
      .default_is("each notebook's own")
      .one_of({"mkl", "native"});
  verb.add_flag("--no-mask", flags->no_mask, "Hide no later token, to see which numbers change.");
  verb.add_flag("--json", flags->json, "Print one JSON object instead of the table.");
  verb.notes(
      "Notebooks 000, 001, 002 and 004 follow the book's chapter 3, and 003 is the lecture's. The column worst is "
      "the largest difference from a printed number, whose last digit is rounded. The exit code is 0 when all digits "
      "agree, and 1 when any does not.");
  verb.examples(
      "attn check\n"
      "attn check --rng native   # which numbers depend on the flavour\n"
      "attn check --json");
  verb.callback([flags, &status] {
    check::Recipe recipe;
    if (!flags->layer_order.empty())
      recipe.layer_order = flags->layer_order == "kqv" ? LayerOrder::kqv : LayerOrder::qkv;
    if (!flags->rng.empty()) recipe.rng = dropout_flavour(flags->rng);
    recipe.mask = !flags->no_mask;
    const auto rows = check::run(recipe);
    write_stdout(flags->json ? dump(report(rows)) : table(rows));
    if (passed(rows) != static_cast<std::ptrdiff_t>(rows.size())) status = 1;
  });
}

}  // namespace attn::tool
