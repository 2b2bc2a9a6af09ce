// Heads that are being learned: a text read by each model that a run of attn train has kept.
#include <nlohmann/json.hpp>

#include "attn/error.hpp"
#include "attn/train.hpp"
#include "experiment/measures.hpp"
#include "experiment/tell.hpp"

namespace attn::tool {
namespace {

using Int = std::int64_t;

struct At {
  Int step = 0;
  double loss = 0;
  HeadScores scores;
};

At read_at(const KeptModel& kept, const Reading& one, const Edits& edits) {
  Reading reading{
      .model = load_reader(kept.path), .tokenizer = nullptr, .ids = one.ids, .tokens = {}, .flag = one.flag};
  if (!reading.model->writes() || reading.model->vocab_size() != one.model->vocab_size() ||
      !experiment::heads_alike(reading.lm().config(), one.lm().config())) {
    throw Error(Error::Kind::data, "--checkpoints", "models of the sizes of --model", kept.path.string(),
                "another run has kept it");
  }
  return {kept.step, mean_of(token_losses(reading.lm().forward(reading.ids, {.edits = edits}), reading.ids)),
          scores_of(reading, edits)};
}

std::vector<double> of_all(const std::vector<At>& all, const std::function<double(const At&)>& what) {
  std::vector<double> values;
  for (const At& at : all) values.push_back(what(at));
  return values;
}

// A table's column, a line of the figure, and the numbers in blocks.
struct Column {
  std::string name;
  std::vector<double> values;
};

// The loss, and of each score the head that has most of it in the end.
std::vector<Column> columns_of(const std::vector<At>& all, const LanguageModelConfig& c) {
  std::vector<Column> columns{{"loss", of_all(all, [](const At& at) { return at.loss; })}};
  for (const ScoreName& score : kScores) {
    const HeadAt head = largest(all.back().scores.*score.of, 1, c).front();
    const auto value = [&](const At& at) { return (at.scores.*score.of).at({head.layer, head.head}); };
    columns.push_back({score.name + (" " + name_of(head.layer, head.head)), of_all(all, value)});
  }
  return columns;
}

void tell_steps(Found& found, const std::vector<At>& all, const std::vector<Column>& columns) {
  Table table{{"step"}};
  for (const Column& column : columns) table.front().push_back(column.name);
  for (std::size_t i = 0; i < all.size(); ++i) {
    table.push_back({std::to_string(all[i].step)});
    for (const Column& column : columns) table.back().push_back(formatted("{:.4f}", column.values[i]));
  }
  tell(found, table, ">>>>>");
  found.lines.emplace_back();
  Table lines;
  constexpr std::size_t most = 40;
  for (const Column& column : columns) lines.push_back({column.name, figure::sparkline(column.values, most)});
  tell(found, lines, "<<");
}

}  // namespace

Found over_checkpoints(const Reading& one, const Edits& edits, const std::string& model) {
  std::vector<At> all;
  for (const KeptModel& kept : kept_models(model)) all.push_back(read_at(kept, one, edits));
  if (all.empty()) {
    throw Error(Error::Kind::file, "--checkpoints",
                "models that a run has kept, such as " + kept_model(model, 500).string(), "none",
                "attn train --keep-every N keeps them");
  }
  Found found = titled("What heads have learned: their scores on the text, read twice, and its loss", one);
  const std::vector<Column> columns = columns_of(all, one.lm().config());
  tell_steps(found, all, columns);
  const std::vector<double> steps = of_all(all, [](const At& at) { return static_cast<double>(at.step); });
  for (const Column& column : columns) {
    figure::Series line{column.name, steps, column.values};
    if (found.series.empty()) {  // the loss is the first
      line.name = "loss / first loss";
      for (double& y : line.y) y /= column.values.front();
    }
    found.series.push_back(std::move(line));
  }
  found.axes = {.title = found.title, .x = "step", .y = "score", .width = 840};
  for (const At& at : all) {
    Json entry{{"step", at.step}, {"loss", json_number(at.loss)}};
    for (const ScoreName& score : kScores) entry[score.json] = json_values(at.scores.*score.of);
    found.json["checkpoints"].push_back(entry);
  }
  return found;
}

}  // namespace attn::tool
