// Few queries against many keys: a cache is read once, at the speed of memory. The keys are cut into chunks of a
// fixed size, a task each, whose partial results are merged in order (Dao et al. 2023, "Flash-Decoding"): neither
// the threads nor the batch change a bit.
#pragma once

#include "kernels/unit/decode_products.hpp"
#include "kernels/unit/decode_softmax.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr std::int64_t kDecodeQueries = 4;  // most queries of a head; more fill the lanes of the other kernel

inline bool decodes(const Problem& p) { return p.hkv > 0 && p.tq > 0 && p.tq <= kDecodeQueries; }

inline std::int64_t chunks(const Problem& p) { return p.tk == 0 ? 1 : (p.tk + kChunkKeys - 1) / kChunkKeys; }

// A chunk's result for a query: the largest score, Σ 2^(s - largest), and the context (dv, padded) in that scale.
inline std::int64_t partial_floats(const Problem& p) { return pad_lanes(2) + pad_lanes(p.dv) + kLanes; }

inline std::size_t decode_shared(const Problem& p) {
  return static_cast<std::size_t>(p.batch * p.hkv * chunks(p) * rows_per_key_head(p) * partial_floats(p)) *
         sizeof(float);
}

inline std::int64_t decode_tasks(const Problem& p, int phase) { return p.batch * p.hkv * (phase == 0 ? chunks(p) : 1); }

inline float* partial(const Problem& p, void* shared, std::int64_t task, std::int64_t r) {
  return static_cast<float*>(shared) + (task * rows_per_key_head(p) + r) * partial_floats(p);
}

// Calls f with an E{} of what is stored.
template <class F>
inline decltype(auto) with_stored(const Problem& p, F&& f) {
  switch (p.pages ? p.pages->element : p.element) {
    case Element::bf16:
      return f(StoredBf16{});
    case Element::f16:
      return f(StoredF16{});
    case Element::i8:
      return f(StoredI8{});
    case Element::f32:
      break;
  }
  return f(StoredF32{});
}

template <class E>
struct DecodeScratch {
  Loads<E> key_loads, value_loads;
  float *line, *queries, *contexts, *s;
  char *narrow_keys, *narrow_values;
  RowList* list;

  DecodeScratch(const Problem& p, Carver& take) : key_loads(p.d), value_loads(p.dv) {
    constexpr std::int64_t kNarrow = kStepKeys * E::kSpan * E::kBytes / 4;
    const std::int64_t rows = rows_per_key_head(p);
    line = take(p.d + E::kSpan);
    queries = take(rows * key_loads.floats());
    contexts = take(rows * value_loads.floats());
    s = take(rows * kStepKeys);
    narrow_keys = reinterpret_cast<char*>(take(key_loads.narrow() ? kNarrow : 0));
    narrow_values = reinterpret_cast<char*>(take(value_loads.narrow() ? kNarrow : 0));
    list = reinterpret_cast<RowList*>(take(sizeof(RowList) / sizeof(float)));
  }
};

inline std::size_t decode_scratch(const Problem& p) {
  Carver count{nullptr};
  with_stored(p, [&]<class E>(E) { DecodeScratch<E>(p, count); });
  return static_cast<std::size_t>(count.used) * sizeof(float);
}

// One chunk of keys against all queries of a key head.
template <class E>
class Decoder {
 public:
  Decoder(const Problem& p, std::int64_t task, void* shared, Carver take)
      : p_(p), mem_(p, take), partials_(partial(p, shared, task, 0)) {
    const std::int64_t head = task / chunks(p);
    span_ = {head / p.hkv, head % p.hkv, 0, rows_per_key_head(p)};
    begin_ = task % chunks(p) * kChunkKeys;
  }

  void run() {
    find_rows();
    start();
    for (int i = 0; i < steps_; ++i) step(i);
    finish();
  }

 private:
  static constexpr int kSteps = kChunkKeys / kStepKeys;

  float* state(std::int64_t r) const { return partials_ + r * partial_floats(p_); }
  float* context(std::int64_t r) const { return mem_.contexts + r * mem_.value_loads.floats(); }

  // The steps that some query sees keys of, and where their rows lie.
  void find_rows() {
    std::int64_t first = p_.tk, last = 0;
    for (std::int64_t i = 0; i < p_.tq; ++i) {
      const std::int64_t place = span_.batch * p_.interval_batch + i;
      if (p_.first[place] >= p_.last[place]) continue;
      first = p_.first[place] < first ? p_.first[place] : first;
      last = p_.last[place] > last ? p_.last[place] : last;
    }
    RowList& list = *mem_.list;
    list.used = 0;
    for (std::int64_t at = begin_; at < begin_ + kChunkKeys; at += kStepKeys) {
      const std::int64_t from = first > at ? first / kBlockKeys * kBlockKeys : at;
      const std::int64_t to = last < at + kStepKeys ? last : at + kStepKeys;
      if (from >= to) continue;
      first_[steps_] = from, keys_[steps_] = to - from, list_[steps_] = list.used;
      list.add(p_, p_.k, p_.pages ? &p_.pages->k : nullptr, span_, from, to - from);
      list.add(p_, p_.v, p_.pages ? &p_.pages->v : nullptr, span_, from, to - from);
      ++steps_;
    }
    if (steps_ > 0) list.close();
  }

  void start() {
    // A sink is a score met before any key: by the first chunk alone.
    const bool with_sink = p_.sinks && begin_ == 0;
    for (std::int64_t r = 0; r < span_.rows; ++r) {
      state(r)[0] = with_sink ? p_.sinks[query(p_, span_, r).head] * kLog2e : kMinusInfinity;
      state(r)[1] = state(r)[0] == kMinusInfinity ? 0 : 1;
    }
    for (std::int64_t c = 0; c < span_.rows * mem_.value_loads.floats(); c += kLanes) {
      store(mem_.contexts + c, splat(0.f));
    }
    by_fours(span_.rows, [&]<int Count>(std::int64_t r) {
      float* packed = mem_.queries + r * mem_.key_loads.floats();
      for (int i = 0; i < Count; ++i) pack(r + i, packed + i * kLanes, Count * kLanes);
    });
  }

  // Query r, scaled, as multiply_keys() takes it.
  void pack(std::int64_t r, float* packed, std::int64_t step) {
    const Query at = query(p_, span_, r);
    const float factor = query_factor(p_);
    widen(p_.element, row(p_.q, p_.element, span_.batch, at.head, at.token), mem_.line, p_.d);
    for (std::int64_t c = 0; c < p_.d; ++c) mem_.line[c] *= factor;
    mem_.key_loads.pack(mem_.line, packed, step);
  }

  void step(int i) {
    const std::int64_t keys = keys_[i];
    const char** k = mem_.list->at + list_[i];
    const char** v = k + pad_lanes(keys);
    const float *k_scale = mem_.list->scale + list_[i], *v_scale = k_scale + pad_lanes(keys);
    if (mem_.key_loads.narrow()) copy_narrow(mem_.key_loads, k, pad_lanes(keys), mem_.narrow_keys);
    if (mem_.value_loads.narrow()) copy_narrow(mem_.value_loads, v, pad_lanes(keys), mem_.narrow_values);
    for_blocks(keys, [&]<int Count>(std::int64_t r, std::int64_t j, std::int64_t count, bool ahead) {
      score_keys<E, Count>(mem_.queries + r * mem_.key_loads.floats(), mem_.key_loads, k + j, count,
                           rows_ahead(mem_.key_loads, ahead ? k + j : nullptr), mem_.s + r * kStepKeys + j);
    });
    for (std::int64_t r = 0; r < span_.rows; ++r) soften(r, first_[i], keys, k_scale, v_scale);
    for_blocks(keys, [&]<int Count>(std::int64_t r, std::int64_t j, std::int64_t count, bool ahead) {
      add_values<E, Count>(mem_.s + r * kStepKeys + j, mem_.value_loads, v + j, count,
                           rows_ahead(mem_.value_loads, ahead ? v + j : nullptr), context(r));
    });
  }

  static RowsAhead rows_ahead(const Loads<E>& loads, const char* const* rows) {
    return {rows, loads.ahead(), loads.lines()};
  }

  // Calls f<Count>(r, j, count, ahead) for each block of keys and Count queries from r on; `ahead`: the first of these.
  template <class F>
  void for_blocks(std::int64_t keys, F&& f) {
    for (std::int64_t j = 0; j < keys; j += kBlockKeys) {
      const std::int64_t count = keys - j < kBlockKeys ? keys - j : kBlockKeys;
      by_fours(span_.rows, [&]<int Count>(std::int64_t r) { f.template operator()<Count>(r, j, count, r == 0); });
    }
  }

  // Scores of query r to weights.
  void soften(std::int64_t r, std::int64_t first, std::int64_t keys, const float* k_scale, const float* v_scale) {
    const Query at = query(p_, span_, r);
    const std::int64_t place = span_.batch * p_.interval_batch + at.token;
    const Line line{
        at,   p_.first[place],       p_.last[place], p_.alibi_slopes ? static_cast<float>(p_.centre[place]) : 0, first,
        keys, mem_.s + r * kStepKeys};
    scale_line(line, k_scale);
    adjust_line(p_, span_, line);
    mask_line(p_, span_, line);
    const float shrink = soften_line(line, state(r));
    if (drops(p_)) drop_line(p_, span_, line);
    scale_line(line, v_scale);
    if (shrink == 1) return;
    for (std::int64_t c = 0; c < mem_.value_loads.floats(); c += kLanes) {
      store(context(r) + c, load(context(r) + c) * splat(shrink));
    }
  }

  static void scale_line(const Line& line, const float* scale) {
    if constexpr (E::kBytes == 1) {
      for (std::int64_t j = 0; j < line.keys; j += kLanes) store(line.s + j, load(line.s + j) * load(scale + j));
    }
  }

  void finish() {
    for (std::int64_t r = 0; r < span_.rows; ++r) mem_.value_loads.unpack(context(r), state(r) + pad_lanes(2));
  }

  const Problem& p_;
  DecodeScratch<E> mem_;
  float* partials_;
  Span span_;
  std::int64_t begin_;
  int steps_ = 0;
  std::int64_t first_[kSteps], keys_[kSteps], list_[kSteps];
};

// Merges the chunks of a key head, in order, into the first one's place, and writes the rows.
inline void decode_merge(const Problem& p, const ForwardResult& result, std::int64_t task, void* shared) {
  const Span span{task / p.hkv, task % p.hkv, 0, rows_per_key_head(p)};
  for (std::int64_t r = 0; r < span.rows; ++r) {
    float* sum = partial(p, shared, task * chunks(p), r);
    float* context = sum + pad_lanes(2);
    for (std::int64_t i = 1; i < chunks(p); ++i) {
      const float* part = partial(p, shared, task * chunks(p) + i, r);
      if (part[0] == kMinusInfinity && part[1] == 0) continue;
      const float most = part[0] > sum[0] || part[0] != part[0] ? part[0] : sum[0];
      const float base = most == kMinusInfinity ? 0 : most;
      const float keep = exp2_nonpositive(splat(sum[0] - base))[0], add = exp2_nonpositive(splat(part[0] - base))[0];
      sum[0] = most, sum[1] = sum[1] * keep + part[1] * add;
      for (std::int64_t c = 0; c < p.dv; ++c) context[c] = context[c] * keep + part[pad_lanes(2) + c] * add;
    }
    const float inverse = sum[0] == kMinusInfinity ? 0 : 1 / sum[1];
    float zero = 0;  // NaN once a context is not finite
    for (std::int64_t c = 0; c < p.dv; ++c) {
      context[c] *= inverse;
      zero += context[c] * 0;
    }
    const Query at = query(p, span, r);
    narrow(p.element, context, row(result.output, p.element, span.batch, at.head, at.token), p.dv);
    result.lse[(span.batch * p.hq + at.head) * p.tq + at.token] =
        sum[0] == kMinusInfinity ? kMinusInfinity : (sum[0] + __builtin_log2f(sum[1])) * kLn2 + zero;
  }
}

inline void decode(const Problem& p, const ForwardResult& result, int phase, std::int64_t task, void* shared,
                   void* scratch) {
  if (phase == 1) return decode_merge(p, result, task, shared);
  with_stored(p, [&]<class E>(E) { Decoder<E>(p, task, shared, Carver{static_cast<float*>(scratch)}).run(); });
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
