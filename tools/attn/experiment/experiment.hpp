// The parts of attn experiment: what its flags edit, and what it finds.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attn/experiment.hpp"
#include "attn/figure.hpp"
#include "common/json.hpp"
#include "common/options.hpp"
#include "common/text_model.hpp"

namespace attn::tool {

struct EditFlags {
  std::optional<std::string> without, keep_only, skip;
  std::string by = "zero", from;
  std::vector<std::string> scales, weights, hidden, steps, mean_of, mean_of_files;
};
void add_edit_flags(Verb& verb, EditFlags& flags);

// Throws Error (argument) for what is not there; layers, heads and tokens count from 1. `contexts`: of other texts;
// empty: none are given. `notes`: what to tell of the arrays that were read.
Edits edits_of(const EditFlags& flags, const LanguageModelConfig& config, std::int64_t tokens, const Contexts& contexts,
               std::vector<std::string>& notes);
By by_named(const std::string& name);

// A model and the text that it reads. Of two texts one model reads both.
struct Reading {
  std::shared_ptr<TextModel> model;
  std::shared_ptr<Tokenizer> tokenizer;
  Tensor ids;
  std::vector<std::string> tokens;
  const char* flag;  // that gave the text

  LanguageModel& lm() const { return *model->language_model(); }
  // "' Paris'"; "#50000" of a model's token that its tokenizer does not have: vocabularies are padded.
  std::string token(std::int64_t id) const;
  std::string label(std::int64_t id) const;  // "␣Paris", for places of few columns
  bool has_text(std::int64_t id) const { return id < tokenizer->vocab_size(); }
};

// Holds an answer: lines to read, the same in JSON, and a matrix or lines to draw, where there are any.
struct Found {
  std::string title;
  std::vector<std::string> lines;
  Json json;
  Tensor picture;
  figure::Options figure;
  std::vector<figure::Series> series;  // or lines
  figure::Axes axes;
};

// Each of these compares a pass with `edits` with one without, where there are edits, or `one` with `other`, where that
// is not null.
Found losses(const Reading& one, const Edits& edits, const Reading* other);
// Compares two texts, both with `edits`. Where they are of one length, what the other adds is drawn.
Found losses_of_both(const Reading& one, const Edits& edits, const Reading& other);
// Tells the `count` likeliest, or those of `tokens`; of two also the difference of their logits.
Found next_tokens(const Reading& one, const Edits& edits, const Reading* other, std::int64_t count,
                  const std::vector<std::int64_t>& tokens);
Found effects(const Reading& one, const EffectOptions& options, const Reading* other);
Found changes(const Reading& one, const Edits& edits, const Reading* other);
Found lens(const Reading& one, const Edits& edits);
Found patched(const Reading& clean, const Edits& edits, const Reading& corrupt, TokenPair tokens, bool heads);
// Where there are two texts, their heads' shares are compared.
Found attributed(const Reading& one, const Edits& edits, std::int64_t a, std::optional<std::int64_t> b,
                 const Reading* other);
Found rolled_out(const Reading& one, const Edits& edits);
Found scored(const Reading& one, const Edits& edits, const Reading* other);
// Losses, next tokens and heads of two models together.
Found side_by_side(const Reading& one, const Edits& edits, const Reading& other);
// Losses and scores of the models that a run has kept beside `model`.
Found over_checkpoints(const Reading& one, const Edits& edits, const std::string& model);

}  // namespace attn::tool
