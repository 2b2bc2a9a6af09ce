// attn check: every number that the five notebooks print, computed and compared.
#include "check/check.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "verbs.hpp"

namespace attn::tool {
namespace {

using check::Comparison;

std::ptrdiff_t passed(const std::vector<Comparison>& rows) {
  return std::count_if(rows.begin(), rows.end(), [](const Comparison& row) { return row.ok; });
}

void print_table(const std::vector<Comparison>& rows) {
  fmt::print("{:<8}  {:<50}  {:>9}  {}\n", "notebook", "what", "worst", "");
  for (const Comparison& row : rows) {
    const std::string what = row.what.size() > 50 ? row.what.substr(0, 47) + "..." : row.what;
    fmt::print("{:<8}  {:<50}  {:>9.1e}  {}\n", row.notebook, what, row.worst_difference, row.ok ? "ok" : "FAILED");
    if (!row.ok) fmt::print("{:<8}  {}\n", "", row.detail);
  }
  fmt::print("{} passed, {} failed\n", passed(rows), static_cast<std::ptrdiff_t>(rows.size()) - passed(rows));
}

void print_json(const std::vector<Comparison>& rows) {
  nlohmann::ordered_json report;
  report["passed"] = passed(rows);
  report["failed"] = static_cast<std::ptrdiff_t>(rows.size()) - passed(rows);
  report["comparisons"] = nlohmann::ordered_json::array();
  for (const Comparison& row : rows) {
    report["comparisons"].push_back({{"notebook", row.notebook},
                                     {"what", row.what},
                                     {"numbers", row.numbers},
                                     {"worst_difference", row.worst_difference},
                                     {"ok", row.ok},
                                     {"detail", row.detail}});
  }
  fmt::print("{}\n", report.dump(2));
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  auto* verb = app.add_subcommand("check", "Every number the notebooks print, digit by digit");
  struct Flags {
    std::string layer_order, rng;
    bool no_mask = false, json = false;
  };
  const auto flags = std::make_shared<Flags>();
  verb->add_option("--layer-order", flags->layer_order,
                   "What if every module drew its weights in this order,\nqkv or kqv? Default: each notebook's own")
      ->option_text("ORDER")
      ->check(CLI::IsMember({"qkv", "kqv"}));
  verb->add_option("--rng", flags->rng,
                   "What if every dropout were of this flavour, mkl or\nnative? Default: each notebook's own")
      ->option_text("NAME")
      ->check(CLI::IsMember({"mkl", "native"}));
  verb->add_flag("--no-mask", flags->no_mask, "What if no future word were hidden?");
  verb->add_flag("--json", flags->json, "One JSON object instead of the table");
  verb->footer(
      "Exit code: 0 when all digits agree, 1 when any does not.\n\n"
      "Examples:\n"
      "  attn check\n"
      "  attn check --rng native   # which printed numbers hang on the dropout flavour\n"
      "  attn check --json");
  verb->callback([flags, &status] {
    check::Recipe recipe;
    if (!flags->layer_order.empty())
      recipe.layer_order = flags->layer_order == "kqv" ? LayerOrder::kqv : LayerOrder::qkv;
    if (!flags->rng.empty()) recipe.rng = dropout_flavour(flags->rng);
    recipe.mask = !flags->no_mask;
    const auto rows = check::run(recipe);
    flags->json ? print_json(rows) : print_table(rows);
    if (passed(rows) != static_cast<std::ptrdiff_t>(rows.size())) status = 1;
  });
}

}  // namespace attn::tool
