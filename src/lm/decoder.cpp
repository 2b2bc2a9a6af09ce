// GPT, a few tokens at a time, on caches of keys and values.
#include <algorithm>
#include <string>

#include "attn/error.hpp"
#include "attn/generate.hpp"
#include "core/rows.hpp"
#include "ops/embedding.hpp"
#include "ops/dense.hpp"
#include "ops/stored.hpp"

namespace attn {

void store_matrices(GPT& model, DType dtype) { store_matrices(std::span<Parameter* const>(model.parameters()), dtype); }

Decoder::Decoder(GPT& model, std::int64_t batch, DType cache, const MakeCache& make) : model_(&model), batch_(batch) {
  const GPTConfig& c = model.config();
  for (std::int64_t i = 0; i < c.layers; ++i) {
    caches_.push_back(
        make_cache({.batch = batch, .kv_heads = c.heads, .head_dim = c.width / c.heads, .dtype = cache}, make));
  }
}

// tokens[ids] + positions, the next ones of the text → (b, t, width)
Tensor Decoder::embed(const Tensor& ids) const {
  const std::int64_t t = ids.size(1), width = model_->config().width;
  const Tensor x = Tensor::empty({batch_, t, width});
  const Tensor position = rows_of(model_->wpe, length_, length_ + t);
  for (std::int64_t row = 0; row < batch_ * t; ++row) {
    const std::int64_t id = ids.data<std::int64_t>()[row];
    x.view({batch_ * t, width}).select(0, row).copy_from(rows_of(model_->wte, id, id + 1).view({width}));
    auto* values = x.data<float>() + row * width;
    const auto* add = position.data<float>() + row % t * width;
    for (std::int64_t i = 0; i < width; ++i) values[i] += add[i];
  }
  return x;
}

Tensor Decoder::read(const Tensor& ids_in) {
  const GPTConfig& c = model_->config();
  const Tensor ids = ids_in.contiguous();
  check_ids(ids, c.vocab_size, c.context_length);
  if (ids.rank() != 2 || ids.size(0) != batch_) {
    throw Error(Error::Kind::shape, "Decoder", "ids (" + std::to_string(batch_) + ", t)", ids.shape().str());
  }
  if (length_ + ids.size(1) > c.context_length) {
    throw Error(Error::Kind::shape, "Decoder",
                "at most context_length = " + std::to_string(c.context_length) + " tokens in all",
                std::to_string(length_ + ids.size(1)), "truncate, or read the latest tokens anew");
  }
  Tensor x = embed(ids);
  try {
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      Block& block = *model_->h[i];
      const Tensor attended = block.attention.forward(block.ln_1.forward(x), *caches_[i]);
      add_in_place(attended, x);
      x = block.feed_forward.forward(block.ln_2.forward(attended));
      add_in_place(x, attended);
    }
  } catch (...) {
    truncate(length_);
    throw;
  }
  length_ += ids.size(1);
  const Tensor last = model_->ln_f.forward(x.slice(1, ids.size(1) - 1, ids.size(1)).contiguous());
  return project(last, model_->head().value, {}, {c.precision, {}, {}, model_->head().scales})
      .view({batch_, c.vocab_size});
}

Tensor Decoder::read(std::span<const std::int64_t> ids) {
  return read(Tensor::from(ids, {1, static_cast<std::int64_t>(ids.size())})).select(0, 0);
}

void Decoder::truncate(std::int64_t length) {
  for (const auto& cache : caches_) {
    if (cache->max_length() > length) cache->truncate(length);
  }
  length_ = std::min(length_, length);
}

}  // namespace attn
