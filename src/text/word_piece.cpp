#include "text/word_piece.hpp"

#include <string>

#include "core/utf8.hpp"

namespace attn::text {

void append_word_pieces(const Vocabulary& vocabulary, const WordPiece& model, std::string_view piece,
                        std::vector<std::int64_t>& ids) {
  std::vector<std::size_t> ends;  // of the characters
  for (std::size_t at = 0; at < piece.size() && ends.size() <= model.most_characters;) {
    const Character c = first_character(piece.substr(at));
    ends.push_back(at += c.valid ? c.length : 1);
  }
  std::vector<std::int64_t> found;
  std::size_t begin = 0, at = 0;  // the byte and the character where the rest begins
  while (begin < piece.size() && ends.size() <= model.most_characters) {
    std::size_t last = ends.size();
    std::optional<Id> id;
    for (; last > at; --last) {
      const std::string_view part = piece.substr(begin, ends[last - 1] - begin);
      // The vocabulary's words are none of what goes on, though a text may have their mark.
      if (begin > 0 && !model.begin.empty() && part.starts_with(model.begin)) break;
      id = vocabulary.find_piece(std::string(begin == 0 ? model.begin : model.next).append(part));
      if (id) break;
    }
    if (!id) break;
    found.push_back(*id);
    begin = ends[last - 1], at = last;
  }
  if (begin < piece.size()) found.assign(1, vocabulary.unknown());
  ids.insert(ids.end(), found.begin(), found.end());
}

}  // namespace attn::text
