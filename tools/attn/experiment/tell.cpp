#include "experiment/tell.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "attn/error.hpp"
#include "core/escape.hpp"
#include "report/figure/text.hpp"

namespace attn::tool {
namespace {

using Int = std::int64_t;

// Whether names of columns that differ still do when they are cut, as terminal_heatmap() cuts them.
bool told_apart(const figure::Options& figure, std::size_t columns) {
  constexpr std::size_t longest = 14, narrowest = 3;
  std::size_t beside = 0;
  for (const std::string& row : figure.tokens)
    beside = std::max(beside, figure::columns_of(figure::label(row, longest)));
  const std::size_t room = columns - std::min(beside, columns / 3) - 2;
  const std::size_t cell = room / std::max<std::size_t>(figure.key_tokens.size(), 1);
  if (cell < narrowest) return true;  // no name is written
  std::set<std::string> whole, cut;
  for (const std::string& name : figure.key_tokens) {
    whole.insert(name);
    cut.insert(figure::shortened(figure::label(name, longest), cell - 1));
  }
  return cut.size() == whole.size();
}

}  // namespace

// A zero has no minus.
std::string signed_text(double value) { return formatted("{}{:.4f}", value < 0 ? "" : "+", value + 0.0); }

std::string in_quotes(const std::string& token) {
  constexpr std::size_t most = 18;
  std::string text = escaped(token);
  if (text.size() > most) {
    std::size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "…";
  }
  return "'" + text + "'";
}

std::string name_of(Int layer, Int head) { return formatted("{}.{}", layer + 1, head + 1); }

std::vector<std::string> numbers(Int count) {
  std::vector<std::string> names;
  for (Int i = 1; i <= count; ++i) names.push_back(std::to_string(i));
  return names;
}

void draw_matrix(Found& found, const Tensor& matrix, const char* rows, const char* columns, const char* what,
                 std::vector<std::string> row_names, std::vector<std::string> column_names) {
  found.picture = matrix;
  found.figure.rows = rows, found.figure.columns = columns, found.figure.values = what;
  found.figure.tokens = std::move(row_names), found.figure.key_tokens = std::move(column_names);
  found.figure.scale = figure::Scale::linear;
}

void draw_heads(Found& found, const Tensor& matrix, const char* what) {
  draw_matrix(found, matrix, "layers", "heads", what, numbers(matrix.size(0)), numbers(matrix.size(1)));
}

void draw_differences(Found& found, const Tensor& matrix, const char* what) {
  draw_heads(found, matrix, what);
  found.figure.scale = figure::Scale::diverging;
}

std::string picture_in_text(const Found& found, const figure::TerminalOptions& terminal) {
  if (told_apart(found.figure, terminal.columns)) {
    return figure::terminal_heatmap(found.picture, found.figure, terminal);
  }
  figure::Options named = found.figure;
  if (found.picture.size(0) > 2) {
    named.key_tokens = numbers(found.picture.size(1));
    return figure::terminal_heatmap(found.picture, named, terminal);
  }
  std::swap(named.tokens, named.key_tokens);
  std::swap(named.rows, named.columns);
  return figure::terminal_heatmap(found.picture.transpose(0, 1).contiguous(), named, terminal);
}

void tell(Found& found, const Table& table, const std::string& alignment) {
  for (std::string& line : table_lines(table, alignment)) found.lines.push_back(std::move(line));
}

std::vector<HeadAt> largest(const Tensor& matrix, std::size_t most, const LanguageModelConfig& config) {
  std::vector<HeadAt> all;
  for (Int l = 0; l < matrix.size(0); ++l) {
    for (Int h = 0; h < config.heads_of(l); ++h) all.push_back({l, h});
  }
  const auto size = [&](HeadAt at) {
    const double value = std::abs(matrix.at({at.layer, at.head}));
    return std::isnan(value) ? HUGE_VAL : value;
  };
  std::ranges::stable_sort(all, [&](HeadAt a, HeadAt b) { return size(a) > size(b); });
  all.resize(std::min(most, all.size()));
  return all;
}

void tell_largest(Found& found, const Reading& one, const Tensor& matrix, const std::string& what, std::size_t most,
                  const How& how) {
  Table table{{"head", what}};
  if (how) table.front().emplace_back();
  for (const auto [l, h] : largest(matrix, most, one.model->config())) {
    table.push_back({name_of(l, h), signed_text(matrix.at({l, h}))});
    if (how) table.back().push_back(how(l, h));
  }
  tell(found, table, how ? "<><" : "<>");
}

Tensor difference(const Tensor& after, const Tensor& before) {
  if (!(after.shape() == before.shape())) {
    throw Error(Error::Kind::shape, "experiment", "tables of one shape, " + after.shape().str(), before.shape().str());
  }
  Tensor d = after.clone();
  for (Int i = 0; i < d.numel(); ++i) d.data<double>()[i] -= before.contiguous().data<double>()[i];
  return d;
}

Tensor difference(const Tensor& after, double before) {
  return difference(after, Tensor::full(after.shape(), before, DType::f64));
}

std::string Reading::token(Int id) const {
  return has_text(id) ? in_quotes(tokenizer->decode(id)) : formatted("#{}", id);
}

std::string Reading::label(Int id) const {
  if (!has_text(id)) return token(id);
  std::string text = tokenizer->decode(id);
  for (const auto& [from, to] : {std::pair{"\n", "⏎"}, std::pair{" ", "␣"}}) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos;) text.replace(at, 1, to);
  }
  return escaped(text);
}

Json text_in_json(const Reading& reading, Int id) {
  return reading.has_text(id) ? Json(reading.tokenizer->decode(id)) : Json();
}

static Json basic(const Reading& reading) {
  Json json;
  json["tokens"] = reading.tokens;
  json["ids"] = json_values(reading.ids);
  return json;
}

Found titled(std::string title, const Reading& reading) {
  return {.title = std::move(title),
          .lines = {},
          .json = basic(reading),
          .picture = {},
          .figure = {},
          .series = {},
          .axes = {}};
}

HeadScores scores_of(const Reading& one, const Edits& edits) {
  const Int n = one.ids.numel(), most = one.lm().config().context_length;
  if (n < 2 || 2 * n > most) {
    refuse(one.flag, formatted("2 to {} tokens, which are read twice for scores", most / 2), std::to_string(n));
  }
  Tensor twice = Tensor::empty({2 * n}, DType::i64);
  for (int half : {0, 1}) twice.slice(0, half * n, (half + 1) * n).copy_from(one.ids);
  return head_scores(one.lm(), twice, edits);
}

}  // namespace attn::tool
