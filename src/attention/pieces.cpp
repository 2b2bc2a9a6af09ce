#include "attention/pieces.hpp"

#include <algorithm>
#include <cstdlib>

namespace attn {
namespace {

std::int64_t entry(const Tensor& t, std::int64_t i) { return t.data<std::int64_t>()[i * t.stride(0)]; }

std::int64_t shift(const Mask& mask, std::int64_t tq, std::int64_t tk) {
  return mask.align == Align::bottom_right ? tk - tq : 0;
}

// Keys on one side of a query: -1 is no limit, nor is a window wider than any distance.
std::int64_t side(std::int64_t window) { return window < 0 ? Piece::kEvery : std::min(window, Piece::kEvery); }

std::vector<Piece> sequences(const Mask& mask) {
  std::vector<Piece> all;
  for (std::int64_t s = 0; s + 1 < mask.query_starts.numel(); ++s) {
    Piece piece{};
    piece.batches = 1;
    piece.query = entry(mask.query_starts, s), piece.tq = entry(mask.query_starts, s + 1) - piece.query;
    piece.key = entry(mask.key_starts, s), piece.tk = entry(mask.key_starts, s + 1) - piece.key;
    if (piece.tq > 0 || piece.tk > 0) all.push_back(piece);
  }
  return all;
}

std::vector<Piece> items(const Problem& p, const Mask& mask) {
  std::vector<Piece> all;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::int64_t tk = mask.key_lengths.defined() ? entry(mask.key_lengths, b) : p.tk;
    if (!mask.key_lengths.defined()) return {Piece{0, p.batch, 0, p.tq, 0, p.tk, 0, 0, 0}};
    if (!all.empty() && all.back().tk == tk) {
      ++all.back().batches;
    } else {
      all.push_back({b, 1, 0, p.tq, 0, tk, 0, 0, 0});
    }
  }
  return all;
}

// f(b, piece) for every batch item that has positions of its own.
template <class F>
void for_each_item(const Problem& p, const Mask& mask, F&& f) {
  for (const Piece& piece : pieces(p, mask)) {
    const bool alike = piece.batches == p.batch;
    for (std::int64_t b = 0; b < (alike ? 1 : piece.batches); ++b) f(piece.batch + b, piece);
  }
}

// How many items have positions of their own: 1 when all are alike.
std::int64_t different_items(const Problem& p, const Mask& mask) {
  const auto all = pieces(p, mask);
  return all.empty() || all.front().batches == p.batch ? std::min<std::int64_t>(p.batch, 1) : p.batch;
}

}  // namespace

Piece::Keys Piece::seen(std::int64_t i) const {
  const std::int64_t first = std::clamp<std::int64_t>(centre(i) - left, 0, tk);
  return {first, std::clamp<std::int64_t>(centre(i) + right + 1, first, tk)};
}

std::vector<Piece> pieces(const Problem& p, const Mask& mask) {
  std::vector<Piece> all = mask.query_starts.defined() ? sequences(mask) : items(p, mask);
  for (Piece& piece : all) {
    piece.shift = shift(mask, piece.tq, piece.tk);
    piece.left = side(mask.window_left);
    piece.right = mask.is_causal ? 0 : side(mask.window_right);
  }
  return all;
}

Tensor seen_keys(const Problem& p, const Mask& mask) {
  Tensor keep = Tensor::zeros({different_items(p, mask), 1, p.tq, p.tk}, DType::boolean);
  for_each_item(p, mask, [&](std::int64_t b, const Piece& piece) {
    for (std::int64_t i = 0; i < piece.tq; ++i) {
      bool* row = keep.data<bool>() + (b * p.tq + piece.query + i) * p.tk + piece.key;
      const std::int64_t centre = piece.centre(i);
      for (std::int64_t j = 0; j < piece.tk; ++j) row[j] = centre - j <= piece.left && j - centre <= piece.right;
    }
  });
  return keep;
}

Tensor alibi_bias(const Problem& p, const Mask& mask, const Tensor& slopes) {
  Tensor bias = Tensor::zeros({different_items(p, mask), p.hq, p.tq, p.tk}, DType::f64);
  for_each_item(p, mask, [&](std::int64_t b, const Piece& piece) {
    for (std::int64_t h = 0; h < p.hq; ++h) {
      const double slope = slopes.at({h});
      for (std::int64_t i = 0; i < piece.tq; ++i) {
        double* row = bias.data<double>() + ((b * p.hq + h) * p.tq + piece.query + i) * p.tk + piece.key;
        const std::int64_t centre = piece.centre(i);
        for (std::int64_t j = 0; j < piece.tk; ++j) row[j] = -slope * static_cast<double>(std::abs(centre - j));
      }
    }
  });
  return bias;
}

}  // namespace attn
