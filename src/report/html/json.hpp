// JSON text that may stand inside an HTML script element, and tensors as base64.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "attn/tensor.hpp"

namespace attn::report_page {

// Builds one JSON value, front to back. Commas are its own business; names and values must come in turns.
class Json {
 public:
  Json() = default;
  // Bytes go behind those of `beside`, and are [first, count] here.
  explicit Json(std::string& beside) : beside_(&beside) {}

  Json& object() { return open('{'); }
  Json& array() { return open('['); }
  Json& end();
  Json& name(std::string_view text);
  Json& text(std::string_view value);
  Json& number(double value);  // NaN and infinities as strings: "nan", "inf", "-inf"
  Json& number(std::int64_t value) { return raw(std::to_string(value)); }
  Json& boolean(bool value) { return raw(value ? "true" : "false"); }
  Json& null() { return raw("null"); }
  Json& json(std::string_view value) { return raw(value); }  // a value that is JSON already
  Json& base64(std::span<const std::byte> bytes);
  // Little-endian float32.
  Json& floats(const Tensor& tensor);
  Json& shape(const Shape& shape);

  const std::string& str() const noexcept { return text_; }

 private:
  Json& open(char bracket);
  Json& raw(std::string_view text);
  void separate();
  void quote(std::string_view text);

  std::string text_, closing_;
  std::string* beside_ = nullptr;
};

std::string base64(std::span<const std::byte> bytes);
// A finite number in few characters, "%.{digits}g".
std::string short_number(double value, int digits = 4);

}  // namespace attn::report_page
