// Measures a pass.
#pragma once

#include "attn/experiment.hpp"

namespace attn::experiment {

inline constexpr const char* kOp = "experiment";

// Float64 (layers, heads), as many as the layer of most heads has: NaN, which stays where a layer has fewer.
Tensor table_of_heads(const LanguageModelConfig& config);

// "4 layers of 3 heads", or "3 layers of 6, 4 and 6 heads".
std::string heads_in_words(const LanguageModelConfig& config);

// Whether what heads give can be compared by their places: the same mixers, as many heads, of one size.
bool heads_alike(const LanguageModelConfig& a, const LanguageModelConfig& b);

// logits[a] - logits[b] of the last row of (t, vocab).
double logit_difference(const Tensor& logits, TokenPair tokens);
// Throws Error (argument) for a token outside the vocabulary.
void check(TokenPair tokens, const LanguageModelConfig& config);

// The mean loss of ids (t), or the logit difference of two tokens at the last position, of logits (t, vocab).
double measure(const Tensor& logits, const Tensor& ids, const std::optional<TokenPair>& tokens);

// The measure of each text of hidden states (b, t, width), of which only a part's logits are in memory at a time.
std::vector<double> measured(LanguageModel& model, const Tensor& hidden, const Tensor& ids,
                             const std::optional<TokenPair>& tokens);

// ids (t) → (1, t). Throws Error for another shape.
Tensor one_text(const Tensor& ids);

// Mean, over rows of x (b, t, n), of the numbers in each column: (b, 1, n).
Tensor mean_rows(const Tensor& x);

// x (1, t, n) as n_items items that share nothing.
Tensor repeated(const Tensor& x, std::int64_t items);

// How many texts of t tokens are computed together: more gain nothing, and take memory.
inline std::int64_t together(std::int64_t t) { return std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(t, 1)); }

}  // namespace attn::experiment
