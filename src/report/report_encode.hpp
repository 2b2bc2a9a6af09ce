// Tensors of a report as JSON: exact for short inputs, small for long ones.
#pragma once

#include <string>

#include "report/report_blocks.hpp"
#include "report/report_json.hpp"

namespace attn::report_page {

inline constexpr std::int64_t kExactTokens = 128;  // more queries or keys than this are pooled and quantised
inline constexpr std::int64_t kMapCells = 512;     // cells a side of a pooled map, at most
inline constexpr std::int64_t kTopKeys = 16;       // exact weights of each row beside a pooled map

// {"shape": [...], "f32": base64}
void exact(Json& json, const Tensor& tensor);
// {"shape": [...], "u8": base64, "ranges": base64}: byte u of a row stands for low + (high - low) · u / 255;
// ranges are float32 (rows, 2). NaN and infinities become the row's nearest end.
void quantised(Json& json, const Tensor& tensor);
// (h, tq, tk) weights: {"shape", "pool": f, "u8": base64, "most": [...], "top": k, "topIndex": base64 of uint16,
// "topValue": base64 of float32}. Byte u of a cell of f × f stands for its largest weight, most[head] · (u / 255)²;
// the top weights of each row fall, and a missing one has index 65535.
void pooled(Json& json, const Tensor& weights);

}  // namespace attn::report_page
