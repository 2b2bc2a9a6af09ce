// A sentence of your own as vectors, without a model: what --text is to the command's modules. Related words have
// vectors with large dot products, so that even attention without weights shows something.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor.hpp"

namespace attn {

inline constexpr std::int64_t kWordSize = 24;  // numbers of a word's vector, unless a module asks for others

// The words of a text, as chapter 2 of the book cuts it (Raschka, "Build a Large Language Model (From Scratch)",
// section 2.2): at white space, which goes, and at each of , . : ; ? _ ! " ( ) ' and --, which are words of their own.
// White space is what Python's str.isspace() says. A byte that is no UTF-8 is a letter as any other.
std::vector<std::string> split_words(std::string_view text);

// Vectors of words, float32 (words, d_in), the same on every machine: multiples of 0.01 and about √3 long.
// A word of the 21 small lists in src/text/words.cpp is √2.5 times the direction of its list, and √0.5 times a
// direction of its own that is perpendicular to it. List k, from 0, has the direction cos(π j (k + ½) / 21), j = 1 …
// d_in, made 1 long, of which those from j = 21 on are 0: the first numbers tell kinds apart coarsely, as nature from
// trade, and later ones finely. A word of several lists lies between them. Endings (-s, -ed, -ing, …) do not count for
// the lists, and capital letters nowhere. A word that is on no list has √3 times its own direction. That is the sum of
// a direction for every three neighbouring characters of "<word>", drawn by a hash, so that words of one stem are near
// each other (Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information", section 3.2). Throws Error
// (argument) without words, for an empty one, and unless d_in is positive.
Tensor embed_words(std::span<const std::string> words, std::int64_t d_in = kWordSize);
// The same of split_words(text).
Tensor embed_words(std::string_view text, std::int64_t d_in = kWordSize);

}  // namespace attn
