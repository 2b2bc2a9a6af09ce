#include "attention/pieces.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

std::int64_t entry(const Tensor& t, std::int64_t i) { return t.data<std::int64_t>()[i * t.stride(0)]; }

// By the tokens' positions in the whole, if they are given; else by their places in the piece.
std::int64_t shift(const AttentionOptions& options, const Piece& piece) {
  if (options.query_offset.given() || options.key_offset.given())
    return piece.query_offset + piece.query - (piece.key_offset + piece.key);
  return options.mask.align == Align::bottom_right ? piece.tk - piece.tq : 0;
}

// Keys on one side of a query: -1 is no limit, nor is a window wider than any distance.
std::int64_t side(std::int64_t window) { return window < 0 ? Piece::kEvery : std::min(window, Piece::kEvery); }

using Pieces = std::pmr::vector<Piece>;

void add_sequences(const AttentionOptions& options, Pieces& all) {
  const Mask& mask = options.mask;
  for (std::int64_t s = 0; s + 1 < mask.query_starts.numel(); ++s) {
    Piece piece{};
    piece.batches = 1;
    piece.query = entry(mask.query_starts, s), piece.tq = entry(mask.query_starts, s + 1) - piece.query;
    piece.key = entry(mask.key_starts, s), piece.tk = entry(mask.key_starts, s + 1) - piece.key;
    piece.query_offset = options.query_offset.of(0), piece.key_offset = options.key_offset.of(0);
    if (piece.tq > 0 || piece.tk > 0) all.push_back(piece);
  }
}

void add_items(const Sizes& p, const AttentionOptions& options, Pieces& all) {
  const Tensor& lengths = options.mask.key_lengths;
  const bool differ = lengths.defined() || options.query_offset.each().defined() || options.key_offset.each().defined();
  const auto alike = [](const Piece& a, const Piece& b) {
    return a.tk == b.tk && a.query_offset == b.query_offset && a.key_offset == b.key_offset;
  };
  const std::int64_t step = differ ? 1 : p.batch;
  for (std::int64_t b = 0; b < p.batch; b += step) {
    Piece piece{};
    piece.batch = b, piece.batches = step;
    piece.tq = p.tq, piece.tk = lengths.defined() ? entry(lengths, b) : p.tk;
    piece.query_offset = options.query_offset.of(b), piece.key_offset = options.key_offset.of(b);
    if (!all.empty() && alike(all.back(), piece)) {
      ++all.back().batches;
    } else {
      all.push_back(piece);
    }
  }
}

bool are_alike(const Sizes& p, const Pieces& all) { return all.size() == 1 && all[0].batches == p.batch; }

// f(b, piece) for every batch item that has positions of its own, b counted from 0 among these.
template <class F>
void for_each_item(const Sizes& p, const Pieces& all, F&& f) {
  for (const Piece& piece : all) {
    for (std::int64_t b = 0; b < (are_alike(p, all) ? 1 : piece.batches); ++b) f(piece.batch + b, piece);
  }
}

// How many items have positions of their own: 1 when all are alike.
std::int64_t different_items(const Sizes& p, const Pieces& all) {
  return are_alike(p, all) ? std::min<std::int64_t>(p.batch, 1) : p.batch;
}

}  // namespace

std::int64_t Offset::of(std::int64_t b) const {
  if (!each_.defined()) return all_.value_or(0);
  if (each_.rank() != 1) throw Error(Error::Kind::shape, "Offset", "positions (b)", each_.shape().str());
  if (b < 0 || b >= each_.numel())
    throw Error(Error::Kind::argument, "Offset", "an item from 0 to " + std::to_string(each_.numel() - 1),
                std::to_string(b));
  return entry(each_, b);
}

Pieces pieces(const Sizes& p, const AttentionOptions& options, std::pmr::memory_resource* memory) {
  const Mask& mask = options.mask;
  Pieces all(memory);
  if (mask.query_starts.defined()) {
    add_sequences(options, all);
  } else {
    add_items(p, options, all);
  }
  for (Piece& piece : all) {
    piece.shift = shift(options, piece);
    piece.left = side(mask.window_left);
    piece.right = mask.is_causal ? 0 : side(mask.window_right);
  }
  return all;
}

Tensor seen_keys(const Sizes& p, const AttentionOptions& options) {
  const Pieces all = pieces(p, options);
  Tensor keep = Tensor::zeros({different_items(p, all), 1, p.tq, p.tk}, DType::boolean);
  for_each_item(p, all, [&](std::int64_t b, const Piece& piece) {
    for (std::int64_t i = 0; i < piece.tq; ++i) {
      bool* row = keep.data<bool>() + (b * p.tq + piece.query + i) * p.tk + piece.key;
      const std::int64_t centre = piece.centre(i);
      for (std::int64_t j = 0; j < piece.tk; ++j) row[j] = centre - j <= piece.left && j - centre <= piece.right;
    }
  });
  return keep;
}

Tensor distances(const Sizes& p, const AttentionOptions& options) {
  const Pieces all = pieces(p, options);
  Tensor result = Tensor::zeros({different_items(p, all), 1, p.tq, p.tk}, DType::i64);
  for_each_item(p, all, [&](std::int64_t b, const Piece& piece) {
    for (std::int64_t i = 0; i < piece.tq; ++i) {
      std::int64_t* row = result.data<std::int64_t>() + (b * p.tq + piece.query + i) * p.tk + piece.key;
      for (std::int64_t j = 0; j < piece.tk; ++j) row[j] = j - piece.centre(i);
    }
  });
  return result;
}

Tensor alibi_bias(const Sizes& p, const AttentionOptions& options) {
  const Tensor all = distances(p, options);
  Tensor bias = Tensor::empty({all.size(0), p.hq, p.tq, p.tk}, DType::f64);
  const std::int64_t cells = p.tq * p.tk;
  for (std::int64_t head = 0; head < all.size(0) * p.hq; ++head) {
    const double slope = options.alibi_slopes.at({head % p.hq});
    const std::int64_t* distance = all.data<std::int64_t>() + head / p.hq * cells;
    double* out = bias.data<double>() + head * cells;
    for (std::int64_t i = 0; i < cells; ++i) out[i] = -slope * static_cast<double>(std::abs(distance[i]));
  }
  return bias;
}

}  // namespace attn
