// Few queries against many keys: a cache is read once, at the speed of memory. The keys are cut into chunks of a
// fixed size, a task each, whose partial results are merged in order (Dao et al. 2023, "Flash-Decoding"): neither
// the threads nor the batch change a bit.
#pragma once

#include "kernels/attention/decode_softmax.hpp"
#include "kernels/attention/softmax.hpp"
#include "kernels/attention/write_rows.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

constexpr int kDecodeQueries = 4;  // of a head, at most; more fill the lanes of tiles

// A chunk's result for a query: the largest score, Σ 2^(s - largest), and the context (dv, padded) in that scale.
inline std::int64_t partial_floats(const Problem& p) { return pad_lanes(2) + pad_lanes(p.dv) + kLanes; }

inline std::size_t decode_shared(const Problem& p, const ForwardPlan& plan) {
  return static_cast<std::size_t>(plan.tasks[0] * rows_per_key_head(p) * partial_floats(p)) * sizeof(float);
}

inline float* partial(const Problem& p, void* shared, std::int64_t task, std::int64_t r) {
  return static_cast<float*>(shared) + (task * rows_per_key_head(p) + r) * partial_floats(p);
}

// Holds the queries and the contexts of a key head, and multiplies both by rows where they lie.
template <class Core>
concept DecodeCore = requires(Core core, const Units& units, std::int64_t r, float* out,
                              float* (&query)(std::int64_t)) {
  requires __is_same(decltype(Core::kScaled), const bool);  // rows have scales
  core.start(query);                                        // clears the contexts and packs query(r) of every row r
  core.scores(units, out);                                  // (queries, kStepKeys) = q · kᵀ
  core.add_values(out, units);                              // contexts += weights · v
  core.shrink(r, *out);                                     // context r, by a factor
  core.finish(r, out);                                      // context r, as it is
};

// One chunk of keys against all queries of a key head.
template <DecodeCore Core>
class Decoder {
 public:
  Decoder(const Problem& p, const ForwardPlan& plan, Workspace& take) : p_(p), plan_(plan), core_(p, take) {
    line_ = take(p.d + kMostSpan);
    s_ = take(rows_per_key_head(p) * kStepKeys);
    list_ = reinterpret_cast<RowList*>(take(sizeof(RowList) / sizeof(float)));
    steps_ = reinterpret_cast<Step*>(take(kChunkKeys / kStepKeys * sizeof(Step) / sizeof(float)));
  }

  void run(std::int64_t task, void* shared) {
    partials_ = partial(p_, shared, task, 0);
    const std::int64_t head = task / plan_.chunks;
    span_ = {head / p_.hkv, head % p_.hkv, 0, rows_per_key_head(p_)};
    begin_ = task % plan_.chunks * kChunkKeys;
    find_rows();
    start();
    for (int i = 0; i < count_; ++i) run(steps_[i]);
    finish();
  }

 private:
  struct Step {
    std::int64_t first, keys, units;
    std::int64_t place[kStepUnits];  // of its units
    const char **k, **v;
    float k_scale[kStepKeys], v_scale[kStepKeys];  // of i8
  };

  float* state(std::int64_t r) const { return partials_ + r * partial_floats(p_); }

  // The steps that some query sees keys of, and where their rows lie.
  void find_rows() {
    std::int64_t first = p_.tk, last = 0;
    for (std::int64_t i = 0; i < p_.tq; ++i) {
      if (p_.first[i] >= p_.last[i]) continue;
      first = p_.first[i] < first ? p_.first[i] : first;
      last = p_.last[i] > last ? p_.last[i] : last;
    }
    list_->used = 0;
    for (std::int64_t at = begin_; at < begin_ + kChunkKeys; at += kStepKeys) {
      const std::int64_t from = first > at ? first / kUnitKeys * kUnitKeys : at;
      const std::int64_t to = last < at + kStepKeys ? last : at + kStepKeys;
      if (from < to) add_step(steps_[count_++], at, from, to);
    }
    if (count_ > 0) list_next(last);
  }

  // Lists what is fetched while the last block is read: the next chunk's first, which is likely this thread's as well.
  void list_next(std::int64_t last) {
    float scales[kUnitKeys];
    for (std::int64_t i = 0; i < kStreams; ++i) {
      const std::int64_t key = begin_ + kChunkKeys + i * (kStepKeys / kStreams);
      if (key >= last) break;
      const std::int64_t left = last - key;
      list_->add(p_, all_keys(p_), span_, key, left < kUnitKeys ? left : kUnitKeys, scales);
    }
    list_->close();
  }

  void add_step(Step& step, std::int64_t begin, std::int64_t from, std::int64_t to) {
    step.first = from, step.keys = to - from, step.units = 0;
    for (std::int64_t i = 0; i < kStepUnits; ++i) {
      const std::int64_t key = begin + (i % kStreams * (kStepUnits / kStreams) + i / kStreams) * kUnitKeys;
      if (from <= key && key < to) step.place[step.units++] = key - from;
    }
    step.k = list_->at + list_->used;
    add_rows(step, all_keys(p_), step.k_scale);
    step.v = list_->at + list_->used;
    add_rows(step, all_values(p_), step.v_scale);
  }

  void add_rows(const Step& step, const KeyRows& all, float* scales) {
    for (std::int64_t u = 0; u < step.units; ++u) {
      const std::int64_t place = step.place[u], left = step.keys - place;
      list_->add(p_, all, span_, step.first + place, left < kUnitKeys ? left : kUnitKeys, scales + place);
    }
  }

  void start() {
    // A sink is a score met before any key: by the first chunk alone.
    const bool with_sink = p_.sinks && begin_ == 0;
    for (std::int64_t r = 0; r < span_.rows; ++r) {
      state(r)[0] = with_sink ? p_.sinks[query(p_, span_, r).head] * kLog2e : kMinusInfinity;
      state(r)[1] = state(r)[0] == kMinusInfinity ? 0 : 1;
    }
    core_.start([&](std::int64_t r) { return scaled_query(r); });
  }

  float* scaled_query(std::int64_t r) {
    const Query at = query(p_, span_, r);
    const float factor = query_factor(p_);
    widen(p_.element, row(p_.q, p_.element, span_.batch, at.head, at.token), line_, p_.d);
    for (std::int64_t c = 0; c < p_.d; ++c) line_[c] *= factor;
    return line_;
  }

  void run(const Step& step) {
    core_.scores({step.k, step.place, step.units, step.keys}, s_);
    for (std::int64_t r = 0; r < span_.rows; ++r) soften(r, step);
    core_.add_values(s_, {step.v, step.place, step.units, step.keys});
  }

  // Scores of query r to weights.
  void soften(std::int64_t r, const Step& step) {
    const Query at = query(p_, span_, r);
    const Line line{at, p_.first[at.token], p_.last[at.token], step.first, step.keys, s_ + r * kStepKeys};
    scale_line(line, step.k_scale);
    adjust_line(p_, span_, line);
    mask_line(p_, span_, line);
    const float shrink = soften_line(line, state(r));
    if (drops(p_)) drop_line(p_, span_, line);
    scale_line(line, step.v_scale);
    if (shrink != 1) core_.shrink(r, shrink);
  }

  static void scale_line(const Line& line, const float* scale) {
    if constexpr (Core::kScaled) {
      for (std::int64_t j = 0; j < line.keys; j += kLanes) store(line.s + j, load(line.s + j) * load(scale + j));
    }
  }

  void finish() {
    for (std::int64_t r = 0; r < span_.rows; ++r) core_.finish(r, state(r) + pad_lanes(2));
  }

  const Problem& p_;
  const ForwardPlan& plan_;
  Core core_;
  float *line_, *s_, *partials_;
  RowList* list_;
  Step* steps_;
  Span span_;
  std::int64_t begin_;
  int count_ = 0;
};

// Merges the chunks of a key head, in order, into the first one's place, and writes the rows.
inline void decode_merge(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, std::int64_t task,
                         void* shared) {
  const Span span{task / p.hkv, task % p.hkv, 0, rows_per_key_head(p)};
  RowWriter write(result.element, span.rows * p.dv, result.finite);
  for (std::int64_t r = 0; r < span.rows; ++r) {
    float* sum = partial(p, shared, task * plan.chunks, r);
    float* context = sum + pad_lanes(2);
    for (std::int64_t i = 1; i < plan.chunks; ++i) {
      const float* part = partial(p, shared, task * plan.chunks + i, r);
      if (part[0] == kMinusInfinity && part[1] == 0) continue;
      const float most = part[0] > sum[0] || part[0] != part[0] ? part[0] : sum[0];
      const float base = most == kMinusInfinity ? 0 : most;
      const float keep = exp2_nonpositive(splat(sum[0] - base))[0], add = exp2_nonpositive(splat(part[0] - base))[0];
      sum[0] = most, sum[1] = sum[1] * keep + part[1] * add;
      for (std::int64_t c = 0; c < p.dv; ++c) context[c] = context[c] * keep + part[pad_lanes(2) + c] * add;
    }
    const float inverse = 1 / sum[1];
    for (std::int64_t c = 0; c < p.dv; ++c) context[c] = sum[1] == 0 ? 0 : context[c] * inverse;
    const Query at = query(p, span, r);
    write(context, row(result.output, result.element, span.batch, at.head, at.token), p.dv);
    const float lse = write_log_sum_exp(p, result, span, at, sum[0], sum[1]);
    if (!is_sound(p, at, lse)) write.tell();
  }
}

template <DecodeCore Core>
inline void run_decode(const Problem& p, const ForwardPlan& plan, const ForwardResult& result, int phase,
                       std::int64_t task, void* shared, void* scratch) {
  if (phase == 1) return decode_merge(p, plan, result, task, shared);
  Workspace take{static_cast<float*>(scratch)};
  Decoder<Core>(p, plan, take).run(task, shared);
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
