#include "experiment/measures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attn/error.hpp"
#include "core/parallel.hpp"
#include "lm/editor.hpp"
#include "ops/embedding.hpp"

namespace attn {
namespace experiment {
namespace {

double log_sum_exp(const float* row, std::int64_t n) {
  const double largest = static_cast<double>(*std::max_element(row, row + n));
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<double>(row[j]) - largest);
  return largest + std::log(sum);
}

}  // namespace

Tensor table_of_heads(const LanguageModelConfig& config) {
  return Tensor::full({std::ssize(config.layers), config.most_heads()}, std::numeric_limits<double>::quiet_NaN(),
                      DType::f64);
}

std::string heads_in_words(const LanguageModelConfig& config) {
  const auto layers = std::ssize(config.layers);
  const auto heads = [&](std::int64_t l) { return std::to_string(config.heads_of(l)); };
  std::string each = layers > 0 ? heads(0) : "no";
  bool alike = true;
  for (std::int64_t l = 1; l < layers; ++l) {
    alike = alike && heads(l) == heads(0);
    each += (l + 1 < layers ? ", " : " and ") + heads(l);
  }
  return std::to_string(layers) + " layers of " + (alike && layers > 0 ? heads(0) : each) + " heads";
}

bool heads_alike(const LanguageModelConfig& a, const LanguageModelConfig& b) {
  const auto sizes = [](const LanguageModelConfig& c) {
    return std::array{c.head_dim, c.latent ? c.latent->value : 0, c.gated_delta ? c.gated_delta->value_dim : 0};
  };
  bool alike = a.layers.size() == b.layers.size() && sizes(a) == sizes(b);
  for (std::size_t i = 0; alike && i < a.layers.size(); ++i) {
    const auto l = static_cast<std::int64_t>(i);
    alike = a.layers[i].mixer == b.layers[i].mixer && a.heads_of(l) == b.heads_of(l);
  }
  return alike;
}

Tensor one_text(const Tensor& ids) {
  if (ids.rank() != 1) throw Error(Error::Kind::shape, experiment::kOp, "ids (tokens)", ids.shape().str());
  return ids.unsqueeze(0).contiguous();
}

Tensor mean_rows(const Tensor& x) {
  Tensor mean = Tensor::empty({x.size(0), 1, x.size(2)});
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t j = 0; j < x.size(2); ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.size(1); ++i) sum += x.at({b, i, j});
      mean.set({b, 0, j}, sum / static_cast<double>(x.size(1)));
    }
  }
  return mean;
}

double logit_difference(const Tensor& logits, TokenPair tokens) {
  const std::int64_t last = logits.size(-2) - 1;
  return logits.at({last, tokens.a}) - logits.at({last, tokens.b});
}

void check(TokenPair tokens, const LanguageModelConfig& config) {
  for (const std::int64_t id : {tokens.a, tokens.b}) {
    if (id >= 0 && id < config.vocab_size) continue;
    throw Error(Error::Kind::argument, kOp, "a token from 0 to " + std::to_string(config.vocab_size - 1),
                std::to_string(id));
  }
}

double measure(const Tensor& logits, const Tensor& ids, const std::optional<TokenPair>& tokens) {
  return tokens ? logit_difference(logits, *tokens) : mean_of(token_losses(logits, ids));
}

std::vector<double> measured(LanguageModel& model, const Tensor& hidden, const Tensor& ids,
                             const std::optional<TokenPair>& tokens) {
  constexpr std::int64_t most = std::int64_t{1} << 25;  // logits
  const std::int64_t texts = hidden.size(0), t = hidden.size(1), rows = tokens ? 1 : t;
  const std::int64_t part = std::max<std::int64_t>(1, most / (rows * model.config().vocab_size));
  std::vector<double> all;
  for (std::int64_t first = 0; first < texts; first += part) {
    const Tensor some = hidden.slice(0, first, std::min(texts, first + part)).slice(1, t - rows, t).contiguous();
    const Tensor logits = model.logits_of_hidden(some);
    for (std::int64_t i = 0; i < logits.size(0); ++i) {
      all.push_back(measure(logits.select(0, i), ids, tokens));
    }
  }
  return all;
}

Tensor repeated(const Tensor& x, std::int64_t items) { return x.expand({items, x.size(1), x.size(2)}).clone(); }

}  // namespace experiment

Tensor token_losses(const Tensor& logits, const Tensor& ids) {
  const std::int64_t t = ids.numel(), vocab = logits.size(-1);
  if (logits.rank() != 2 || logits.size(0) != t) {
    throw Error(Error::Kind::shape, experiment::kOp, "logits (tokens, vocab_size) of ids (tokens)",
                logits.shape().str() + " and " + ids.shape().str());
  }
  if (t < 2) throw Error(Error::Kind::argument, experiment::kOp, "a text of at least two tokens", std::to_string(t));
  check_ids(ids, vocab, t);
  const Tensor all = logits.contiguous(), text = ids.contiguous(), losses = Tensor::empty({t - 1}, DType::f64);
  parallel_for(t - 1, 0, 20 * static_cast<double>(all.numel()), [&](std::int64_t i, void*) {
    const float* row = all.data<float>() + i * vocab;
    losses.data<double>()[i] =
        experiment::log_sum_exp(row, vocab) - static_cast<double>(row[text.data<std::int64_t>()[i + 1]]);
  });
  return losses;
}

double mean_of(const Tensor& values) {
  double sum = 0;
  const Tensor all = values.to(DType::f64).contiguous();
  for (std::int64_t i = 0; i < all.numel(); ++i) sum += all.data<double>()[i];
  return sum / static_cast<double>(all.numel());
}

Tensor log_probabilities(const Tensor& row) {
  if (row.rank() != 1 || row.numel() == 0) {
    throw Error(Error::Kind::shape, experiment::kOp, "logits (vocab_size)", row.shape().str());
  }
  const Tensor all = row.contiguous(), logs = Tensor::empty(row.shape(), DType::f64);
  const double norm = experiment::log_sum_exp(all.data<float>(), all.numel());
  for (std::int64_t j = 0; j < all.numel(); ++j) {
    logs.data<double>()[j] = static_cast<double>(all.data<float>()[j]) - norm;
  }
  return logs;
}

}  // namespace attn
