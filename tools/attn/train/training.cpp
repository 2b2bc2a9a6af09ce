#include "train/training.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "attn/error.hpp"
#include "common/fingerprint.hpp"
#include "common/format.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"
#include "train/config.hpp"

namespace attn::tool {
namespace {

const TrainSettings& checked(const TrainSettings& s, const TrainRanks& ranks) {
  if (!(s.validation > 0 && s.validation < 1)) {
    refuse("--validation", "a part between 0 and 1", formatted("{}", s.validation));
  }
  if (s.model.context_length < 1) {
    refuse("--context", "at least 1", std::to_string(s.model.context_length));
  }
  check_config(s.train, ranks, s.model.context_length, flag_of);
  return s;
}

TrainText text_of(const std::vector<std::string>& files, const Tokenizer& tokenizer, const TrainSettings& settings,
                  Characters& characters) {
  std::vector<std::int64_t> all;
  for (const std::string& file : files) {
    const io::Buffer content = io::read_file(file, "--text");
    const auto ids = tokenizer.encode(io::as_text(content.bytes()));
    if (ids.empty()) {
      throw Error(Error::Kind::data, "--text", "files of at least one token",
                  formatted("none in \"{}\"", escaped(file)), "leave it out");
    }
    count_characters(io::as_text(content.bytes()), characters);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return {all, settings.model.context_length, settings.validation};
}

std::string unit_of(const Tokenizer& tokenizer) {
  return dynamic_cast<const ByteTokenizer*>(&tokenizer) ? "byte" : "token";
}

// Throws Error (data) for a tokenizer that cannot be the one of the run, before its text is found to be another.
const Tokenizer& same_tokenizer(const Tokenizer& tokenizer, const TrainSettings& settings, const std::string& source) {
  const std::int64_t tokens = settings.model.vocab_size;
  if (tokenizer.vocab_size() == tokens) return tokenizer;
  throw Error(Error::Kind::data, "--tokenizer",
              formatted("the tokenizer of {} tokens that {} was trained with", tokens, source),
              formatted("one of {}{}", tokenizer.vocab_size(), unit_of(tokenizer) == "byte" ? ", the bytes" : ""),
              "give the --tokenizer of the run");
}

// Ranks compare by this all that decides their numbers and is read from files: weights, what they mean, and the state
// that a checkpoint has besides.
std::string fingerprint_of(LanguageModel& model, const TrainSettings& settings, const TrainRanks& ranks,
                           const TrainCheckpoint& from = {}) {
  if (ranks.size() == 1) return "";
  StateDict state = from.optimizer;
  state.emplace("generator", from.generator);
  return fingerprint(model.parameters(), to_json(settings).dump() + model.config().json + fingerprint(state));
}

}  // namespace

LanguageModel finite(LanguageModel model, const std::string& source) {
  for (const Parameter* p : model.parameters()) {
    const std::span values(p->value.data<float>(), static_cast<std::size_t>(p->value.numel()));
    const auto wrong = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
    if (wrong == values.end()) continue;
    throw Error(Error::Kind::data, "train", formatted("finite weights to begin with in {}", escaped(source)),
                formatted("{} in {}", *wrong, p->name), "no training mends them: give another model");
  }
  return model;
}

Training::Training(const TrainSettings& chosen, const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                   const MakeModel& make, const TrainRanks& ranks)
    : settings(checked(chosen, ranks)),
      rng(settings.seed, dropout_flavour(settings.rng)),
      text(text_of(texts, tokenizer, settings, characters)),
      model(make(rng)),
      unit(unit_of(tokenizer)),
      fingerprint(fingerprint_of(model, settings, ranks)),
      trainer(model, rng, text, settings.train, ranks) {}

Training::Training(const TrainCheckpoint& from, const std::vector<std::string>& texts, const Tokenizer& tokenizer,
                   const TrainRanks& ranks)
    : settings(checked(parse_settings(from.metadata.at("settings"), from.source), ranks)),
      rng(settings.seed, dropout_flavour(settings.rng)),
      text(text_of(texts, same_tokenizer(tokenizer, settings, from.source), settings, characters)),
      model(finite(model_of(from, settings.model, rng), from.source)),
      unit(unit_of(tokenizer)),
      fingerprint(fingerprint_of(model, settings, ranks, from)),
      trainer(model, rng, text, from, ranks) {}

TrainCheckpoint Training::checkpoint() const {
  TrainCheckpoint all = trainer.checkpoint();
  all.metadata["settings"] = to_json(settings).dump();
  if (const std::string& config = model.config().json; !config.empty()) all.metadata[kConfigOfModel] = config;
  return all;
}

}  // namespace attn::tool
