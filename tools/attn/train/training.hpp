// A training run and what it stands on, by flags or from a checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attn/tokenizer.hpp"
#include "attn/train.hpp"
#include "train/lacking.hpp"
#include "train/model.hpp"
#include "train/settings.hpp"

namespace attn::tool {

using MakeModel = std::function<LanguageModel(Generator&)>;

// Returns the model, which was read. Throws Error (data) for weights that are not finite: the run would find them when
// it first saves, which may be hours later, and blame the learning rate.
LanguageModel finite(LanguageModel model, const std::string& source);

struct Training {
  // Trains the model that is made; its dropout draws from the generator. Texts are files, whose tokens follow each
  // other;
  // "-" is standard input. Throws Error, which names the flags.
  Training(const TrainSettings& settings, const std::vector<std::string>& texts, const Tokenizer& tokenizer,
           const MakeModel& make, const TrainRanks& ranks = {});
  // Throws Error (data) besides for a checkpoint of something else.
  Training(const TrainCheckpoint& from, const std::vector<std::string>& texts, const Tokenizer& tokenizer,
           const TrainRanks& ranks = {});

  // What the tokenizer lacks of the texts, as lacking_text() has it.
  std::string lacking(const Tokenizer& tokenizer) const { return lacking_text(characters, tokenizer); }
  // All that is saved of it; Trainer::checkpoint() says how.
  TrainCheckpoint checkpoint() const;

  TrainSettings settings;
  Generator rng;
  Characters characters;  // of the texts, while they are read
  TrainText text;
  LanguageModel model;
  std::string unit;         // what a token is, in words: a byte where the tokenizer is none
  std::string fingerprint;  // of what it began with, but for its text, to be compared; of one rank nothing
  Trainer trainer;
};

}  // namespace attn::tool
