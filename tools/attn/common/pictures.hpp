// plot, show and report draw these: the steps of a module's run, of a trained model reading a text, of a steps file, or
// bare attention weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/trace.hpp"
#include "common/job.hpp"
#include "common/options.hpp"
#include "common/text_model.hpp"

namespace attn::tool {

struct PictureFlags {
  ModuleFlags module;  // its `module` is WHAT: a module's name, or a file
  InputFlags input;
  std::string model, tokenizer;
  std::string key_tokens;
  std::int64_t item = 1;  // which text of a batch, counted from 1
};

// WHAT, --model with --tokenizer, --key-tokens, --item, and all that attn run takes for a
// module and its input.
void add_picture_flags(Verb& verb, PictureFlags& flags);

struct Pictures {
  // Steps as a module or a model records them; bare weights are "weights", of several layers "layers.0.weights", ….
  Trace steps;
  std::string module;                           // "" when not known
  std::vector<std::string> tokens, key_tokens;  // one for each query, each key; or none
  std::map<std::string, std::string> metadata;  // of a steps file: seed, rng, command
  std::vector<std::string> notes;               // what the user should know
  std::optional<Job> job;                       // of a module
};

// A model, and a text that it can read.
struct ReadText {
  std::unique_ptr<TextModel> model;
  std::vector<std::int64_t> ids;
  std::vector<std::string> tokens;  // as text
  std::string text, unit;           // the text as given, as far as it is read; "byte" or "token"
};

// --model, --text or --text-file, --tokenizer, and which tokens --tokens leaves. Throws Error, which says what to pass.
ReadText open_text(const Verb& verb, const PictureFlags& flags);

// Runs the module or the model, or reads the file. Weights may be of no tokens. Throws Error, which says what to pass.
Pictures load_pictures(const Verb& verb, const PictureFlags& flags);

}  // namespace attn::tool
