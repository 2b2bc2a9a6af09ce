// Tensors of a report as JSON: exact for short inputs, small for long ones.
#pragma once

#include "report/html/blocks.hpp"
#include "report/html/health.hpp"
#include "report/html/json.hpp"

namespace attn::report_page {

// How much of a report is embedded, and how.
struct Plan {
  bool packed = false;       // layers that are not shown first are compressed
  bool exact = true;         // every step as float32
  bool vectors = true;       // else: queries, keys, values and contexts in 8 bits
  std::int64_t cells = 512;  // else: cells a side of the weights' map, at most
  std::int64_t top = 16;     // else: exact weights of each row beside the map
};

// Exact up to 128 tokens, unless that would be more than 32 MB. Beyond, what keeps a page small: a layer of 1024
// tokens, 12 heads and 768 dimensions stays below 12 MB.
// Several layers are exact up to 9 MB together, and compressed from 1 MB. `first` of `layers` alike.
Plan plan_for(const Block& first, std::int64_t layers);

// {"shape": [...], "f32": base64}
void exact(Json& json, const Tensor& tensor);
// {"shape": [...], "u8": base64, "ranges": base64}: byte u of a row stands for low + (high - low) · u / 255;
// ranges are float32 (rows, 2). NaN and infinities become the row's nearest end.
// `kept` hears of each number beside what the page will make of its byte, and of what 8 bits allow.
void quantised(Json& json, const Tensor& tensor, Comparison& kept);
// (h, tq, tk) weights: {"shape", "pool": f, "u8": base64, "most": [...], "top": k, "topIndex": base64 of uint16,
// "topValue": base64 of float32}. Byte u of a cell of f × f stands for its largest weight, m · (u / 251)², m the
// largest of its row of cells in "most", 252 where all of them are masked (`keep`, undefined or of the weights' shape),
// 253 for -inf, 254 for inf, 255 for NaN; the top weights of each row fall, and a missing one has index 65535.
void pooled(Json& json, const Tensor& weights, const Tensor& keep, const Plan& plan, Comparison& kept);

}  // namespace attn::report_page
