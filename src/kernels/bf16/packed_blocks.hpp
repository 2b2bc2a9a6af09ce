// Keys and values of the fused forward on bf16 products, packed by blocks: once for all tasks, or by each.
#pragma once

#include "kernels/attention/key_rows.hpp"
#include "kernels/bf16/pack.hpp"
#include "kernels/prefetch.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kForwardStrip = 32;  // keys whose scores are computed at once
// Keys of a block: as many as let a tile of scores stay in L1, for the context is loaded and stored per block.
constexpr int kBlockKeys = 256;

// Packed keys and values on their way to L2.
using PrefetchBlock = PrefetchRanges<2, Cache::l2>;

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

  // A task's own: its block, and rows that are converted before they are packed.
  void take_memory(Workspace& take) {
    own_ = halves(take, shares_ ? 0 : key_size() + value_size());
    lines_ = take(converts(p_) ? kForwardStrip * (p_.d > p_.dv ? p_.d : p_.dv) : 0);
  }
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
    const RowRun run = run_at(p_, all_keys(p_), span, block * step_, step_);
    return {reinterpret_cast<const std::uint16_t*>(run.data), p_.d, 0};
  }

  // (dv, keys), likewise.
  Left values(const Span& span, std::int64_t block) const {
    return {values_of(span, block), value_step(), width_ * value_step()};
  }

  // A block on its way to L2, to be had in about this many steps.
  PrefetchBlock fetch(const Span& span, std::int64_t block, std::int64_t steps) const {
    if (!shares_ || block >= blocks_) return {};
    constexpr std::int64_t kSize = sizeof(std::uint16_t);
    const std::int64_t key_bytes = (in_place(block) ? block_keys_ * depth_ : key_size()) * kSize;
    const std::int64_t value_bytes = value_size() * kSize, most = key_bytes > value_bytes ? key_bytes : value_bytes;
    PrefetchBlock next(ceil_div(most, kCacheLine * steps));
    next.set(0, keys(span, block).data, key_bytes), next.set(1, values_of(span, block), value_bytes);
    return next;
  }

 private:
  // Rows of keys that are whole, dense pairs, and of pages whole blocks.
  bool dense() const {
    if (p_.element != Element::bf16 || converts(p_) || p_.d % kDepthStep != 0) return false;
    if (!p_.pages) return p_.k.token == p_.d;
    const std::int64_t tokens = p_.pages->tokens;
    return p_.pages->k.token == 2 * p_.d && (tokens >= p_.tk || tokens % step_ == 0);
  }
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

  void pack(const Span& span, std::int64_t block) const {
    if (!in_place(block)) pack_keys(span, block);
    pack_values(span, block);
  }

  void pack_keys(const Span& span, std::int64_t block) const {
    std::uint16_t* out = keys_of(span, block);
    const Spread spread{parts_, block_keys_ * depth_};
    for (std::int64_t j = 0; j < block_keys_; j += kForwardStrip) {
      const void* rows[kForwardStrip];
      list_rows(p_, all_keys(p_), span, block * step_ + j, lines_, rows);
      for (const void* one : rows) {
        pack_row(p_.element, one, p_.d, spread, out, depth_);
        out += depth_;
      }
    }
  }

  void pack_values(const Span& span, std::int64_t block) const {
    for (std::int64_t j = 0; j < block_keys_; j += kForwardStrip) {
      const void* rows[kForwardStrip];
      list_rows(p_, all_values(p_), span, block * step_ + j, lines_, rows);
      pack_transposed(p_.element, rows, p_.dv, {parts_, width_ * value_step()}, values_of(span, block) + j,
                      value_step());
    }
  }

  const Problem& p_;
  bool shares_;
  int parts_;
  std::int64_t step_, blocks_, block_keys_, depth_, width_;  // keys of a block, of which the last may have fewer
  std::uint16_t *shared_, *own_ = nullptr;
  float* lines_ = nullptr;  // (kForwardStrip, d or dv)
};

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
