// The operands of the fused forward on bf16 products: keys against packed queries, weights rounded to bf16 against
// packed values. Sums of weights are taken in float32 before the rounding. Keys and values are packed once, by block,
// for all tasks.
#pragma once

#include "kernels/bf16/prefetch_sums.hpp"
#include "kernels/bf16/softmax.hpp"
#include "kernels/prefetch.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// The query's factor, cut in two: a power of two (and the sign), by which bf16 is multiplied exactly, when packed;
// and the rest, from 1 to 2, for softmax to apply. Scores so pass float32's range only if they do scaled.
struct Factor {
  float packed = 0, rest = 1;

  explicit Factor(float factor) {
    const std::uint32_t bits = float_to_bits(factor);
    if ((bits & 0x7fffffffu) == 0) return;
    packed = bits_to_float((bits & 0x7f800000u) ? bits & 0xff800000u : (bits & 0x80000000u) | 0x00800000u);
    rest = factor / packed;
  }
};

constexpr int kBlockKeys =
    256;  // as many as let a tile of scores stay in L1: the context is loaded and stored per block

constexpr std::int64_t kLine = 32;  // bf16 numbers

// Keys and values on their way to L2, some lines of each with every step: many at once would hold up the operands.
struct Fetch {
  const std::uint16_t *at[2] = {}, *end[2] = {};
  std::int64_t lines = 0;

  __attribute__((always_inline)) void operator()() {
    ATTN_UNROLL for (int i = 0; i < 2; ++i) {
      for (std::int64_t n = 0; n < lines && at[i] < end[i]; ++n, at[i] += kLine) __builtin_prefetch(at[i], 0, 2);
    }
  }
};

// Packed keys and values: of all blocks, in memory that the tasks share; or, where each of many heads has one task, of
// the block that a task works on, which then stays in L2.
class PackedBlocks {
 public:
  PackedBlocks(const Problem& p, const ForwardPlan& plan, void* shared)
      : p_(p),
        shares_(plan.packs_first),
        parts_(plan.parts),
        step_(plan.block_keys),
        blocks_(plan.blocks),
        block_keys_(plan.packed_keys),
        depth_(round_up(p.d, 32)),
        width_(round_up(p.dv, 16)),
        shared_(static_cast<std::uint16_t*>(shared)) {}

  std::size_t bytes() const {
    return shares_ ? static_cast<std::size_t>(p_.batch * p_.hkv * head_size()) * sizeof(std::uint16_t) : 0;
  }

  bool shares() const { return shares_; }

  // A task's own block.
  void take_own(Workspace& take) { own_ = halves(take, shares_ ? 0 : key_size() + value_size()); }
  void pack_own(const Span& span, std::int64_t block) const {
    if (!shares_) pack(span, block);
  }

  void pack(std::int64_t task) const {
    const std::int64_t head = task / blocks_, block = task % blocks_;
    pack({head / p_.hkv, head % p_.hkv, 0, 0}, block);
  }

  // (keys, depth), made up with zeros to a multiple of kForwardStrip and of 32.
  Left keys(const Span& span, std::int64_t block) const {
    if (!in_place(block)) return {keys_of(span, block), depth_, block_keys_ * depth_};
    const void* first = row(p_.k, p_.element, span.batch, span.key_head, block * step_);
    return {static_cast<const std::uint16_t*>(first), p_.d, 0};
  }

  // (dv, keys), likewise.
  Left values(const Span& span, std::int64_t block) const {
    return {values_of(span, block), value_step(), width_ * value_step()};
  }

  // A block on its way to L2, to be had in about this many steps.
  Fetch fetch(const Span& span, std::int64_t block, std::int64_t steps) const {
    if (!shares_ || block >= blocks_) return {};
    const std::int64_t keys = in_place(block) ? block_keys_ * depth_ : key_size();
    const std::int64_t most = keys > value_size() ? keys : value_size();
    const std::uint16_t *first_key = this->keys(span, block).data, *first_value = values_of(span, block);
    return {{first_key, first_value}, {first_key + keys, first_value + value_size()}, ceil_div(most, kLine * steps)};
  }

 private:
  // Rows of keys that are whole, dense pairs.
  bool dense() const { return p_.element == Element::bf16 && p_.d % kDepthStep == 0 && p_.k.token == p_.d; }
  bool in_place(std::int64_t block) const { return dense() && (p_.tk % kForwardStrip == 0 || block + 1 < blocks_); }

  std::int64_t value_step() const { return block_keys_ + 32; }  // the odd 64 bytes spread rows over the cache
  std::int64_t key_size() const { return parts_ * block_keys_ * depth_; }
  std::int64_t value_size() const { return parts_ * width_ * value_step(); }
  std::int64_t key_blocks() const { return !dense() ? blocks_ : p_.tk % kForwardStrip == 0 ? 0 : 1; }
  std::int64_t head_size() const { return blocks_ * value_size() + key_blocks() * key_size(); }

  std::uint16_t* values_of(const Span& span, std::int64_t block) const {
    if (!shares_) return own_;
    return shared_ + (span.batch * p_.hkv + span.key_head) * head_size() + block * value_size();
  }
  std::uint16_t* keys_of(const Span& span, std::int64_t block) const {
    if (!shares_) return own_ + value_size();
    return values_of(span, blocks_) + (dense() ? 0 : block) * key_size();
  }

  const void* key(const Rows& rows, const Span& span, std::int64_t j) const {
    return j < p_.tk ? row(rows, p_.element, span.batch, span.key_head, j) : nullptr;
  }

  void pack(const Span& span, std::int64_t block) const {
    if (!in_place(block)) pack_keys(span, block);
    pack_values(span, block);
  }

  void pack_keys(const Span& span, std::int64_t block) const {
    std::uint16_t* out = keys_of(span, block);
    const Spread spread{parts_, block_keys_ * depth_};
    for (std::int64_t j = 0; j < block_keys_; ++j, out += depth_) {
      pack_row(p_.element, key(p_.k, span, block * step_ + j), p_.d, spread, out, depth_);
    }
  }

  void pack_values(const Span& span, std::int64_t block) const {
    for (std::int64_t j = 0; j < block_keys_; j += 32) {
      const void* rows[32];
      for (int i = 0; i < 32; ++i) rows[i] = key(p_.v, span, block * step_ + j + i);
      pack_transposed(p_.element, rows, p_.dv, {parts_, width_ * value_step()}, values_of(span, block) + j,
                      value_step());
    }
  }

  const Problem& p_;
  bool shares_;
  int parts_;
  std::int64_t step_, blocks_, block_keys_, depth_, width_;  // keys of a block, of which the last may have fewer
  std::uint16_t *shared_, *own_ = nullptr;
};

template <int kParts>
class MatrixCore {
 public:
  MatrixCore(const Problem& p, const ForwardPlan& plan, void* shared, Workspace& take)
      : p_(p),
        factor_(query_factor(p)),
        block_keys_(plan.block_keys),
        depth_(round_up(p.d, 32)),
        blocks_(p, plan, shared) {
    blocks_.take_own(take);
    queries_ = halves(take, kGroups * kParts * depth_ * kColumns);
  }

  // Steps of a strip's scores, between which softmax may take its turns.
  std::int64_t steps_a_strip() const { return kProducts * depth_ / 32; }

  Weights weights(Workspace& take) const {
    return {halves(take, kParts * block_keys_ * kColumns), block_keys_ * kColumns};
  }

  void pack_queries(const Span& span, int group) {
    for (int half = 0; half < kColumns; half += kLanes) {
      const void* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const std::int64_t r = group * kColumns + half + i;
        const Query at = query(p_, span, r < span.rows ? r : 0);
        rows[i] = r < span.rows ? row(p_.q, p_.element, span.batch, at.head, at.token) : nullptr;
      }
      pack_columns(p_.element, rows, p_.d, factor_.packed, {kParts, depth_ * kColumns}, queries_of(group) + 2 * half,
                   depth_);
    }
  }

  // The block that begins at a key is the one that is worked on; beside it the next one is fetched.
  void take_block(const Span& span, std::int64_t first) {
    const std::int64_t block = first / block_keys_;
    blocks_.pack_own(span, block);
    keys_ = blocks_.keys(span, block), values_ = blocks_.values(span, block);
    fetch_ = blocks_.fetch(span, block + 1, groups_of(span) * block_keys_ / kForwardStrip * steps_a_strip());
  }

  // The rows that the next task will pack are fetched beside this one's products: where they are few, so that reading
  // them takes part of its time.
  void fetch_rows_of(const Span& span) {
    if (!kWorksBeside || blocks_.shares() || p_.tk > kTaskRows) return;
    ahead_.add(p_, p_.k, span.batch, span.key_head, 0, p_.tk, p_.d);
    ahead_.add(p_, p_.q, span.batch, query(p_, span, 0).head, 0, p_.tq, p_.d);
    ahead_.add(p_, p_.v, span.batch, span.key_head, 0, p_.tk, p_.dv);
    ahead_.spread_over(groups_of(span) * ceil_div(p_.tk, kForwardStrip) * steps_a_strip());
  }

  // s (kForwardStrip, kColumns), from key `from` of the block on, with something to do beside. They are in memory when
  // that is first called beside the next, or after finish().
  template <class Beside>
  void scores(int group, std::int64_t from, float* s, Beside& beside) {
    const auto fetching = [&] { fetch_(), ahead_(), beside(); };
    const Left left{keys_.data + from * keys_.row, keys_.row, keys_.part};
    multiply_in_turn<kProducts, false>(kForwardStrip, left, {queries_of(group), depth_ * kColumns}, s,
                                       round_up(p_.d, kDepthStep) / 2, fetching, waiting_);
  }

  // The factor that scores still lack.
  float factor() const { return factor_.rest; }

  // What was multiplied is in memory.
  void finish() { waiting_.finish(); }

  // Forgets the weights of key j, lanes w to w + kLanes - 1, whose bits are not set. A lane holds two keys' weights;
  // the other one stays.
  static void keep(const Weights& weights, std::int64_t j, int w, VecI kept) {
    const VecI other = splat(static_cast<std::int32_t>(j % 2 == 0 ? 0xffff0000u : 0x0000ffffu));
    const __mmask32 dropped = _mm512_movepi16_mask(reinterpret_cast<__m512i>(~(kept | other)));
    ATTN_UNROLL for (int part = 0; part < kParts; ++part) {
      std::uint16_t* at = weights.data + part * weights.part + j / 2 * 2 * kColumns + 2 * w;
      _mm512_mask_storeu_epi16(at, dropped, _mm512_setzero_si512());
    }
  }

  // contextᵀ (dv, queries) += vᵀ · weights; whole after the next scores, or finish().
  void add_values(const Weights& weights, const Range& range, float* context) {
    SumsAhead<kProducts> sums(context + 32 * kColumns, range.keys / 2);
    const auto ahead = [&] { sums(), ahead_(); };
    multiply_in_turn<kProducts, true>(round_up(p_.dv, kRowStep), {values_.data + range.from, values_.row, values_.part},
                                      {weights.data + range.from * kColumns, weights.part}, context, range.keys / 2,
                                      ahead, waiting_);
  }

 private:
  static constexpr int kProducts = products_of(kParts);

  std::uint16_t* queries_of(int group) const { return queries_ + group * kParts * depth_ * kColumns; }

  const Problem& p_;
  Factor factor_;
  std::int64_t block_keys_, depth_;  // of a block; of packed queries
  PackedBlocks blocks_;
  std::uint16_t* queries_;
  Left keys_{}, values_{};
  Fetch fetch_;
  RowsAhead ahead_;
  Waiting waiting_;
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
