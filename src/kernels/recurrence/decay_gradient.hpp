// The gradient of a chunk's decays. A token's decay acts on what is read from it on of what was written before it, and
// its gradient sums these products alone:
//   d_decay_t = exp(G) S · H + Σ_{i >= t} reads_i + Σ_{j < t} writes_j + pairs_t
// where reads_i is what token i reads of the state S before the chunk, writes_j what j writes into the one after it,
// whose gradient is H, and pairs_t what is written before t and read from t on within the chunk. All that is read from
// t on, less all that is written there, is the same number, of which strong decays would leave nothing but rounding.
#pragma once

#include "kernels/recurrence/chunk.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

class DecayGradient {
 public:
  DecayGradient(const Recurrence& p, const Chunk& chunk, Workspace& memory)
      : p_(p),
        chunk_(chunk),
        end_(memory(chunk.k_width)),
        reads_(Chunk::rows(memory, chunk.by_channel() ? chunk.k_width : kLanes)),
        writes_(Chunk::rows(memory, reads_.width)),
        pairs(Chunk::rows(memory, reads_.width)) {}

  // `state` is that before the chunk, `h` the gradient of that after it. The others are gradients by these states
  // alone.
  void take_states(const Matrix& state, const Matrix& h, const Matrix& dq, const Matrix& dk_read,
                   const Matrix& dk_written) const {
    take_end(state, h);
    for (std::int64_t i = 0; i < kChunk; ++i) {
      Vec read = splat(0.f), written = read;
      each_column(dq, [&](std::int64_t d) {
        const Vec q = load(chunk_.q.row(i) + d), k = load(chunk_.k.row(i) + d);
        const Vec reads = q * load(dq.row(i) + d) + k * load(dk_read.row(i) + d);
        const Vec writes = k * load(dk_written.row(i) + d);
        if (p_.by_channel) return store(reads_.row(i) + d, reads), store(writes_.row(i) + d, writes);
        read += reads, written += writes;
      });
      if (!p_.by_channel) store(reads_.row(i), read), store(writes_.row(i), written);
    }
  }

  // By head: pairs_t = Σ_{i >= t > j} d_qk_ij qk_ij + d_l_ij l_ij.
  void take_pairs(const Matrix& d_qk, const Matrix& d_l) const {
    for (std::int64_t t = 0; t < kChunk; ++t) pairs.data[t] = 0;
    for (std::int64_t i = 1; i < chunk_.tokens; ++i) {
      float sum = 0;
      for (std::int64_t j = 0; j < i; ++j) {
        sum += d_qk.row(i)[j] * chunk_.qk.row(i)[j];
        if (p_.delta) sum += d_l.row(i)[j] * chunk_.l.row(i)[j];
        pairs.data[j + 1] += sum;
      }
    }
  }

  // By channel, before they are added where pairs are taken.
  void clear_pairs() const {
    for (std::int64_t i = 0; i < kChunk; ++i)
      each_column(pairs, [&](std::int64_t d) { store(pairs.row(i) + d, splat(0.f)); });
  }

  // Adds nothing for a token that kept nothing.
  void add_to(float* d_decay) const {
    each_column(reads_, [&](std::int64_t d) {
      const auto count = static_cast<int>(p_.by_channel ? least_of(p_.d_k - d, kLanes) : kLanes);
      if (count <= 0) return;
      Vec written = splat(0.f), sum = load(end_ + d);
      for (std::int64_t i = 0; i < chunk_.tokens; ++i) {  // becomes the sum over the tokens before
        float* const at = writes_.row(i) + d;
        const Vec here = load(at);
        store(at, written), written += here;
      }
      for (std::int64_t i = chunk_.tokens - 1; i >= 0; --i) {
        sum += load(reads_.row(i) + d);
        add(i, d, count, sum + load(writes_.row(i) + d), d_decay);
      }
    });
  }

 private:
  void add(std::int64_t i, std::int64_t d, int count, Vec sum, float* d_decay) const {
    if (!p_.by_channel) {
      d_decay[i] += chunk_.kept.number(i, 0) == 0 ? 0 : sum_lanes(sum) + pairs.data[i];
      return;
    }
    float* const to = d_decay + i * p_.d_k + d;
    sum = chunk_.kept.of(i, d) == splat(0.f) ? splat(0.f) : sum + load(pairs.row(i) + d);
    store_some(to, load_some(to, count) + sum, count);
  }

  // exp(G) S · H: of each row, or of all in the first lanes.
  void take_end(const Matrix& state, const Matrix& h) const {
    Vec even = splat(0.f), odd = even;
    const std::int64_t width = state.width;
    for (std::int64_t d = 0; d < p_.d_k; ++d) {
      const float *s_row = state.row(d), *h_row = h.row(d);
      for (std::int64_t c = 0; c < width; c += 2 * kLanes) {
        even = load(s_row + c) * load(h_row + c) + even;
        odd = load(s_row + c + kLanes) * load(h_row + c + kLanes) + odd;
      }
      if (!p_.by_channel) continue;
      end_[d] = chunk_.kept_in_all(d) * sum_lanes(even + odd);
      even = odd = splat(0.f);
    }
    if (!p_.by_channel) store(end_, splat(chunk_.kept_in_all(0)) * (even + odd));
  }

  const Recurrence& p_;
  const Chunk& chunk_;
  float* const end_;
  const Matrix reads_, writes_;  // (tokens, channels); by head in lanes, whose sum counts

 public:
  const Matrix pairs;  // (tokens, channels); by head a number a token, one behind the other
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
