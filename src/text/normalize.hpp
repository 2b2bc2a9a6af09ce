// The steps before a text is cut: it is brought into a normal form.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/regex.hpp"

namespace attn::text {

struct Normalizer {
  enum class Kind {
    nfc,
    nfd,
    lowercase,
    strip_accents,
    prepend,       // `to`, where there is a text
    replace,       // what `pattern` finds, by `to`
    strip,         // white space at the ends that `left` and `right` name
    extra_blanks,  // as SentencePiece: blanks at both ends go, and of several in a row one stays
    clean,         // as BertNormalizer: control characters go, and white space becomes blanks
    ideographs,    // as BertNormalizer: blanks around each
    bert_marks     // as BertNormalizer: letters without their accents
  } kind;
  std::string to{};
  std::shared_ptr<const Regex> pattern{};
  bool left = false, right = false;
};

std::string normalized(std::string_view text, std::span<const Normalizer> steps);

std::string replaced_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace attn::text
