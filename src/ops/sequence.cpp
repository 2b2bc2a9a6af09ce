#include "ops/sequence.hpp"

#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

// f(row, position, count) for the runs of rows that follow each other in the whole sequence too.
template <class F>
void for_each_run(const SequencePart& part, F&& f) {
  const auto* at = part.positions().data<std::int64_t>();
  for (std::int64_t row = 0, count = 1; row < part.rows(); row += count, count = 1) {
    while (row + count < part.rows() && at[row + count] == at[row] + count) ++count;
    f(row, at[row], count);
  }
}

}  // namespace

SequencePart::SequencePart(std::int64_t tokens, std::vector<std::int64_t> positions)
    : tokens_(tokens),
      positions_(
          Tensor::from(std::span<const std::int64_t>(positions), {static_cast<std::int64_t>(positions.size())})) {
  const std::string expected = "positions from 0 to " + std::to_string(tokens - 1);
  if (positions.empty()) throw Error(Error::Kind::argument, "SequencePart", expected, "none");
  for (const std::int64_t position : positions) {
    if (position >= 0 && position < tokens) continue;
    throw Error(Error::Kind::argument, "SequencePart", expected, std::to_string(position));
  }
}

void require_part(const char* op, const SequencePart* part, const Tensor& x, std::int64_t dim, std::int64_t longest) {
  if (!part) return;
  if (x.size(dim) != part->rows()) {
    throw Error(Error::Kind::shape, op, "the " + std::to_string(part->rows()) + " tokens of this part of a sequence",
                std::to_string(x.size(dim)));
  }
  if (longest > 0 && part->tokens() > longest) {
    throw Error(Error::Kind::shape, op, "sequences of at most context_length = " + std::to_string(longest) + " tokens",
                "parts of " + std::to_string(part->tokens()));
  }
}

Tensor dropout_keep(Generator& generator, const SequencePart* part, const Shape& shape, double p) {
  if (!part || p == 0 || p == 1) return generator.dropout_keep(shape, p);
  const Tensor keep = Tensor::empty(shape, DType::boolean);
  const auto rows = [&](std::int64_t row, std::int64_t count) { return keep.slice(2, row, row + count); };
  if (generator.flavour() == DropoutFlavour::philox) {  // any element can be drawn by itself
    const std::uint64_t key = generator.next_u64();
    for_each_run(*part, [&](std::int64_t row, std::int64_t position, std::int64_t count) {
      rows(row, count).copy_from(philox_keep({shape[0], shape[1], count, shape[3]}, p, key, {.query = position}));
    });
    return keep;
  }
  const Tensor whole = generator.dropout_keep({shape[0], shape[1], part->tokens(), shape[3]}, p);
  for_each_run(*part, [&](std::int64_t row, std::int64_t position, std::int64_t count) {
    rows(row, count).copy_from(whole.slice(2, position, position + count));
  });
  return keep;
}

void add_dropout(AttentionOptions& options, Generator& generator, const SequencePart* part, Shape weights, double p) {
  if (p == 0) return;
  options.dropout = p;
  if (generator.flavour() == DropoutFlavour::philox) {
    options.dropout_key = generator.next_u64();
    return;
  }
  if (part) weights.back() = part->tokens();
  options.dropout_keep = dropout_keep(generator, part, weights, p);
}

}  // namespace attn
