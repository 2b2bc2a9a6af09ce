#include "report/html/json.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "core/decimal.hpp"
#include "report/utf8.hpp"

namespace attn::report_page {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) { return i + k < bytes.size() ? static_cast<unsigned>(bytes[i + k]) : 0u; };
    const unsigned group = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (unsigned k = 0; k < 4; ++k) {
      out.push_back(i + k > bytes.size() ? '=' : kAlphabet[group >> (18 - 6 * k) & 63]);
    }
  }
  return out;
}

std::string short_number(double value, int digits) { return decimal(value, digits); }

Json& Json::open(char bracket) {
  separate();
  text_.push_back(bracket);
  closing_.push_back(bracket == '{' ? '}' : ']');
  return *this;
}

Json& Json::end() {
  text_.push_back(closing_.back());
  closing_.pop_back();
  return *this;
}

void Json::separate() {
  if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') text_.push_back(',');
}

Json& Json::raw(std::string_view text) {
  separate();
  text_.append(text);
  return *this;
}

// "<", ">" and "&" are escaped too: no text can end the script element or begin another.
void Json::quote(std::string_view text) {
  text_.push_back('"');
  for (const char c : valid_utf8(text)) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&') {
      std::array<char, 8> buffer{};
      std::snprintf(buffer.data(), buffer.size(), "\\u%04x", code);
      text_.append(buffer.data());
    } else {
      text_.push_back(c);
    }
  }
  text_.push_back('"');
}

Json& Json::name(std::string_view text) {
  separate();
  quote(text);
  text_.push_back(':');
  return *this;
}

Json& Json::text(std::string_view value) {
  separate();
  quote(value);
  return *this;
}

Json& Json::number(double value) {
  if (std::isnan(value)) return text("nan");
  if (std::isinf(value)) return text(value < 0 ? "-inf" : "inf");
  return raw(short_number(value, 17));
}

Json& Json::base64(std::span<const std::byte> bytes) {
  if (beside_) {
    array().number(static_cast<std::int64_t>(beside_->size())).number(static_cast<std::int64_t>(bytes.size())).end();
    beside_->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return *this;
  }
  separate();
  text_.append("\"").append(report_page::base64(bytes)).append("\"");
  return *this;
}

Json& Json::floats(const Tensor& tensor) {
  static_assert(std::endian::native == std::endian::little);
  const Tensor values = tensor.to(DType::f32).contiguous();
  return base64(std::as_bytes(std::span(values.data<float>(), static_cast<std::size_t>(values.numel()))));
}

Json& Json::shape(const Shape& shape) {
  array();
  for (const std::int64_t size : shape) number(size);
  return end();
}

}  // namespace attn::report_page
