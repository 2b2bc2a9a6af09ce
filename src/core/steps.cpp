#include "attn/steps.hpp"

#include <algorithm>
#include <array>

namespace attn {
namespace {

using enum StepKind;

constexpr std::array kSteps{
    Step{"inputs", tokens, false, "Inputs", "One embedding for each word."},
    Step{"source", tokens, true, "Source", "The other text's embeddings."},
    Step{"compressed", tokens, true, "Compressed", "Each word in few numbers: x · W_a, before its norm."},
    Step{"latents", tokens, true, "Latents",
         "What a cache keeps of each word: all heads' keys and values are made of it."},
    Step{"query latents", tokens, false, "Query latents", "Each word in few numbers, of which its queries are made."},
    Step{"queries", heads, false, "Queries", "What each word looks for: x · W_query."},
    Step{"keys", heads, true, "Keys", "What each word offers: x · W_key."},
    Step{"values", heads, true, "Values", "What each word gives: x · W_value."},
    Step{"rotated queries", heads, false, "Rotated queries", "Each pair of a query's numbers, turned by its position."},
    Step{"rotated keys", heads, true, "Rotated keys", "Each pair of a key's numbers, turned by its position."},
    Step{"mapped queries", heads, false, "Mapped queries",
         "What the state is read by: elu + 1 of each query, or its silu made 1 long."},
    Step{"mapped keys", heads, true, "Mapped keys", "Where the state is written: as the mapped queries, of keys."},
    Step{"beta", heads, true, "Beta", "How strongly a word writes: at 1 it overwrites what its key recalls."},
    Step{"decay", heads, true, "Decay", "The logarithm of what the state keeps when a word comes."},
    Step{"scores", scores, false, "Scores", "Every query with every key: their dot products."},
    Step{"scaled", scores, false, "Scaled", "Scores times the scale, 1/√d for vectors of d numbers."},
    Step{"capped", scores, false, "Capped", "No score grows past the softcap: cap · tanh(score / cap)."},
    Step{"scored", scores, false, "Scored", "Each score as the score function changes it."},
    Step{"biased", scores, false, "Biased", "Scores and the bias of each query and key."},
    Step{"relative", scores, false, "Relative",
         "Scores and what each head has learned of the distance of query and key."},
    Step{"alibi", scores, false, "ALiBi", "Scores fall with the distance of query and key, by each head's slope."},
    Step{"masked", scores, false, "Masked", "What may not be seen is −∞."},
    Step{"weights", weights, false, "Weights", "Softmax of each row: how a word spreads its attention."},
    Step{"dropped", weights, false, "Dropped", "Training only: some weights are 0, the others larger."},
    Step{"context", heads, false, "Context", "Values summed by the weights."},
    Step{"gates", heads, false, "Gates", "What stands beside each query, and opens or closes what a head gives."},
    Step{"gated", heads, false, "Gated", "Contexts times the sigmoid of their gates."},
    Step{"normed", heads, false, "Normed",
         "Contexts by their root mean square, times a weight, and a gate if there is one."},
    Step{"merged", tokens, false, "Merged", "The heads' contexts, side by side."},
    Step{"output", tokens, false, "Output", "The output projection of what was merged."},
};

}  // namespace

std::span<const Step> known_steps() noexcept { return kSteps; }

const Step* find_step(std::string_view name) noexcept {
  const auto at = std::ranges::find(kSteps, name, &Step::name);
  return at == kSteps.end() ? nullptr : &*at;
}

}  // namespace attn
