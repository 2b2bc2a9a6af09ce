#include "common/words.hpp"

#include "attn/words.hpp"
#include "common/options.hpp"

namespace attn::tool {

std::string_view without_mark(std::string_view text) { return text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0); }

std::vector<std::string> words_in(std::string_view text, const char* flag) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    refuse(flag, "a text in UTF-8", "one in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8");
  }
  return split_words(without_mark(text));
}

}  // namespace attn::tool
