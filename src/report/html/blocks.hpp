// A trace put in order: blocks (layers) of named steps, every one with its heads apart.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attn/report.hpp"

namespace attn::report_page {

using Steps = std::vector<std::pair<std::string, Tensor>>;

// Steps of one module, contiguous, in the order and of the shapes that attn/steps.hpp names.
struct Block {
  std::string label;  // of the layer, "" for the only one
  Steps steps;        // float32
  Steps recorded;     // the same in the dtypes in which they were recorded
  Tensor sinks;       // a score for each head (h, 1, 1), as recorded; undefined where there are none

  const Tensor* find(std::string_view name) const noexcept;
  const Tensor& weights() const { return *find("weights"); }
  // The scores whose rows softmax took, null where none were recorded.
  const Tensor* softmax_input() const noexcept;
  // Are these weights alone, and those of all later keys exactly 0? Then a causal mask was there, though not recorded.
  bool looks_causal() const noexcept;
  // (h, tq, tk) boolean, false where a key is masked: by the step "masked", or because the weights look causal.
  // Undefined where nothing tells of a mask.
  Tensor keep() const;
  // (tq, tk), false where a key is masked in every head.
  Tensor keep_in_any_head() const;
};

struct Blocks {
  std::vector<Block> blocks;
  std::int64_t batch = 0;              // texts in the trace, 0 when it has no such dimension
  std::int64_t queries = 0, keys = 0;  // tokens, of every block
};

// 2 of the label "layers.1", or of the second of blocks with other labels.
std::int64_t layer_number(const Blocks& blocks, const Block& block);

// "layer 2, head 3": where a picture of `block` comes from, in the words of the page. `head` counts from 0, and is none
// where all are drawn. What there is only one of is left out.
std::string place_of(const Blocks& blocks, const Block& block, std::optional<std::int64_t> head);

// One head's rows of a step: (tokens, size), (h, …) or, where groups of the `heads` share keys and values, fewer of
// these.
Tensor of_head(const Tensor& step, std::int64_t head, std::int64_t heads);

// f(i) for all i below n, on all threads where `operations` are many. Throws what the first of them that throws has
// thrown.
void for_each(std::int64_t n, double operations, const std::function<void(std::int64_t)>& f);

// Text `item` of the trace. Throws Error as report() does.
Blocks arrange(const Trace& trace, std::int64_t item);

}  // namespace attn::report_page
