// One query's way through a module, with the arithmetic written out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attn/modules.hpp"
#include "attn/trace.hpp"
#include "common/terminal.hpp"

namespace attn::tool {

// A module that has run: what it is, and what it has read.
struct Walked {
  std::string module;  // as attn run names them
  ModuleConfig config;
  StateDict parameters;
  std::string name, context_name;                   // of the inputs
  Tensor x, context;                                // the second is CrossAttention's, and undefined elsewhere
  std::vector<std::string> tokens, context_tokens;  // one a row, or none
  std::optional<std::uint64_t> seed;                // of its weights, where that is told
};

struct WalkOptions {
  std::optional<std::int64_t> query;     // counted from 1; else the second, or the only one
  std::int64_t head = 1;                 // counted from 1
  std::optional<std::int64_t> key = {};  // counted from 1: one that is shown however small its weight is
};

class Walk {
 public:
  // `steps` is the trace of the module's forward pass. Both have to outlive it. Throws Error (argument) for a query, a
  // head or a key that is not there, and (shape) for inputs that are empty.
  Walk(const Walked& walked, const Trace& steps, const WalkOptions& options, const Style& style);

  std::string text();

 private:
  using Row = std::vector<double>;

  // ---- the recorded numbers
  bool has(std::string_view step) const;
  Tensor matrix(std::string_view step) const;  // of the first batch and the chosen head
  Row row(std::string_view step, std::int64_t i) const;
  Tensor keep() const;                            // of the weights: false where a key is masked
  Tensor parameter(std::string_view name) const;  // undefined when the module has none of that name
  std::vector<std::int64_t> shown(std::int64_t count, std::int64_t always, std::int64_t key = -1) const;
  std::vector<std::int64_t> by_weight() const;   // the keys, the one with the largest weight first
  std::vector<std::int64_t> shown_keys() const;  // all, or in order those that matter most and the query's own
  std::string_view final_weights() const { return has("dropped") ? "dropped" : "weights"; }
  std::string label(std::int64_t token) const;
  std::string key_label(std::int64_t key) const;

  // ---- one section each; heading() numbers them
  std::string heading(std::string_view title);
  std::string intro() const;
  std::string inputs();
  std::string projections();
  std::string projection(std::string_view letter, std::string_view step) const;
  // A line for each number of result = x · weightᵀ + bias that is shown, from row `first` of the weight on.
  std::string components(std::string_view letter, const Row& x, const Tensor& weight, const Tensor& bias,
                         std::int64_t first, const Row& result) const;
  std::string rows(std::string_view letter, std::string_view step) const;
  std::string rotation();
  std::string turned(std::string_view letter, std::string_view step, std::string_view rotated) const;
  std::string scores();
  std::string scaling();
  std::string masking();
  std::string softmax();
  std::string dropout();
  std::string context();
  std::string averaging();
  std::string recurrence();  // in recurrence.cpp, as the next three
  std::string faded(const Tensor& state);
  std::string corrected(const Tensor& state, const Row& key, Row& value);
  std::string normalisation();
  std::string latents();  // in latent.cpp, as the next two
  std::string latent_projections();
  std::string absorbed();
  // A line of each index, without blanks at its end, and a gap where some are left out.
  static std::string each_line(const std::vector<std::int64_t>& indices,
                               const std::function<std::string(std::int64_t)>& line_of);
  std::string output_projection();
  std::string all_queries();

  const Walked& walked_;
  const Trace& steps_;
  Style style_;
  std::int64_t query_, head_, heads_, keys_;  // query and head counted from 0
  std::int64_t key_ = -1;                     // as well; none
  bool batched_;
  int section_ = 0;
};

}  // namespace attn::tool
