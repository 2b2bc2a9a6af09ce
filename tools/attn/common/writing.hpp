// What the verbs that write text have in common: their flags, the model that these name, and what is printed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tokenizer.hpp"
#include "common/json.hpp"
#include "common/options.hpp"
#include "common/text_model.hpp"

namespace attn::tool {

struct WritingFlags {
  std::string model, tokenizer, weights, cache = "float32", precision = "highest";
  std::vector<std::string> stops, stop_texts;
  GenerateOptions options;
  std::uint64_t seed = 123;
};

void define_model_file(Verb& verb, WritingFlags& flags);
void define_sampling(Verb& verb, WritingFlags& flags);
// Stops and the seed, which follow how tokens are drawn.
void define_stops(Verb& verb, WritingFlags& flags);
// Returns --tokenizer.
Option& define_model(Verb& verb, WritingFlags& flags);

// Throws Error (argument) for options out of range, and for a flag that says how tokens are drawn where none is.
void require_writable(const Verb& verb, const WritingFlags& flags);
// The model of --model; flags.weights becomes the name of the dtype that its weights have.
std::unique_ptr<TextModel> load_writer(WritingFlags& flags);
// flags.options with the cache's dtype and all ids that end a text. `tokenizer` is null where ids are written.
GenerateOptions options_of(const WritingFlags& flags, const TextModel& model, const Tokenizer* tokenizer, bool chat);
// "1,2,3" → ids; throws Error (argument), which names the flag.
TextModel::Ids parsed_ids(const std::string& text, const char* flag);
// The seed, how tokens are drawn, and in what the numbers are kept.
void tell_writing(Json& json, const WritingFlags& flags);

// Prints text, or ids where there is no tokenizer, as it comes: whole characters, and on a terminal none that would
// drive it but line ends and tabs.
class Printer {
 public:
  Printer(const Tokenizer* tokenizer, bool silent) : tokenizer_(tokenizer), silent_(silent) {}

  void text(const std::string& bytes);
  void token(std::int64_t id);
  void finish();

 private:
  void say(std::string_view text) const;

  const Tokenizer* tokenizer_;
  bool silent_, first_ = true;
  Utf8Stream stream_;
};

}  // namespace attn::tool
