// Two passes side by side: one model with edits and without, or two models, or one on two texts.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "experiment/measures.hpp"
#include "experiment/tell.hpp"

namespace attn::tool {
namespace {

using Int = std::int64_t;

// Holds what is compared, and its names; `after` is undefined where there is one pass alone.
struct Pair {
  Tensor before, after;
  const char *first, *second;
};

// The logits of both passes: of the other model or text where there is one, else with edits where there are any.
Pair logits_of(const Reading& one, const Edits& edits, const Reading* other) {
  Pair pair{one.lm().forward(one.ids, {.edits = other ? edits : Edits{}}), {}, "as it is", "changed"};
  if (other) {
    pair.after = other->lm().forward(other->ids, {.edits = edits}), pair.first = "the first", pair.second = "the other";
  } else if (!edits.empty()) {
    pair.after = one.lm().forward(one.ids, {.edits = edits});
  }
  return pair;
}

Pair of_each(Pair pair, const std::function<Tensor(const Tensor&)>& what) {
  pair.before = what(pair.before);
  if (pair.after.defined()) pair.after = what(pair.after);
  return pair;
}

void tell_losses(Found& found, const Reading& one, const Pair& losses) {
  const bool two = losses.after.defined();
  Table table{{"", "token", losses.first}};
  if (two) table.front().insert(table.front().end(), {losses.second, "difference"});
  const auto row = [&](const std::string& place, const std::string& token, double a, double b) {
    table.push_back({place, token, formatted("{:.4f}", a)});
    if (two) table.back().insert(table.back().end(), {formatted("{:.4f}", b), signed_text(b - a)});
  };
  for (Int i = 0; i < losses.before.numel(); ++i) {
    row(std::to_string(i + 2), in_quotes(one.tokens[static_cast<std::size_t>(i) + 1]), losses.before.at({i}),
        two ? losses.after.at({i}) : 0);
  }
  const double mean = mean_of(losses.before), other = two ? mean_of(losses.after) : 0;
  row("", "mean", mean, other);
  tell(found, table, two ? "><>>>" : "><>");
  found.json["losses"] = json_values(losses.before), found.json["loss"] = json_number(mean);
  if (two) found.json["losses_changed"] = json_values(losses.after), found.json["loss_changed"] = json_number(other);
}

std::vector<Int> likeliest(const Tensor& logs, Int count) {
  std::vector<Int> order(static_cast<std::size_t>(logs.numel()));
  std::iota(order.begin(), order.end(), Int{0});
  const auto end = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  const double* value = logs.data<double>();
  std::partial_sort(order.begin(), end, order.end(),
                    [&](Int a, Int b) { return value[a] > value[b] || (value[a] == value[b] && a < b); });
  order.erase(end, order.end());
  return order;
}

// The likeliest of both.
std::vector<Int> likeliest(const Pair& chances, Int count) {
  std::vector<Int> ids = likeliest(chances.before, count);
  for (const Int id : chances.after.defined() ? likeliest(chances.after, count) : std::vector<Int>{}) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

// `chances`: log probabilities.
void tell_next(Found& found, const Reading& one, const Pair& chances, const std::vector<Int>& ids) {
  const bool two = chances.after.defined();
  Table table{{"token", "id", chances.first}};
  if (two) table.front().emplace_back(chances.second);
  for (const Int id : ids) {
    const double a = std::exp(chances.before.at({id})), b = two ? std::exp(chances.after.at({id})) : 0;
    table.push_back({one.token(id), std::to_string(id), formatted("{:.4f}", a)});
    if (two) table.back().push_back(formatted("{:.4f}", b));
    Json entry{{"id", id}, {"token", text_in_json(one, id)}, {"chance", json_number(a)}};
    if (two) entry["chance_changed"] = json_number(b);
    found.json["next"].push_back(entry);
  }
  tell(found, table, two ? "<>>>" : "<>>");
}

// Chances are as far apart as logits, in logarithms.
void tell_logit_difference(Found& found, const Reading& one, const Pair& chances, TokenPair of) {
  const auto less = [&](const Tensor& logs) { return logs.at({of.a}) - logs.at({of.b}); };
  const bool two = chances.after.defined();
  const double before = less(chances.before), after = two ? less(chances.after) : 0;
  Table table{{"logits", chances.first}, {one.token(of.a) + " less " + one.token(of.b), signed_text(before)}};
  found.json["logit_difference"] = json_number(before);
  if (two) {
    table[0].emplace_back(chances.second), table[1].push_back(signed_text(after));
    found.json["logit_difference_changed"] = json_number(after);
  }
  found.lines.emplace_back();
  tell(found, table, two ? "<>>" : "<>");
}

// The three scores of the heads that differ most.
void tell_scores(Found& found, const Reading& one, const char* name, const Tensor& before, const Tensor& after) {
  Table table{{"head", name, "the other", "difference"}};
  const Tensor change = difference(after, before);
  for (const auto [l, h] : largest(change, 3, one.lm().config())) {
    table.push_back({name_of(l, h), formatted("{:.4f}", before.at({l, h})), formatted("{:.4f}", after.at({l, h})),
                     signed_text(change.at({l, h}))});
  }
  tell(found, table, "<>>>");
}

Tensor last_chances(const Tensor& logits) { return log_probabilities(logits.select(0, logits.size(0) - 1)); }

// The tokens that have losses: all but the first.
std::vector<std::string> tokens_with_losses(const Reading& one) {
  std::vector<std::string> names;
  for (Int i = 1; i < one.ids.numel(); ++i) names.push_back(one.label(one.ids.data<Int>()[i]));
  return names;
}

void draw_loss_differences(Found& found, const Reading& one, const Tensor& differences) {
  draw_matrix(found, differences.unsqueeze(0).contiguous(), "loss", "tokens", "loss", {"difference"},
              tokens_with_losses(one));
  found.figure.scale = figure::Scale::diverging;
}

// A row for each pass, a cell for each of its `values`.
void draw_passes(Found& found, const Pair& values, const char* what, std::vector<std::string> tokens) {
  std::vector<std::string> names{values.first};
  std::vector<Tensor> passes{values.before};
  if (values.after.defined()) names.emplace_back(values.second), passes.push_back(values.after);
  const Tensor rows = Tensor::empty({std::ssize(passes), std::ssize(tokens)}, DType::f64);
  for (Int i = 0; i < rows.size(0); ++i) rows.select(0, i).copy_from(passes[static_cast<std::size_t>(i)]);
  draw_matrix(found, rows, "passes", "tokens", what, std::move(names), std::move(tokens));
}

// `chances`: log probabilities.
void draw_next(Found& found, const Reading& one, const Pair& chances, const std::vector<Int>& ids) {
  const auto of = [&](const Tensor& logs) {
    Tensor some = Tensor::empty({std::ssize(ids)}, DType::f64);
    for (Int i = 0; i < some.numel(); ++i) some.set({i}, std::exp(logs.at({ids[static_cast<std::size_t>(i)]})));
    return some;
  };
  std::vector<std::string> tokens;
  for (const Int id : ids) tokens.push_back(one.label(id));
  draw_passes(found, of_each(chances, of), "chance", std::move(tokens));
}

constexpr const char* kLosses = "Loss of each token, in nats: -log of the chance that the model gave it";
constexpr const char* kTwoLosses = "Loss of each token, in nats, and what the other model adds to it";

}  // namespace

Found losses(const Reading& one, const Edits& edits, const Reading* other) {
  const auto of = [&](const Tensor& logits) { return token_losses(logits, one.ids); };
  Found found = titled(kLosses, one);
  const Pair both = of_each(logits_of(one, edits, other), of);
  tell_losses(found, one, both);
  draw_passes(found, both, "loss", tokens_with_losses(one));
  return found;
}

Found next_tokens(const Reading& one, const Edits& edits, const Reading* other, Int count,
                  const std::vector<Int>& tokens) {
  Found found = titled("Chances of the next token", one);
  const Pair chances = of_each(logits_of(one, edits, other), last_chances);
  const std::vector<Int> ids = tokens.empty() ? likeliest(chances, count) : tokens;
  tell_next(found, one, chances, ids);
  draw_next(found, one, chances, ids);
  if (tokens.size() == 2) tell_logit_difference(found, one, chances, {tokens[0], tokens[1]});
  return found;
}

Found side_by_side(const Reading& one, const Edits& edits, const Reading& other) {
  constexpr Int next = 5;
  Comparison both;
  if (experiment::heads_alike(one.lm().config(), other.lm().config())) {
    both = compare(one.lm(), other.lm(), one.ids, edits);
  } else {
    const Pair logits = logits_of(one, edits, &other);
    both = {.losses = token_losses(logits.before, one.ids),
            .other_losses = token_losses(logits.after, one.ids),
            .next = last_chances(logits.before),
            .other_next = last_chances(logits.after),
            .heads = {}};
  }
  Found found = titled(kTwoLosses, one);
  tell_losses(found, one, {both.losses, both.other_losses, "the first", "the other"});
  found.lines.insert(found.lines.end(), {"", "Chances of the next token"});
  const Pair chances{both.next, both.other_next, "the first", "the other"};
  tell_next(found, one, chances, likeliest(chances, next));
  found.lines.emplace_back();
  if (both.heads.defined()) {
    found.lines.emplace_back("How much each head gives otherwise: |z' - z| / |z|");
    tell_largest(found, one, both.heads, "change");
    found.json["changes"] = json_values(both.heads);
  } else {
    const std::string here = experiment::heads_in_words(one.lm().config()),
                      there = experiment::heads_in_words(other.lm().config());
    found.lines.push_back(formatted("Heads are not compared: here are {}, and in the other {}{}.", here, there,
                                    here == there ? " of another kind or size" : ""));
  }
  draw_loss_differences(found, one, difference(both.other_losses, both.losses));
  return found;
}

Found changes(const Reading& one, const Edits& edits, const Reading* other) {
  const Tensor table = other                 ? compare(one.lm(), other->lm(), one.ids, edits).heads
                       : one.model->writes() ? head_changes(one.lm(), one.ids, edits)
                                             : head_changes(*one.model->encoder(), one.ids, edits);
  Found found =
      titled(formatted("How much each head gives otherwise{}: |z' - z| / |z|", other ? " in the other" : ""), one);
  found.json["changes"] = json_values(table);
  draw_heads(found, table, "change");
  tell_largest(found, one, table, "change");
  return found;
}

Found scored(const Reading& one, const Edits& edits, const Reading* other) {
  const HeadScores a = scores_of(one, edits);
  const HeadScores b = other ? scores_of(*other, edits) : HeadScores{};
  Found found = titled(other ? "Scores of heads in both, the text read twice; the figure shows induction's"
                             : "Scores of heads on the text, read twice; the figure shows induction",
                       one);
  for (const ScoreName& score : kScores) {
    const Tensor &first = a.*score.of, &second = b.*score.of;
    found.json[score.json] = json_values(first);
    if (other) found.json[score.json + std::string("_other")] = json_values(second);
    other ? tell_scores(found, one, score.name, first, second) : tell_largest(found, one, first, score.name, 3);
    found.lines.emplace_back();
  }
  found.lines.pop_back();
  if (other) {
    draw_differences(found, difference(b.induction, a.induction), "induction");
  } else {
    draw_heads(found, a.induction, "induction");
  }
  return found;
}

}  // namespace attn::tool
