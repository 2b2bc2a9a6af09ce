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

}  // namespace

Found losses_of_both(const Reading& one, const Edits& edits, const Reading& other) {
  for (const auto& [text, flag] : {std::pair{&one, "--text"}, std::pair{&other, "--other-text"}}) {
    if (text->ids.numel() < 2) refuse(flag, "a text of at least two tokens, for its losses", "one");
  }
  const Tensor first = losses_of(one, edits), second = losses_of(other, edits);
  Found found = titled("Loss of each token of both texts, in nats: -log of the chance that the model gave it", one);
  const Int most = std::max(first.numel(), second.numel());
  Table table{{"", "text", "loss", "other text", "loss"}};
  const auto row = [&](std::string place, const std::vector<std::string>& here, const std::vector<std::string>& there) {
    table.push_back({std::move(place), here[0], here[1], there[0], there[1]});
  };
  for (Int i = 0; i < most; ++i) row(std::to_string(i + 2), cells(one, first, i), cells(other, second, i));
  const double mean = mean_of(first), other_mean = mean_of(second);
  row("", {"mean", formatted("{:.4f}", mean)}, {"mean", formatted("{:.4f}", other_mean)});
  tell(found, table, "><><>");
  found.json["losses"] = json_values(first), found.json["loss"] = json_number(mean);
  found.json["tokens_other"] = other.tokens, found.json["ids_other"] = json_values(other.ids);
  found.json["losses_other"] = json_values(second), found.json["loss_other"] = json_number(other_mean);

  const Tensor both = Tensor::zeros({2, most}, DType::f64), keep = Tensor::zeros({2, most}, DType::boolean);
  for (const auto& [row_of, losses] : {std::pair{0, first}, std::pair{1, second}}) {
    both.select(0, row_of).slice(0, 0, losses.numel()).copy_from(losses);
    keep.select(0, row_of).slice(0, 0, losses.numel()).fill(1);
  }
  std::vector<std::string> places = numbers(most + 1);
  places.erase(places.begin());  // the first token has no loss
  draw_matrix(found, both, "texts", "tokens", "loss", {"text", "other text"}, std::move(places));
  found.figure.keep = keep;  // nothing is behind the end of the shorter text
  return found;
}

}  // namespace attn::tool
