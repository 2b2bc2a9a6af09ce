// Modules do this alike with a part of each sequence.
#pragma once

#include "attn/attention.hpp"
#include "attn/random.hpp"
#include "attn/sequence.hpp"

namespace attn {

// Throws Error (shape) unless x (…, t, n), or ids (…, t) where `dim` is -1, has the part's rows, and a whole sequence
// is no longer than `longest` (0 = any). Without a part all is well.
void require_part(const char* op, const SequencePart* part, const Tensor& x, std::int64_t dim,
                  std::int64_t longest = 0);

// Which elements of (b, h, t, n) dropout keeps: this part's rows of what is drawn for whole sequences, whoever has the
// others. Without a part generator.dropout_keep().
Tensor dropout_keep(Generator& generator, const SequencePart* part, const Shape& shape, double p);

// Dropout of the weights (b, h, tq, tk), a part's rows of whole columns, as the generator's flavour draws it; none
// where p is 0.
void add_dropout(AttentionOptions& options, Generator& generator, const SequencePart* part, Shape weights, double p);

}  // namespace attn
