// Experiments on a model that reads a text: edits of its forward pass, and what follows from them. Tables (layers,
// heads) have as many columns as the layer of most heads; NaN stands where a layer has fewer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/edits.hpp"
#include "attn/encoder.hpp"
#include "attn/language_model.hpp"
#include "attn/trace.hpp"

namespace attn {

// ---- edits ------------------------------------------------------------------------------------

// A head that is switched off gives one of these. zero: nothing, and the output projection's bias stays (Michel et al.
// 2019). mean: its mean over the positions of the text. uniform: the mean of the values that each query sees, that is,
// attention that looks everywhere alike.
enum class By { zero, mean, uniform };
Edit without(HeadAt at, By by = By::zero);
Edit without_heads_of(std::int64_t layer, By by = By::zero);
// The head gives `context` instead, (head_dim) or (t, head_dim): the mean of other texts, or another text's.
Edit without(HeadAt at, const Tensor& context);
// Does the same for all heads of a layer: (heads, head_dim) or (heads, t, head_dim).
Edit without_heads_of(std::int64_t layer, const Tensor& contexts);
using Contexts = std::vector<Tensor>;  // of each layer its heads', of either shape
// All heads but these are switched off, in every layer of a model that has these sizes.
Edits keep_only(std::span<const HeadAt> heads, const LanguageModelConfig& config, By by = By::zero);
// The heads that are switched off give `contexts`, as mean_contexts() and text_contexts() return them.
Edits keep_only(std::span<const HeadAt> heads, const LanguageModelConfig& config, const Contexts& contexts);
// Multiplies what the head gives by a factor.
Edit scale(HeadAt at, double factor);
// The head gives what it gave in another pass of as many tokens, whose context is in `steps`. Of the same text it has
// the bits of that pass where this one is recorded, too: others are computed by the kernels, which round otherwise.
Edit patch(HeadAt at, const Trace& steps, const LanguageModelConfig& config);

// A head's weights: alike for all keys that a query sees, all on the token before (the first token: on itself), none.
enum class Weights { uniform, previous, none };
Edit reweigh(HeadAt at, Weights weights);
// No query of the head, or of all heads of the layer, sees this key. Where none is left to be seen the weights are 0.
Edit hide(HeadAt at, std::int64_t key, const LanguageModelConfig& config);
Edit hide(std::int64_t layer, std::int64_t key, const LanguageModelConfig& config);
Edits hide(std::int64_t key, const LanguageModelConfig& config);  // from all heads of all layers

Edit skip_layer(std::int64_t layer);  // what comes out is what went in
Edit skip_attention(std::int64_t layer);
Edit skip_feed_forward(std::int64_t layer);
// A step by its name in a trace, or one head of it, becomes `value`, or is scaled.
Edit replace_step(std::string step, const Tensor& value, std::optional<std::int64_t> head = {});
Edit scale_step(std::string step, double factor, std::optional<std::int64_t> head = {});

// Throws Error (argument) where one of these edits changes nothing of the logits, since another takes the place of what
// it gives: a head that is scaled and switched off, or anything in a layer that is skipped. A pass takes them all the
// same, and its trace, head_changes(), rollout() and head_scores() may show what they change inside.
void refuse_overwritten(const Edits& edits, const LanguageModelConfig& config);

// ---- one pass, by LanguageModel::forward(ids, {.edits = …}) ---------------------------------------

// -log of the probability of each token after the first, (t - 1) float64, for logits (t, vocab_size) of ids (t).
Tensor token_losses(const Tensor& logits, const Tensor& ids);
double mean_of(const Tensor& values);
// log softmax of one row of logits, float64 (vocab_size).
Tensor log_probabilities(const Tensor& row);

// Returns what each head gives on average over all tokens of some texts, each int64 (t), for the edits above. Throws
// Error (argument) where there is no text.
Contexts mean_contexts(LanguageModel& model, std::span<const Tensor> texts);
Contexts mean_contexts(Encoder& encoder, std::span<const Tensor> texts);
// Returns what each head gives at each token of one text: (heads, t, head_dim).
Contexts text_contexts(LanguageModel& model, const Tensor& ids);
Contexts text_contexts(Encoder& encoder, const Tensor& ids);

// Returns how much edits change what each head gives: |z' - z| / |z| over all positions, float64 (layers, heads).
Tensor head_changes(LanguageModel& model, const Tensor& ids, const Edits& edits);
Tensor head_changes(Encoder& encoder, const Tensor& ids, const Edits& edits);

// ---- two models -------------------------------------------------------------------------------

// Two models that read one text, say two checkpoints of a run: `model` and `other`, both with the same edits.
struct Comparison {
  Tensor losses, other_losses;  // float64 (t - 1), as token_losses() has them
  Tensor next, other_next;      // float64 (vocab_size): log probabilities of what follows the text
  Tensor heads;                 // float64 (layers, heads): |z' - z| / |z| over all positions, z' of a head of `other`
};
// Heads are compared by their place, and by numbers of one meaning where both come from one run. Throws Error
// (argument) for models that differ in layers, heads, head_dim or vocabulary, which it names.
Comparison compare(LanguageModel& model, LanguageModel& other, const Tensor& ids, const Edits& edits = {});

// ---- every head at once -----------------------------------------------------------------------

// Two tokens, whose logits at the last position are compared: logit of `a` less that of `b`.
struct TokenPair {
  std::int64_t a = 0, b = 0;
};

// The measure is the mean loss of the text or, with `tokens`, the logit difference of two tokens.
struct EffectOptions {
  By by = By::zero;
  std::optional<TokenPair> tokens = {};
  Edits edits = {};        // that act in every pass, before and after
  Contexts contexts = {};  // what a head gives in place of `by`: of other texts
  // How many heads are switched off, those of the largest estimates; the others are estimated alone. None: all heads
  // are switched off, and nothing is estimated.
  std::optional<std::int64_t> exact = {};
};
struct Effects {
  double before = 0;
  Tensor after;           // float64 (layers, heads): with that head switched off; NaN where it is estimated alone
  Tensor estimates = {};  // float64 (layers, heads), of all heads; undefined where nothing is estimated
  double error = 0;       // the mean of |estimates - after| over the heads that have both; 0 where none has
};
// One pass keeps what goes into each layer. Then, for each layer, the passes without one of its heads begin there, all
// together: the bits are those of each alone.
//
// Estimates take one pass and its gradient for all heads together (attribution patching, Nanda 2023; Syed et al. 2023):
// before + Σ d(measure)/d(context) · (what the head gives then - context), which is right for small changes. They are
// refused beside edits, whose derivatives nobody gives, in layers that keep a state or have latents, and of matrices in
// fewer than 16 bits: Error (argument, dtype).
Effects head_effects(LanguageModel& model, const Tensor& ids, const EffectOptions& options = {});

// Direct logit attribution: what each part adds to a logit, or to the difference of two, at one position. The norms
// behind a part are linear once their scales are those of this pass. It is of logits before a softcap.
struct Attribution {
  double embedding = 0, bias = 0;       // of the last norm
  Tensor heads, biases, feed_forwards;  // float64 (layers, heads), and (layers): the output projections' biases, …
  double sum = 0;                       // of all of these
  double logit = 0;                     // what the model computes
};
Attribution attribution(LanguageModel& model, const Tensor& ids, std::int64_t a, std::optional<std::int64_t> b = {},
                        std::optional<std::int64_t> position = {}, const Edits& edits = {});

// The logit lens (nostalgebraist 2020): the last norm and the head read what goes into each layer, and last what comes
// out of the last one, where it is the model.
struct Lens {
  Tensor tokens;       // int64 (layers + 1, t): the likeliest next token
  Tensor probability;  // float64, of that token
  Tensor losses;       // float64 (layers + 1, t - 1), of the text's next token
};
Lens logit_lens(LanguageModel& model, const Tensor& ids, const Edits& edits = {});

// Attention rollout (Abnar & Zuidema 2020): (layers, t, t), R_l = (A_l + I) / 2 · R_{l-1}, A_l the mean of the heads'
// weights. Rows are divided by their sums, which are 1 already unless a sink takes weight. Where the layer or its
// attention is skipped, R_l is R_{l-1}.
Tensor rollout(LanguageModel& model, const Tensor& ids, const Edits& edits = {});
Tensor rollout(Encoder& encoder, const Tensor& ids, const Edits& edits = {});

// Activation patching (Zhang & Nanda 2023): a pass on the text `corrupt`, of which one part is that of the pass on
// `clean`. 1: the logit difference is clean's; 0: it is corrupt's. Both texts have as many tokens. Edits act in every
// pass, before what is patched. Throws Error where the texts differ in length, or not in the tokens' logits.
struct Patching {
  double clean = 0, corrupt = 0;  // logit differences at the last position
  Tensor stream;                  // float64 (layers, t): what goes into a layer, at one position
  Tensor heads;                   // float64 (layers, heads): what a head gives, at all positions
};
Patching patching(LanguageModel& model, const Tensor& clean, const Tensor& corrupt, TokenPair tokens,
                  const Edits& edits = {});

// Scores of heads as TransformerLens has them, on n tokens read twice, ids (2n): the mean weight from a token on the
// one before it, from a token of the second reading on itself in the first, and on the token behind that. Float64
// (layers, heads).
struct HeadScores {
  Tensor previous, duplicate, induction;
};
HeadScores head_scores(LanguageModel& model, const Tensor& twice, const Edits& edits = {});

}  // namespace attn
