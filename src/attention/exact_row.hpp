// One query's attention and its gradient by the definition, in double: for numbers that the kernels' float32 does not
// hold, and for infinities and NaN. Only keys that the query sees are read, so that what a mask hides reaches nothing.
#pragma once

#include <span>
#include <vector>

#include "attention/call.hpp"

namespace attn {

// Query i of head h of a part's item b.
struct RowPlace {
  const Part& part;
  std::int64_t b, h, i;

  std::int64_t item() const { return part.piece.batch + b; }
  std::int64_t query() const { return part.piece.query + i; }
  std::int64_t key_head() const { return h / (part.problem.hq / part.problem.hkv); }
  // Whether it sees key j of the part, by intervals, masks, blocks and biases of -inf.
  bool sees(std::int64_t j) const;
  // Whether there is such a key, or a sink.
  bool sees_any() const;
};

// A backward pass takes these beside its call.
struct Incoming {
  Tensor d_output, output, lse;
};

// The gradients of one key head's keys and values, to which its rows add.
struct KeyGradients {
  std::vector<double> k, v;  // (keys of the part, d) and (keys, dv)
  std::vector<char> nan;     // keys of which everything is NaN

  KeyGradients(std::int64_t keys, std::int64_t d, std::int64_t dv);
};

class ExactRow {
 public:
  ExactRow(const Call& call, const Sizes& p, const AttentionOptions& options, const RowPlace& place);

  double lse() const { return lse_; }
  // The weight of key j of the part, before dropout.
  double weight(std::int64_t j) const {
    const auto n = static_cast<std::size_t>(j - first_);
    return n < weights_.size() ? weights_[n] : 0;
  }
  // Values that are not finite are left out.
  std::vector<double> output() const;
  // Adds the row's gradients: q's and the biases' to `grad`, of float32.
  void add_gradient(const Incoming& in, const AttentionGradient& grad, KeyGradients& keys) const;

 private:
  // A score function's -inf forbids a key, but does not hide infinities and NaN in its value, which only masks do.
  enum class Sight : char { none, forbidden, seen };

  std::vector<double> row(const Tensor& t, std::int64_t head, std::int64_t token) const;
  template <class F>
  void for_each_seen(const Tensor& t, const F& f) const;
  double kept(std::size_t n) const;
  template <class F>
  void with_score_tile(const F& f) const;
  void compute_scores();
  void add_biases();
  void compute_weights();
  void spread_nan(const AttentionGradient& grad, KeyGradients& keys) const;
  void add_to_biases(const AttentionGradient& grad, std::size_t n, double d_score) const;
  std::vector<double> score_gradients(std::span<const double> weights, const std::vector<double>& d_output,
                                      const std::vector<double>* output) const;

  const Call& call_;
  const Sizes& p_;
  const AttentionOptions& options_;
  RowPlace at_;
  std::int64_t first_;  // key of the part, to which the vectors' first numbers belong
  std::vector<double> q_, capped_, slopes_, scores_, weights_;  // slopes: of the softcap
  std::vector<Sight> sees_;
  double lse_ = 0;
};

}  // namespace attn
