// Which matrix of all the steps is drawn, and how: what plot and show share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attn/figure.hpp"
#include "common/options.hpp"
#include "common/pictures.hpp"
#include "report/html/blocks.hpp"

namespace attn::tool {

struct ChoiceFlags {
  std::string step = "weights";
  std::int64_t layer = 1;            // counted from 1
  std::optional<std::int64_t> head;  // counted from 1
  std::string scale = "auto";
  bool log = false;  // the same as scale = "log"
  std::string colours = "viridis";
};

// Throws Error (argument) for a number that is not from 1 to `count`.
void require_index(const char* flag, std::int64_t index, std::int64_t count);

// --step, --layer, --head, --scale, --log, --colours.
void add_choice_flags(Verb& verb, ChoiceFlags& flags);

// The steps of one text, layer by layer; `item` counts from 1. Throws Error.
report_page::Blocks arranged(const Pictures& pictures, std::int64_t item);
// Throws Error for a layer that is not there, and where there is nothing to draw.
const report_page::Block& chosen_layer(const report_page::Blocks& blocks, const ChoiceFlags& flags);
// The chosen step: (heads, rows, columns), or (1, rows, columns) of a step that has no heads. Throws Error, listing the
// steps.
Tensor chosen_step(const report_page::Block& block, const ChoiceFlags& flags);
// One head of it, (rows, columns): the chosen one, or the first.
Tensor chosen_head(const Tensor& step, const ChoiceFlags& flags);

// The flags as the library's choice, which counts from 0.
figure::Choice choice_of(const Pictures& pictures, const ChoiceFlags& flags);
figure::Colours colours_named(const std::string& name);

}  // namespace attn::tool
