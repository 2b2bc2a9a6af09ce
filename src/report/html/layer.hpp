// Writes what a page says of a layer beside its numbers: a page that is made has it, one that computes makes it anew.
#pragma once

#include <vector>

#include "attn/steps.hpp"
#include "report/html/blocks.hpp"
#include "report/html/health.hpp"
#include "report/html/json.hpp"
#include "report/html/scores.hpp"

namespace attn::report_page {

// Names and values of an object that is open in `json`.
void write_step(Json& json, const Step& step);                      // "name", "kind", "ofKeys", "meaning"
void write_sinks(Json& json, const Block& block);                   // "sinks", where there are some
void write_scores(Json& json, const Tensor& weights);               // "scores", an object a head
void write_kinds(Json& json, const std::vector<HeadKinds>& heads);  // "kinds", likewise
// "space": where words and contexts lie, in three dimensions. Those of one size share the words' axes.
void write_space(Json& json, const Block& block);
void write_checks(Json& json, const std::vector<Check>& checks);  // "health"

}  // namespace attn::report_page
