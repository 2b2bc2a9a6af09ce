// Numbers that tell what a head does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attn/tensor.hpp"

namespace attn::report_page {

// Means over the queries that see any key.
struct HeadScores {
  double entropy = 0;   // -Σ w ln w, in nats: 0 looks at one key, ln(n) at n keys alike
  double distance = 0;  // Σ w |i - j|, in tokens
  double first = 0;     // weight on the first key: the attention sink
  double previous = 0;  // weight on the token before the query's own; a mean over the queries that have one
  double diagonal = 0;  // weight on the query's own token
};

HeadScores head_scores(const Tensor& weights);  // (tq, tk)

// Where a head looks while it reads n tokens for the second time: mean weights of these n queries. Each key counts
// once, as the first of these that it is.
struct HeadKinds {
  double first = 0;      // the first token of all
  double previous = 0;   // the token just before
  double same = 0;       // an earlier token that is the query's own
  double induction = 0;  // a token that came after such an earlier one (Olsson et al. 2022)
};

// weights (2n, 2n) of n ids, twice.
HeadKinds head_kinds(const Tensor& weights, std::span<const std::int64_t> ids);

// A head is named by its largest kind from this on.
constexpr double kNamed = 0.4;

// Layer and head, from 0, of the strongest head that has a name, in `layer` alone where that is given: of the induction
// heads, else of those of the previous, then the same, then the first token.
std::optional<std::pair<std::int64_t, std::int64_t>> strongest_head(const std::vector<std::vector<HeadKinds>>& layers,
                                                                    std::optional<std::int64_t> layer);

}  // namespace attn::report_page
