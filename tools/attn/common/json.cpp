#include "common/json.hpp"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/escape.hpp"

namespace attn::tool {

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

Json json_shape(const Shape& shape) { return std::vector<std::int64_t>(shape.begin(), shape.end()); }

namespace {

// Returns an element in JSON; ids and masks are whole numbers.
Json json_element(double value, DType dtype) {
  if (is_floating(dtype)) return json_number(value);
  return static_cast<std::int64_t>(value);
}

}  // namespace

Json json_values(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (tensor.rank() == 0) return json_element(tensor.item(), dtype);
  Json values = Json::array();
  for (std::int64_t i = 0; i < tensor.size(0); ++i) {
    values.push_back(tensor.rank() == 1 ? json_element(tensor.at({i}), dtype) : json_values(tensor.select(0, i)));
  }
  return values;
}

std::string dump(const Json& json) {
  constexpr int indent = 2;
  // JSON has no escapes but \u for what it leaves in its strings.
  return escaped(json.dump(indent, ' ', false, Json::error_handler_t::replace), "\n") + "\n";
}

}  // namespace attn::tool
