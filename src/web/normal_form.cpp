// Unicode's normal forms by the page, which has them: the tables of src/text/nfc_data.cpp are 12 kB here, compressed.
#include "core/utf8.hpp"
#include "text/nfc.hpp"
#include "web/door.hpp"

namespace attn::text {
namespace {

constexpr std::size_t kMostLonger = 3;  // times as many bytes, of both forms (Unicode's FAQ on normalization)

// The text between bytes that are no UTF-8, which stay as they are.
std::string normal_form(std::string_view text, bool composed) {
  std::string result;
  while (!text.empty()) {
    std::size_t good = 0;
    for (Character c; good < text.size() && (c = first_character(text.substr(good))).valid;) good += c.length;
    const std::size_t at = result.size();
    result.resize(at + kMostLonger * good);
    result.resize(at + attn_normal(text.data(), good, composed, result.data() + at, kMostLonger * good));
    if (good < text.size()) result.push_back(text[good++]);
    text.remove_prefix(good);
  }
  return result;
}

}  // namespace

std::string nfc(std::string_view text) { return normal_form(text, true); }
std::string nfd(std::string_view text) { return normal_form(text, false); }

}  // namespace attn::text
