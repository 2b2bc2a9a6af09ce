// Keys and values where they lie, in a tensor or in the pages of a cache, and tiles of them as products take them: in
// place where that can be, else converted into a task's own memory. A cache's element is the problem's, or the
// problem's is float32.
#pragma once

#include "kernels/attention/query_tile.hpp"
#include "kernels/prefetch.hpp"

namespace attn::kernels::ATTN_UNIT {
namespace {

// All keys, or all values.
struct KeyRows {
  const Rows* rows;
  const PageRows* paged;  // in place of those; null: in a tensor
  std::int64_t width;
};

inline KeyRows all_keys(const Problem& p) { return {&p.k, p.pages ? &p.pages->k : nullptr, p.d}; }
inline KeyRows all_values(const Problem& p) { return {&p.v, p.pages ? &p.pages->v : nullptr, p.dv}; }

inline Element stored_element(const Problem& p) { return p.pages ? p.pages->element : p.element; }

// Rows that lie `step` bytes apart. Those of i8 have scales.
struct RowRun {
  const char* data;
  std::int64_t step, count;
  const float* scales;

  const char* row(std::int64_t i) const { return data + i * step; }
};

// Those of a span's head from key `first` on, `most` at most: of pages those of one.
inline RowRun run_at(const Problem& p, const KeyRows& all, const Span& span, std::int64_t first, std::int64_t most) {
  if (!all.paged) {
    const void* data = row(*all.rows, p.element, span.batch, span.key_head, first);
    return {static_cast<const char*>(data), all.rows->token * element_bytes(p.element), most, nullptr};
  }
  const Pages& pages = *p.pages;
  const PageRows& part = *all.paged;
  const std::int64_t place = first % pages.tokens;
  const char* page = static_cast<const char*>(pages.tables[span.batch][first / pages.tokens]);
  const float* scales = nullptr;
  if (pages.element == Element::i8)
    scales = reinterpret_cast<const float*>(page + part.scales) + span.key_head * pages.tokens + place;
  return {page + part.offset + span.key_head * part.head + place * part.token, part.token,
          least_of(pages.tokens - place, most), scales};
}

// f(run, its first row's number) for each of the runs that `count` rows from key `first` on lie in.
template <class F>
inline void for_each_run(const Problem& p, const KeyRows& all, const Span& span, std::int64_t first, std::int64_t count,
                         F&& f) {
  for (std::int64_t j = 0; j < count;) {
    const RowRun run = run_at(p, all, span, first + j, count - j);
    f(run, j);
    j += run.count;
  }
}

// out (count, width) of float32.
inline void widen_rows(Element element, const RowRun& run, std::int64_t width, float* out) {
  for (std::int64_t j = 0; j < run.count; ++j, out += width) {
    widen(element, run.row(j), out, width);
    if (!run.scales) continue;
    std::int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) store(out + c, load(out + c) * splat(run.scales[j]));
    for (; c < width; ++c) out[c] *= run.scales[j];
  }
}

// Rows of float32.
struct Block {
  const float* data;
  std::int64_t step;
};

// In place, or in `buffer` (count, width).
inline Block block_of(const Problem& p, const KeyRows& all, const Span& span, std::int64_t first, std::int64_t count,
                      float* buffer) {
  const Element stored = stored_element(p);
  if (stored == Element::f32) {
    const RowRun run = run_at(p, all, span, first, count);
    if (run.count == count) return {reinterpret_cast<const float*>(run.data), run.step / 4};
  }
  for_each_run(p, all, span, first, count,
               [&](const RowRun& run, std::int64_t j) { widen_rows(stored, run, all.width, buffer + j * all.width); });
  return {buffer, all.width};
}

// Whether list_rows() needs a buffer.
inline bool converts(const Problem& p) { return stored_element(p) != p.element; }

// Addresses of the rows from key `first` on as the problem's elements, in place or in `buffer` (kCount, width); null
// past the last key.
template <int kCount>
inline void list_rows(const Problem& p, const KeyRows& all, const Span& span, std::int64_t first, float* buffer,
                      const void* (&rows)[kCount]) {
  const std::int64_t left = p.tk - first, count = left < kCount ? left : kCount;
  for_each_run(p, all, span, first, count, [&](const RowRun& run, std::int64_t j) {
    float* own = buffer + j * all.width;
    if (converts(p)) widen_rows(stored_element(p), run, all.width, own);
    for (std::int64_t i = 0; i < run.count; ++i)
      rows[j + i] = converts(p) ? static_cast<const void*>(own + i * all.width) : run.row(i);
  });
  for (std::int64_t j = count > 0 ? count : 0; j < kCount; ++j) rows[j] = nullptr;
}

// Rows on their way to L2; of very small pages the first ones.
inline void fetch_rows(const Problem& p, const KeyRows& all, const Span& span, std::int64_t first, std::int64_t count,
                       PrefetchRows& ahead) {
  for_each_run(p, all, span, first, count, [&](const RowRun& run, std::int64_t) {
    ahead.add(run.data, run.step, run.count, all.width * element_bytes(stored_element(p)));
  });
}

}  // namespace
}  // namespace attn::kernels::ATTN_UNIT
