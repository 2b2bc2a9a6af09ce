// BERT's way to make tokens of a piece.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.hpp"

namespace attn::text {

// Appends the longest token that begins the piece, then the longest one that goes on, to its end; a piece that cannot
// be made of tokens is unknown as a whole.
void append_word_pieces(const Vocabulary& vocabulary, const WordPiece& model, std::string_view piece,
                        std::vector<std::int64_t>& ids);

}  // namespace attn::text
