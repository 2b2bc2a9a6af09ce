// Which token comes next.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "core/decimal.hpp"

namespace attn {
namespace {

// The more likely first; of equal ones the lower id.
bool before(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
}

// All tokens, `probability` holding the logit.
std::vector<Candidate> all_tokens(const Tensor& logits) {
  const Tensor flat = logits.contiguous();
  if (logits.rank() != 1 || logits.numel() == 0) {
    throw Error(Error::Kind::shape, "sample", "logits (vocab_size)", logits.shape().str());
  }
  const auto* values = flat.data<float>();
  std::vector<Candidate> all(static_cast<std::size_t>(flat.numel()));
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(values[i])) throw Error(Error::Kind::data, "sample", "logits that are numbers", "NaN");
    all[i] = {static_cast<std::int64_t>(i), static_cast<double>(values[i])};
    largest = std::max(largest, values[i]);
  }
  if (std::isinf(largest)) {
    throw Error(Error::Kind::data, "sample", "a largest logit that is finite", shortest_decimal(largest));
  }
  return all;
}

// Divides or multiplies the logits of the ids in the text, each once; `all` holds every token's logit.
void penalise(std::vector<Candidate>& all, std::span<const std::int64_t> text, double penalty) {
  std::vector<bool> done(all.size());
  for (const std::int64_t id : text) {
    if (id < 0 || id >= static_cast<std::int64_t>(all.size())) {
      throw Error(Error::Kind::argument, "sample", "token ids in [0, " + std::to_string(all.size()) + ")",
                  std::to_string(id));
    }
    const auto i = static_cast<std::size_t>(id);
    if (done[i]) continue;
    done[i] = true;
    const double logit = all[i].probability, changed = logit < 0 ? logit * penalty : logit / penalty;
    if (std::isinf(changed) && !std::isinf(logit)) {
      throw Error(Error::Kind::argument, "sample", "a repetition_penalty that leaves logits finite",
                  shortest_decimal(penalty));
    }
    all[i].probability = changed;
  }
}

// Logits become probabilities; returns their sum before.
void softmax(std::vector<Candidate>& all, double temperature) {
  double largest = all.front().probability, sum = 0;
  for (const Candidate& c : all) largest = std::max(largest, c.probability);
  for (Candidate& c : all) sum += c.probability = std::exp((c.probability - largest) / temperature);
  for (Candidate& c : all) c.probability /= sum;
}

// Keeps the most likely ones, which come to `mass` together.
void keep_nucleus(std::vector<Candidate>& all, double mass) {
  const auto later = [](const Candidate& a, const Candidate& b) { return before(b, a); };
  std::make_heap(all.begin(), all.end(), later);  // few are needed, as a rule: no sorting of the others
  double sum = 0;
  auto rest = all.end();
  while (rest != all.begin() && sum < mass) {
    std::pop_heap(all.begin(), rest, later);
    sum += (--rest)->probability;
  }
  all.erase(all.begin(), rest);
  std::reverse(all.begin(), all.end());
  for (Candidate& c : all) c.probability /= sum;
}

void keep_likely(std::vector<Candidate>& all, double least) {
  double most = 0, sum = 0;
  for (const Candidate& c : all) most = std::max(most, c.probability);
  std::erase_if(all, [&](const Candidate& c) { return c.probability < least * most; });
  for (const Candidate& c : all) sum += c.probability;
  for (Candidate& c : all) c.probability /= sum;
}

}  // namespace

void require_valid(const Sampling& s) {
  const auto wrong = [](const char* expected, double found) {
    throw Error(Error::Kind::argument, "sample", expected, shortest_decimal(found));
  };
  if (!(s.temperature >= 0 && std::isfinite(s.temperature))) {
    wrong("a finite temperature of at least 0", s.temperature);
  }
  if (s.top_k < 0) wrong("top_k of at least 0 (0: all)", static_cast<double>(s.top_k));
  if (!(s.top_p > 0 && s.top_p <= 1)) wrong("top_p above 0 and at most 1", s.top_p);
  if (!(s.min_p >= 0 && s.min_p <= 1)) wrong("min_p from 0 to 1", s.min_p);
  const double penalty = s.repetition_penalty;
  if (!(penalty > 0 && std::isfinite(penalty))) wrong("a finite repetition_penalty above 0", penalty);
}

std::vector<Candidate> candidates(const Tensor& logits, const Sampling& sampling, std::span<const std::int64_t> text) {
  require_valid(sampling);
  std::vector<Candidate> all = all_tokens(logits);
  if (sampling.repetition_penalty != 1) penalise(all, text, sampling.repetition_penalty);
  const bool greedy = sampling.temperature == 0;
  const auto count = greedy ? 1 : static_cast<std::size_t>(sampling.top_k);
  if (count > 0 && count < all.size()) {
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(), before);
    all.resize(count);
  }
  softmax(all, greedy ? 1 : sampling.temperature);
  if (!greedy && sampling.top_p < 1) keep_nucleus(all, sampling.top_p);
  if (!greedy && sampling.min_p > 0) keep_likely(all, sampling.min_p);
  std::erase_if(all, [](const Candidate& c) { return c.probability == 0; });
  return all;
}

std::int64_t sample(const Tensor& logits, const Sampling& sampling, Generator& rng,
                    std::span<const std::int64_t> text) {
  const std::vector<Candidate> all = candidates(logits, sampling, text);
  if (sampling.temperature == 0) return all.front().id;
  constexpr int kBits = 53;
  const double drawn = static_cast<double>(rng.next_u64() >> (64 - kBits)) * std::ldexp(1.0, -kBits);
  double sum = 0;
  for (const Candidate& c : all) {
    sum += c.probability;
    if (drawn < sum) return c.id;
  }
  return all.back().id;  // rounding left the sum below 1
}

std::int64_t next_token(const Tensor& logits, const GenerateOptions& options, Generator& rng,
                        std::span<const std::int64_t> text) {
  const auto own = [&] { return sample(logits, options.sampling, rng, text); };
  return options.agree ? options.agree(own) : own();
}

}  // namespace attn
