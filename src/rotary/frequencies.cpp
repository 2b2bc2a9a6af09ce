// A model's rope parameters → its frequencies, in float32 and in the order of transformers' modeling_rope_utils.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "attn/error.hpp"
#include "attn/rotary.hpp"
#include "core/decimal.hpp"
#include "core/known.hpp"

namespace attn {
namespace {

constexpr const char* kFrequencies = "rotary_frequencies";

[[noreturn]] void refuse(const std::string& expected, const std::string& found) {
  throw Error(Error::Kind::argument, kFrequencies, expected, found);
}

double positive(const char* what, double value) {
  if (!(value > 0) || !std::isfinite(value)) refuse(std::string(what) + " above 0", shortest_decimal(value));
  return value;
}

double length(const char* what, std::int64_t value) {
  if (value < 1) refuse(std::string(what) + " of at least 1", std::to_string(value));
  return static_cast<double>(value);
}

double original_length(const RopeConfig& c) {
  return length("original_max_position_embeddings", c.original_max_position_embeddings);
}

double given_factor(const RopeConfig& c) {
  if (!c.factor) refuse("a factor", "none");
  return positive("factor", *c.factor);
}

// yarn and longrope stretch by this factor.
double stretch(const RopeConfig& c) {
  if (c.factor) return positive("factor", *c.factor);
  return length("max_position_embeddings", c.max_position_embeddings) / original_length(c);
}

// theta^(2i / rotary_dim) of pair i: tokens a radian.
std::vector<float> tokens_a_radian(double theta, std::int64_t dim) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    result.push_back(static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), exponent)));
  }
  return result;
}

std::vector<float> standard(double theta, std::int64_t dim) {
  std::vector<float> rates = tokens_a_radian(theta, dim);
  for (float& rate : rates) rate = 1 / rate;
  return rates;
}

// Positions are divided by the factor.
RotaryFrequencies linear(const RopeConfig& c) {
  std::vector<float> rates = standard(c.theta, c.rotary_dim());
  const auto factor = static_cast<float>(given_factor(c));
  for (float& rate : rates) rate /= factor;
  return {rates};
}

// The base grows with the length, so that the slowest pair turns as far as it did when trained.
RotaryFrequencies dynamic(const RopeConfig& c, std::int64_t wanted) {
  const auto dim = static_cast<double>(c.rotary_dim());
  const double trained = length("max_position_embeddings", c.max_position_embeddings), factor = given_factor(c);
  if (dim == 2) refuse("rotary_dim of at least 4 for dynamic", "2");
  const double growth = factor * std::max(static_cast<double>(wanted), trained) / trained - (factor - 1);
  return {standard(c.theta * std::pow(growth, dim / (dim - 2)), c.rotary_dim())};
}

// Peng et al. 2023, "YaRN": fast pairs stay, slow ones are stretched by the factor, with a ramp between.
RotaryFrequencies yarn(const RopeConfig& c) {
  const std::int64_t dim = c.rotary_dim();
  const double factor = stretch(c), original = original_length(c), size = static_cast<double>(dim);
  if (c.theta == 1) refuse("theta other than 1 for yarn", "1");
  // The pair that turns so often over the original length, as a real number.
  const auto pair_of = [&](double turns) {
    return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.theta));
  };
  double low = pair_of(positive("beta_fast", c.beta_fast)), high = pair_of(positive("beta_slow", c.beta_slow));
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, size - 1);
  if (low == high) high += 0.001;

  std::vector<float> rates = tokens_a_radian(c.theta, dim);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const float along = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1 - std::clamp(along, 0.F, 1.F);
    const float as_trained = 1 / rates[i], stretched = 1 / (static_cast<float>(factor) * rates[i]);
    rates[i] = stretched * (1 - kept) + as_trained * kept;
  }
  const auto temperature = [&](double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; };
  const bool both = c.mscale != 0 && c.mscale_all_dim != 0;
  return {rates,
          c.attention_factor.value_or(both ? temperature(c.mscale) / temperature(c.mscale_all_dim) : temperature(1))};
}

// Llama 3.1's: pairs slower than a wavelength are stretched, faster ones stay, and those between are blended.
RotaryFrequencies llama3(const RopeConfig& c) {
  const double original = original_length(c);
  const double low = positive("low_freq_factor", c.low_freq_factor);
  const double high = positive("high_freq_factor", c.high_freq_factor);
  if (low == high) refuse("high_freq_factor above low_freq_factor", "both " + shortest_decimal(low));
  const auto factor = static_cast<float>(given_factor(c)), longest = static_cast<float>(original / low),
             shortest = static_cast<float>(original / high);
  std::vector<float> rates = standard(c.theta, c.rotary_dim());
  for (float& rate : rates) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / rate;
    if (wavelength > longest) {
      rate /= factor;
    } else if (wavelength >= shortest) {
      const float smooth =
          (static_cast<float>(original) / wavelength - static_cast<float>(low)) / static_cast<float>(high - low);
      rate = (1 - smooth) * rate / factor + smooth * rate;
    }
  }
  return {rates};
}

// Ding et al. 2024, "LongRoPE": each pair has a factor of its own, one for short texts and one for long.
RotaryFrequencies longrope(const RopeConfig& c, std::int64_t wanted) {
  const std::int64_t dim = c.rotary_dim();
  const double original = original_length(c), factor = stretch(c);
  const std::vector<double>& factors = static_cast<double>(wanted) > original ? c.long_factor : c.short_factor;
  for (const auto* list : {&c.short_factor, &c.long_factor}) {
    if (static_cast<std::int64_t>(list->size()) == dim / 2) continue;
    refuse("rotary_dim / 2 = " + std::to_string(dim / 2) + " numbers in short_factor and long_factor",
           std::to_string(list->size()));
  }
  std::vector<float> rates = tokens_a_radian(c.theta, dim);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    rates[i] = 1 / (static_cast<float>(positive("a factor of each pair", factors[i])) * rates[i]);
  }
  const double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  return {rates, c.attention_factor.value_or(usual)};
}

RotaryFrequencies computed(const RopeConfig& c, std::int64_t wanted) {
  switch (c.type) {
    case RopeType::linear:
      return linear(c);
    case RopeType::dynamic:
      return dynamic(c, wanted);
    case RopeType::yarn:
      return yarn(c);
    case RopeType::llama3:
      return llama3(c);
    case RopeType::longrope:
      return longrope(c, wanted);
    case RopeType::standard:
      break;
  }
  return {standard(c.theta, c.rotary_dim())};
}

}  // namespace

std::int64_t RopeConfig::rotary_dim() const {
  constexpr std::int64_t kMost = 1 << 20;
  if (head_dim < 2 || head_dim > kMost) refuse("head_dim from 2 to 2^20", std::to_string(head_dim));
  const double size = static_cast<double>(head_dim) * partial_rotary_factor;
  if (!(size >= 2 && size <= static_cast<double>(head_dim))) {
    refuse("rotary_dim = head_dim · partial_rotary_factor from 2 to head_dim = " + std::to_string(head_dim),
           shortest_decimal(size));
  }
  const auto dim = static_cast<std::int64_t>(size);
  if (dim % 2 != 0) refuse("an even rotary_dim = head_dim · partial_rotary_factor", std::to_string(dim));
  return dim;
}

RotaryFrequencies rotary_frequencies(const RopeConfig& config, std::int64_t length) {
  require_known(kFrequencies, "type", config.type, RopeType::longrope);
  require_known(kFrequencies, "layout", config.layout, RotaryLayout::interleaved);
  positive("theta", config.theta);
  if (length < 0) refuse("a length of at least 0", std::to_string(length));
  RotaryFrequencies result = computed(config, length);
  result.layout = config.layout;
  constexpr const char* expected = "parameters whose frequencies and attention factor are finite";
  for (const float rate : result.inv_freq) {
    if (!std::isfinite(rate))
      refuse(expected, "a frequency of " + shortest_decimal(rate) + " by theta = " + shortest_decimal(config.theta));
  }
  if (!std::isfinite(result.attention_factor)) {
    refuse(expected, "an attention factor of " + shortest_decimal(result.attention_factor));
  }
  return result;
}

}  // namespace attn
