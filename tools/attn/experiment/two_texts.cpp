// The losses of two texts beside each other.
#include <algorithm>
#include <cmath>

#include "experiment/tell.hpp"

namespace attn::tool {
namespace {

using Int = std::int64_t;

Tensor losses_of(const Reading& one, const Edits& edits) {
  return token_losses(one.lm().forward(one.ids, {.edits = edits}), one.ids);
}

// The cells of one row: a token and its loss, or nothing behind the end of a text.
std::vector<std::string> cells(const Reading& one, const Tensor& losses, Int at) {
  if (at >= losses.numel()) return {"", ""};
  return {in_quotes(one.tokens[static_cast<std::size_t>(at) + 1]), formatted("{:.4f}", losses.at({at}))};
}

void tell_both(Found& found, const Reading& one, const Tensor& first, const Reading& other, const Tensor& second) {
  const bool alike = first.numel() == second.numel();
  Table table{{"", "text", "loss", "other text", "loss"}};
  if (alike) table[0].emplace_back("difference");
  const auto row = [&](std::string place, const std::vector<std::string>& here, const std::vector<std::string>& there,
                       const auto& added) {
    table.push_back({std::move(place), here[0], here[1], there[0], there[1]});
    if (alike) table.back().push_back(signed_text(added()));
  };
  for (Int i = 0; i < std::max(first.numel(), second.numel()); ++i) {
    row(std::to_string(i + 2), cells(one, first, i), cells(other, second, i),
        [&] { return second.at({i}) - first.at({i}); });
  }
  const double mean = mean_of(first), other_mean = mean_of(second);
  row("", {"mean", formatted("{:.4f}", mean)}, {"mean", formatted("{:.4f}", other_mean)},
      [&] { return other_mean - mean; });
  tell(found, table, alike ? "><><>>" : "><><>");
}

// The tokens that have losses: all but the first.
std::vector<std::string> places(Int losses) {
  std::vector<std::string> all = numbers(losses + 1);
  all.erase(all.begin());
  return all;
}

void draw_difference(Found& found, const Tensor& first, const Tensor& second) {
  draw_matrix(found, difference(second, first).unsqueeze(0).contiguous(), "loss", "tokens", "loss", {"difference"},
              places(first.numel()));
  found.figure.scale = figure::Scale::diverging;
}

void draw_both(Found& found, const Tensor& first, const Tensor& second) {
  const Int most = std::max(first.numel(), second.numel());
  const Tensor both = Tensor::zeros({2, most}, DType::f64), keep = Tensor::zeros({2, most}, DType::boolean);
  for (const auto& [row, losses] : {std::pair{0, first}, std::pair{1, second}}) {
    both.select(0, row).slice(0, 0, losses.numel()).copy_from(losses);
    keep.select(0, row).slice(0, 0, losses.numel()).fill(1);
  }
  draw_matrix(found, both, "texts", "tokens", "loss", {"text", "other text"}, places(most));
  found.figure.keep = keep;  // nothing is behind the end of the shorter text
}

}  // namespace

Found losses_of_both(const Reading& one, const Edits& edits, const Reading& other) {
  for (const Reading* text : {&one, &other}) {
    if (text->ids.numel() < 2) refuse(text->flag, "a text of at least two tokens, for its losses", "one");
  }
  const Tensor first = losses_of(one, edits), second = losses_of(other, edits);
  const bool alike = first.numel() == second.numel();
  Found found = titled(alike ? "Loss of each token of both texts, in nats, and what the other text adds"
                             : "Loss of each token of both texts, in nats: -log of the chance that the model gave it",
                       one);
  tell_both(found, one, first, other, second);
  found.json["losses"] = json_values(first), found.json["loss"] = json_number(mean_of(first));
  found.json["tokens_other"] = other.tokens, found.json["ids_other"] = json_values(other.ids);
  found.json["losses_other"] = json_values(second), found.json["loss_other"] = json_number(mean_of(second));
  alike ? draw_difference(found, first, second) : draw_both(found, first, second);
  return found;
}

}  // namespace attn::tool
