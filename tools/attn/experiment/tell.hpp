// How findings are told: numbers, tokens and heads in words, tables, and what is drawn.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/table.hpp"
#include "experiment/experiment.hpp"

namespace attn::tool {

std::string signed_text(double value);                       // "+0.1234"
std::string in_quotes(const std::string& token);             // at most so many characters of it
Json text_in_json(const Reading& reading, std::int64_t id);  // null of a token that the tokenizer does not have
std::string name_of(std::int64_t layer, std::int64_t head);  // "3.1", for both counted from 0
std::vector<std::string> numbers(std::int64_t count);        // from 1

Found titled(std::string title, const Reading& reading);  // with the text's tokens
void tell(Found& found, const Table& table, const std::string& alignment);

void draw_matrix(Found& found, const Tensor& matrix, const char* rows, const char* columns, const char* what,
                 std::vector<std::string> row_names, std::vector<std::string> column_names);
void draw_heads(Found& found, const Tensor& matrix, const char* what);        // (layers, heads), from 0 on
void draw_differences(Found& found, const Tensor& matrix, const char* what);  // the same, with 0 in the middle
// The picture for a terminal of so many columns, in which names that differ are told apart: where they would be cut to
// the same few letters, two rows become columns, and columns of more rows are named by their places.
std::string picture_in_text(const Found& found, const figure::TerminalOptions& terminal);

// The cells (layer, head) of largest magnitude, NaN first, and the same as a table. `how`, where it is given, tells in
// a last column what a cell is.
std::vector<HeadAt> largest(const Tensor& matrix, std::size_t most, const LanguageModelConfig& config);
using How = std::function<std::string(std::int64_t layer, std::int64_t head)>;
void tell_largest(Found& found, const Reading& one, const Tensor& matrix, const std::string& what, std::size_t most = 8,
                  const How& how = {});

// TransformerLens's scores on the text, read twice. Throws Error (argument) for a text that is too short or too long.
HeadScores scores_of(const Reading& one, const Edits& edits);
struct ScoreName {
  const char *name, *json;
  Tensor HeadScores::*of;
};
inline constexpr std::array<ScoreName, 3> kScores{{{"previous token", "previous", &HeadScores::previous},
                                                   {"duplicate token", "duplicate", &HeadScores::duplicate},
                                                   {"induction", "induction", &HeadScores::induction}}};

Tensor difference(const Tensor& after, const Tensor& before);  // float64
Tensor difference(const Tensor& after, double before);

}  // namespace attn::tool
