// A language model, piece by piece, on caches of keys and values.
#include <algorithm>
#include <limits>
#include <string>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "core/parallel.hpp"
#include "lm/head.hpp"
#include "ops/embedding.hpp"
#include "ops/input.hpp"

namespace attn {
namespace {

constexpr const char* kDecoder = "Decoder";
constexpr std::int64_t kPiece = 512;  // tokens of a prompt that are read at once

// Released models turn keys by other frequencies once a text is longer than this, and begin anew then.
std::int64_t switch_of(const LanguageModelConfig& config) {
  std::int64_t at = 0;
  for (const RopeConfig& rope : config.ropes) {
    if (rope.type == RopeType::longrope) at = rope.original_max_position_embeddings;
  }
  return at;
}

// Returns how many of so many tokens a layer holds at most, where it forgets those that its window no longer shows.
std::int64_t held_at_most(const LayerConfig& layer, std::int64_t tokens) {
  return layer.window > 0 ? std::min(tokens, layer.window + layer.window / 4 + kPiece) : tokens;
}

}  // namespace

Decoder::Decoder(LanguageModel& model, std::int64_t batch, DType cache, const MakeCache& make, std::int64_t capacity)
    : model_(&model), switches_at_(switch_of(model.config())) {
  const LanguageModelConfig& c = model.config();
  const KVCacheConfig plain{.batch = batch, .kv_heads = c.kv_heads, .head_dim = c.head_dim, .dtype = cache};
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const auto& recurrent = model.blocks[i]->recurrent;
    const auto& latent = model.blocks[i]->latent;
    if ((recurrent || latent) && make) {
      const char* const kind = recurrent ? "a cache that is not cut, where layers are recurrent"
                                         : "a cache that is not cut, where it has latents";
      throw Error(Error::Kind::argument, kDecoder, kind, "one that is");
    }
    KVCacheConfig own = latent ? latent->cache_config(batch, cache) : plain;
    if (!make) own.capacity = held_at_most(c.layers[i], capacity);
    const DType state = cache == DType::bf16 ? DType::bf16 : DType::f32;
    recurrent ? caches_.push_back(std::make_unique<RecurrentCache>(recurrent->cache_config(batch, state)))
              : caches_.push_back(make_cache(own, make));
  }
  length_.assign(static_cast<std::size_t>(batch), 0);
  texts_.resize(static_cast<std::size_t>(batch));
}

std::int64_t Decoder::length(std::int64_t item) const {
  require_whole(kDecoder, !length_.empty(), "a decoder of at least one text");
  if (item < 0 || item >= static_cast<std::int64_t>(length_.size())) {
    throw Error(Error::Kind::argument, kDecoder, "an item from 0 to " + std::to_string(length_.size() - 1),
                std::to_string(item));
  }
  return length_[static_cast<std::size_t>(item)];
}

std::size_t Decoder::bytes() const {
  std::size_t sum = 0;
  for (const auto& cache : caches_) sum += cache->bytes();
  return sum;
}

// Turns positions first, first + 1, …, of a text that is `serves` tokens long.
std::vector<RotaryTable> Decoder::turns(std::int64_t first, std::int64_t tokens, std::int64_t serves) const {
  std::vector<RotaryTable> all;
  for (const RopeConfig& rope : model_->config().ropes) {
    all.push_back(rotary_table(rotary_frequencies(rope, serves), tokens, first));
  }
  return all;
}

// Turns each text's next position, (b, 1, …).
std::vector<RotaryTable> Decoder::next_turns() const {
  std::vector<RotaryTable> all;
  for (const RopeConfig& rope : model_->config().ropes) {
    std::vector<Tensor> cos, sin;
    RotaryTable last;
    for (const std::int64_t length : length_) {
      last = rotary_table(rotary_frequencies(rope, length + 1), 1, length);
      cos.push_back(last.cos), sin.push_back(last.sin);
    }
    all.push_back({stack(cos), stack(sin), last.layout});
  }
  return all;
}

// ids (items, t) of the texts from `first` to before `last` → (items, t, width)
Tensor Decoder::embedded(const Tensor& ids, std::int64_t first, std::int64_t last) const {
  const Tensor x = embed(ids, model_->embedding, model_->config().embedding_scale);
  if (!model_->config().learned_positions) return x;
  std::vector<std::int64_t> places;
  for (std::int64_t b = first; b < last; ++b) {
    for (std::int64_t i = 0; i < ids.size(1); ++i) places.push_back(length_[static_cast<std::size_t>(b)] + i);
  }
  add_positions(x, model_->positions, Tensor::from(std::span<const std::int64_t>(places), ids.shape()));
  return x;
}

// ids (b, t), or (1, t) of one item → the last tokens' logits (b, vocab_size). All caches take them, or none.
Tensor Decoder::run(const Tensor& ids, const std::vector<RotaryTable>& turns, std::optional<std::int64_t> item) {
  const StepTeam team;
  const NoGrad no_grad;
  const LanguageModelConfig& c = model_->config();
  const auto batch = static_cast<std::int64_t>(length_.size()), tokens = ids.size(1);
  const std::int64_t first = item.value_or(0), last = item ? first + 1 : batch;
  std::vector<Tensor> before;
  for (const auto& cache : caches_) before.push_back(cache->lengths());
  Tensor x = embedded(ids, first, last);
  try {
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      const auto rope = c.layers[i].rope;
      x = model_->blocks[i]->forward(x, rope ? turns[*rope] : RotaryTable{}, *caches_[i], item);
    }
  } catch (...) {
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      for (std::int64_t b = first; b < last; ++b) caches_[i]->truncate(b, before[i].data<std::int64_t>()[b]);
    }
    throw;
  }
  for (std::int64_t b = first; b < last; ++b) {
    length_[static_cast<std::size_t>(b)] += tokens;
    for (std::size_t i = 0; i < caches_.size(); ++i) {  // the next query sees itself, and these
      const std::int64_t shown = c.layers[i].window - 1, held = caches_[i]->length(b);
      if (c.layers[i].window > 0 && held > shown) caches_[i]->forget(b, held - shown);
    }
  }
  const Tensor hidden = model_->norm.forward(x.slice(1, tokens - 1, tokens).contiguous(), DType::f32);
  const Parameter& head = model_->head();
  const Tensor logits =
      logits_of({head.value, c.precision, c.logits_scale, c.logits_softcap, head.scales, head.blocks}, hidden);
  return logits.view({-1, c.vocab_size});
}

Tensor Decoder::read_pieces(std::int64_t item, std::span<const std::int64_t> ids, std::int64_t serves) {
  Tensor logits;
  for (std::size_t at = 0; at < ids.size(); at += kPiece) {
    const auto piece = ids.subspan(at, std::min<std::size_t>(kPiece, ids.size() - at));
    const auto tokens = static_cast<std::int64_t>(piece.size());
    logits = run(Tensor::from(piece, {1, tokens}), turns(length(item), tokens, serves), item);
  }
  return logits;
}

// A text that grows past the switch is read again, by the frequencies of long ones.
void Decoder::prepare(std::int64_t item, std::int64_t length) {
  auto& held = length_[static_cast<std::size_t>(item)];
  if (switches_at_ == 0 || held == 0 || held > switches_at_ || length <= switches_at_) return;
  for (const auto& cache : caches_) cache->truncate(item, 0);
  held = 0;
  read_pieces(item, texts_[static_cast<std::size_t>(item)], length);
}

void Decoder::check(std::span<const std::int64_t> ids, std::int64_t longest) const {
  const LanguageModelConfig& c = model_->config();
  const auto count = static_cast<std::int64_t>(ids.size());
  check_ids(Tensor::from(ids, {count}), c.vocab_size, std::numeric_limits<std::int64_t>::max());
  if (longest > c.context_length) {
    throw Error(Error::Kind::shape, kDecoder,
                "at most context_length = " + std::to_string(c.context_length) + " tokens in all",
                std::to_string(longest));
  }
  for (const RopeConfig& rope : c.ropes) {
    if (rope.type != RopeType::dynamic || longest <= rope.max_position_embeddings) continue;
    throw Error(Error::Kind::shape, kDecoder,
                "at most max_position_embeddings = " + std::to_string(rope.max_position_embeddings) +
                    " tokens, past which each token changes dynamic frequencies",
                std::to_string(longest), "call the model's forward() with the whole text");
  }
}

Tensor Decoder::read(std::int64_t item, std::span<const std::int64_t> ids) {
  const std::int64_t before = length(item), after = before + static_cast<std::int64_t>(ids.size());
  check(ids, after);
  prepare(item, after);
  const Tensor logits = read_pieces(item, ids, after);
  auto& text = texts_[static_cast<std::size_t>(item)];
  if (switches_at_ > 0) text.insert(text.end(), ids.begin(), ids.end());
  return logits.select(0, 0);
}

Tensor Decoder::read(std::span<const std::int64_t> ids) {
  length();
  const auto batch = static_cast<std::int64_t>(length_.size());
  if (static_cast<std::int64_t>(ids.size()) != batch) {
    throw Error(Error::Kind::shape, kDecoder, "an id for each of " + std::to_string(batch) + " texts",
                std::to_string(ids.size()));
  }
  check(ids, 1 + *std::max_element(length_.begin(), length_.end()));
  for (std::int64_t b = 0; b < batch; ++b) prepare(b, length(b) + 1);
  const Tensor logits = run(Tensor::from(ids, {batch, 1}), next_turns(), {});
  for (std::size_t b = 0; switches_at_ > 0 && b < texts_.size(); ++b) texts_[b].push_back(ids[b]);
  return logits;
}

Tensor Decoder::read(const Tensor& ids) {
  length();
  const auto batch = static_cast<std::int64_t>(length_.size());
  if (!ids.defined() || ids.rank() != 2 || ids.size(0) != batch || ids.dtype() != DType::i64) {
    throw Error(Error::Kind::shape, kDecoder, "int64 ids (" + std::to_string(batch) + ", tokens)",
                ids.defined() ? std::string(name(ids.dtype())) + ids.shape().str() : "no tensor");
  }
  const Tensor rows = ids.contiguous();
  const auto tokens = static_cast<std::size_t>(ids.size(1));
  const auto row = [&](std::int64_t b) { return std::span(rows.data<std::int64_t>() + b * ids.size(1), tokens); };
  if (tokens == 1) return read(std::span(rows.data<std::int64_t>(), static_cast<std::size_t>(batch)));
  for (std::int64_t b = 0; b < batch; ++b) check(row(b), length(b) + ids.size(1));  // all are read, or none
  std::vector<Tensor> logits;
  for (std::int64_t b = 0; b < batch; ++b) logits.push_back(read(b, row(b)));
  return stack(logits);
}

void Decoder::truncate(std::int64_t item, std::int64_t length) {
  const std::int64_t held = this->length(item);
  if (length < 0 || length > held) {
    throw Error(Error::Kind::argument, kDecoder, "a length from 0 to " + std::to_string(held), std::to_string(length));
  }
  const std::int64_t gone = held - length;
  const LanguageModelConfig& c = model_->config();
  for (const auto& layer : c.layers) {
    if (layer.mixer == Mixer::softmax || length == 0 || gone == 0) continue;
    throw Error(Error::Kind::argument, kDecoder, "0 or the length now, where layers are recurrent",
                std::to_string(length), "a state is a sum over all tokens, from which none can be taken away");
  }
  for (std::size_t i = 0; i < caches_.size() && length > 0; ++i) {
    const std::int64_t seen = c.layers[i].window > 0 ? std::min(length, c.layers[i].window) : length;
    if (caches_[i]->length(item) - gone >= seen) continue;
    throw Error(Error::Kind::argument, kDecoder, "a length whose keys are still held, or 0", std::to_string(length));
  }
  // The keys of a long text do not serve one that is short again.
  const bool anew = length > 0 && length <= switches_at_ && held > switches_at_;
  for (const auto& cache : caches_) cache->truncate(item, length == 0 || anew ? 0 : cache->length(item) - gone);
  length_[static_cast<std::size_t>(item)] = anew ? 0 : length;
  auto& text = texts_[static_cast<std::size_t>(item)];
  text.resize(std::min(text.size(), static_cast<std::size_t>(length)));
  if (anew) read_pieces(item, text, length);
}

}  // namespace attn
