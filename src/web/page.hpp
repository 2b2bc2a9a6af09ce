// What the sources of the door share: what is open in the page.
#pragma once

#include <string>
#include <string_view>

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
ModuleConfig module_config(const io::JsonObject& json);
// Of a list as attn_run() takes it.
Edits edits_of(std::string_view text);

}  // namespace attn::web
