// The steps of attention, each a plain function beside its gradient.
//
//   x ─ project ─► q, k, v ─ split_heads ─► scores ─ scale ─► mask ─► softmax ─► dropout ─► weighted_sum ─ merge_heads
//   ─► project ─► z
//
// They are slow and easy to check, and tests compare the kernels with them. All functions take any leading dimensions,
// float32 or float64 (16-bit floats are read and written too), and sum in a wider type than they store. Finite inputs
// give finite outputs: a sum past the dtype's range is stored as its largest finite value. Gradients take the gradient
// of the step's output first and return those of its inputs.
#pragma once

#include <cstdint>

#include "attn/tensor.hpp"

namespace attn::reference {

// ---- a · b, which the steps below are made of -----------------------------------------
// a (…, m, k)  b (…, k, n)  →  (…, m, n); leading dimensions broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);

// ---- project: y = x · weightᵀ + bias ------------------------------------------------
// x (…, d_in)  weight (d_out, d_in), as nn.Linear stores it  bias (d_out) or undefined  →  (…, d_out)
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
struct ProjectGradient {
  Tensor x, weight, bias;
};
ProjectGradient project_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, bool has_bias);

// ---- heads: (b, t, h·d) ↔ (b, h, t, d) ----------------------------------------------
// A view: no element moves. Throws Error when h does not divide the last dimension.
Tensor split_heads(const Tensor& x, std::int64_t num_heads);
Tensor merge_heads(const Tensor& x);

// ---- scores: s_ij = q_i · k_j -------------------------------------------------------
// q (…, tq, d)  k (…, tk, d)  →  (…, tq, tk). The two forms are those of the book's chapter 3.
Tensor scores_by_loop(const Tensor& q, const Tensor& k);
Tensor scores(const Tensor& q, const Tensor& k);
struct ScoresGradient {
  Tensor q, k;
};
ScoresGradient scores_backward(const Tensor& ds, const Tensor& q, const Tensor& k);

// ---- scale and softcap: s · scale, then cap · tanh(s / cap) (Gemma 2, section 2) ------
Tensor scale(const Tensor& s, double factor);  // its own gradient: ds · factor
Tensor softcap(const Tensor& s, double cap);
Tensor softcap_backward(const Tensor& dy, const Tensor& s, double cap);

// ---- bias: s + bias, the bias broadcast; its gradient is the sum over what it was broadcast to
Tensor add(const Tensor& s, const Tensor& bias);

// ---- mask ---------------------------------------------------------------------------
// keep (…, tq, tk) boolean, true where attention is allowed; broadcast over leading dimensions.
Tensor mask_fill(const Tensor& s, const Tensor& keep);               // -inf where it is not
Tensor mask_zero(const Tensor& weights, const Tensor& keep);         // 0 where it is not
Tensor mask_renormalise(const Tensor& weights, const Tensor& keep);  // chapter 3's other way: w · mask / row sum

// ---- normalisation over the last dimension --------------------------------------------
Tensor normalise_by_sum(const Tensor& s);  // s / Σs
Tensor softmax_naive(const Tensor& s);     // exp(s) / Σexp(s): overflows to NaN, as chapter 3 warns
// exp(s - max) / Σ; a row of -inf gives zeros. log_sum_exp, where it is given, becomes log_sum_exp(s).
Tensor softmax(const Tensor& s, Tensor* log_sum_exp = nullptr);
Tensor softmax_backward(const Tensor& dw, const Tensor& weights);
// log Σ exp(s), one dimension less; -inf for a row of -inf.
Tensor log_sum_exp(const Tensor& s);

// ---- dropout: w · keep / (1 - p) ------------------------------------------------------
Tensor dropout(const Tensor& w, const Tensor& keep, double p);  // its own gradient

// ---- weighted sum: z = w · v ----------------------------------------------------------
// w (…, tq, tk)  v (…, tk, dv)  →  (…, tq, dv). A zero weight takes nothing from its value, not even NaN.
Tensor weighted_sum(const Tensor& w, const Tensor& v);
struct WeightedSumGradient {
  Tensor weights, v;
};
WeightedSumGradient weighted_sum_backward(const Tensor& dz, const Tensor& w, const Tensor& v);

// ---- averaging the past, three ways (notebook 003, the lecture): x (…, t, d) → the mean of rows 0..i -----
enum class AverageBy { loop, triangular, softmax };
Tensor average_past(const Tensor& x, AverageBy way);
// The (t, t) weights behind the second and the third way.
Tensor average_weights(std::int64_t tokens, AverageBy way);

}  // namespace attn::reference
