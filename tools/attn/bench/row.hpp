// The shape list: a text file, one line for each thing to time.
//
//   # op       shape               dtype  mask       precision  numbers
//   forward    1,8,4096,128        f32    causal     highest    huge
//   decode     1,32/8,1/8192,128   bf16   none
//
// Shapes of attention are b,h,t,d; where queries and keys differ hq/hkv, tq/tk and d/dv. The mask is none, or parts
// joined by "+". The precision and the numbers may be left out. Empty lines and what follows a # are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attn/attention.hpp"
#include "attn/dtype.hpp"
#include "common/json.hpp"

namespace attn::tool {

struct Row {
  std::string op, shape, dtype, mask = "none", precision = "highest", numbers = "normal";

  // Without the precision, and the mask where there is none.
  std::string short_text() const { return op + " " + shape + " " + dtype + (mask == "none" ? "" : " " + mask); }
  std::string text() const {
    return op + " " + shape + " " + dtype + " " + mask + " " + precision + (numbers == "normal" ? "" : " " + numbers);
  }
};

// Its columns by their names.
Json row_json(const Row& row);
// Rows of a list that is called `name` in errors. Throws Error (data), naming the line, when one is not as above.
std::vector<Row> parse_rows(std::string_view list, const std::string& name);
// The rows that have every word of `filter` in their text.
std::vector<Row> filtered(const std::vector<Row>& rows, const std::string& filter);

// One place of a shape: "8192" is 8192 twice, "32/8" is 32 and 8.
struct Extent {
  std::int64_t first = 1, second = 1;
};
// Throws Error (data).
std::vector<Extent> parse_shape(const std::string& shape);
// "f32", "bf16", "f16" or "i8". Throws Error (data).
DType parse_dtype(const std::string& dtype);

}  // namespace attn::tool
