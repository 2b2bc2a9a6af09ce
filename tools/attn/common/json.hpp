// Tensors and numbers in JSON: always valid, whatever they hold. Who makes or reads a Json includes the whole of
// <nlohmann/json.hpp>.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "attn/tensor.hpp"

namespace attn::tool {

using Json = nlohmann::ordered_json;

// JSON has no NaN and no infinity: they become "nan", "inf" and "-inf".
Json json_number(double value);
Json json_shape(const Shape& shape);
// Nested arrays, row-major.
Json json_values(const Tensor& tensor);

// Indented, with a final newline; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);

}  // namespace attn::tool
