// The sources of the door share these functions, and what is open in the page.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "attn/encoder.hpp"
#include "attn/experiment.hpp"
#include "attn/modules.hpp"
#include "attn/tokenizer.hpp"
#include "io/json_object.hpp"

namespace attn::web {

LanguageModel& model();  // throws Error (argument) where none is open
const Tokenizer& tokenizer();
// Keeps the text until the next call.
const char* say(std::string text);
// Before another model takes the place of the one that it runs on.
void end_experiment();
// A whole number from 0 on, or 0 where there is none.
std::int64_t place(const io::JsonObject& json, const char* key);
// Returns nothing where the file is a language model's. A safetensors file has no config of its own, so that a text of
// one tells; a GGUF file says by itself what it is.
std::unique_ptr<Encoder> encoder_in(std::span<const std::byte> bytes, std::string_view config, std::string_view source);
ModuleConfig module_config(const io::JsonObject& json);
// Reads the edits of a list as attn_run() takes it.
Edits edits_of(std::string_view text);

}  // namespace attn::web
