// Rotary positions (Su et al. 2021, "RoFormer", section 3.4): pairs of a vector's numbers turn by angles that grow with
// the token's position, so that a query's product with a key depends on the distance between the two alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attn/tensor.hpp"

namespace attn {

// ---- rotation -------------------------------------------------------------------------

// Which two of a vector's first rotary_dim numbers turn together.
enum class RotaryLayout {
  halves,       // i and i + rotary_dim / 2, as Hugging Face's models have them
  interleaved,  // 2i and 2i + 1, as in the paper
};

struct RotaryFrequencies {
  std::vector<float> inv_freq = {};  // (rotary_dim / 2) radians a token, of each pair
  double attention_factor = 1;       // cos and sin are multiplied by it
  RotaryLayout layout = RotaryLayout::halves;
};

// Each position turns by its row, float32 (t, rotary_dim / 2), or (b, t, rotary_dim / 2) where batch items differ.
struct RotaryTable {
  Tensor cos = {}, sin = {};
  RotaryLayout layout = RotaryLayout::halves;
};

// The angle is float32(position) · inv_freq, rounded to float32 as transformers rounds it; cos and sin are those of
// that angle, rounded once, then multiplied by the attention factor. So an angle of a radians errs by up to 6e-8 · a,
// which at a million tokens is 0.03 for the fastest pairs: models were trained with that. positions int64 (t) or (b,
// t), none negative. Throws Error for what does not fit.
RotaryTable rotary_table(const RotaryFrequencies& frequencies, const Tensor& positions);
// The table of the positions from `offset` on.
RotaryTable rotary_table(const RotaryFrequencies& frequencies, std::int64_t tokens, std::int64_t offset = 0);
// The rows of a table (n, rotary_dim / 2) by position, each below n: a table is computed once, and read by many calls.
RotaryTable rotary_rows(const RotaryTable& table, const Tensor& positions);

// x (…, t, d) of a floating dtype and any strides, d at least rotary_dim; a table of batch items takes x (b, …, t, d).
// Elements past rotary_dim stay. It computes in float32 (float64 where x is); a finite value past the dtype's
// range becomes its largest. An element's bits depend on its vector and its position alone. The result's dimensions lie
// in memory in the order of x's. Throws Error for shapes and dtypes that do not fit.
Tensor rotary(const Tensor& x, const RotaryTable& table);
// dx, for the gradient dy of the result: the rotation back, times the square of what it scaled by.
Tensor rotary_backward(const Tensor& dy, const RotaryTable& table);
// The same in x's own memory, where no element may lie twice.
void rotary_in_place(const Tensor& x, const RotaryTable& table);

// ---- frequencies ----------------------------------------------------------------------

// How a model stretches its positions, by the names of transformers' rope_type ("default" is standard).
enum class RopeType { standard, linear, dynamic, yarn, llama3, longrope };

// A model's rope parameters, by the names of its config.json.
struct RopeConfig {
  RopeType type = RopeType::standard;
  std::int64_t head_dim = 0;
  double theta = 10000;
  double partial_rotary_factor = 1;                   // rotary_dim is head_dim times this, without its fraction
  std::int64_t max_position_embeddings = 0;           // dynamic; yarn and longrope where they have no factor
  std::int64_t original_max_position_embeddings = 0;  // yarn, llama3, longrope
  std::optional<double> factor = {};                  // default, of yarn and longrope: longest / original
  std::optional<double> attention_factor = {};        // yarn, longrope; default by the factor
  double beta_fast = 32, beta_slow = 1;               // yarn, as the next four
  double mscale = 0, mscale_all_dim = 0;
  bool truncate = true;
  double low_freq_factor = 1, high_freq_factor = 4;         // llama3
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: (rotary_dim / 2)
  RotaryLayout layout = RotaryLayout::halves;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
  std::int64_t rotary_dim() const;  // throws Error (argument) unless it is even, from 2 to head_dim
};

// The frequencies that transformers computes. `length` is how many positions they are to serve: past
// max_position_embeddings dynamic has a larger base, and past the original length longrope has its long factors. A
// cache's keys were turned by the frequencies of the length at the time. Throws Error (argument) for numbers that give
// no finite frequencies.
RotaryFrequencies rotary_frequencies(const RopeConfig& config, std::int64_t length = 0);

// Reads a model's config.json: rope_theta and rope_scaling, or rope_parameters, which may be nested by layer type; also
// rope_local_base_freq, of sliding_attention. `default_theta` is the family's own. Throws Error (data) for what is no
// such config, and for a rope_type that is not one of the above. In a library built without ATTN_IO it is not there.
RopeConfig parse_rope_config(std::string_view json, std::string_view layer_type = {}, double default_theta = 10000,
                             std::string_view source = {});

}  // namespace attn
