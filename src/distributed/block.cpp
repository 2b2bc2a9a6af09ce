#include "distributed/block.hpp"

#include <algorithm>
#include <limits>

#include "attention/fields.hpp"
#include "core/parallel.hpp"

namespace attn::distributed {
namespace {

std::int64_t entry(const Tensor& t, std::int64_t i) { return t.data<std::int64_t>()[i * t.stride(0)]; }

std::int64_t length_of(const Problem& problem, const Mask& mask, std::int64_t b) {
  return mask.key_lengths.defined() ? entry(mask.key_lengths, b) : problem.keys.tokens();
}

// Query i of item b stands at key i + shift.
std::int64_t shift_of(const Problem& problem, const Mask& mask, std::int64_t b) {
  if (mask.align == Align::top_left || mask.query_starts.defined()) return 0;
  return length_of(problem, mask, b) - problem.queries.tokens();
}

struct Range {
  std::int64_t least, most;
};

template <class F>
Range over_items(const Problem& problem, F&& f) {
  Range range{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (std::int64_t b = 0; b < problem.batch; ++b) range = {std::min(range.least, f(b)), std::max(range.most, f(b))};
  return problem.batch == 0 ? Range{0, 0} : range;
}

// Cumulative lengths of the sequences' parts in a run.
Tensor clipped(const Tensor& starts, Run run) {
  Tensor part = Tensor::empty({starts.numel()}, DType::i64);
  for (std::int64_t s = 0; s < starts.numel(); ++s)
    part.data<std::int64_t>()[s] = std::clamp(entry(starts, s), run.first, run.last) - run.first;
  return part;
}

// Its own rows and columns of a tensor (…, rows, columns); a size of 1 is every row or column's.
Tensor cells(const Tensor& t, std::int64_t row, std::int64_t rows, Run keys) {
  if (!t.defined()) return t;
  const Tensor part = t.size(-2) == 1 ? t : t.slice(-2, row, row + rows);
  return t.size(-1) == 1 ? part : part.slice(-1, keys.first, keys.last);
}

void place(const Problem& problem, Run queries, Run keys, AttentionOptions& options) {
  const auto shift = [&](std::int64_t b) { return shift_of(problem, options.mask, b); };
  const Range all = over_items(problem, shift);
  const std::int64_t up = std::max<std::int64_t>(0, -all.least);  // positions are not negative
  if (all.least == all.most) {
    options.query_offset = queries.first + all.least + up;
  } else {
    Tensor each = Tensor::empty({problem.batch}, DType::i64);
    for (std::int64_t b = 0; b < problem.batch; ++b) each.data<std::int64_t>()[b] = queries.first + shift(b) + up;
    options.query_offset = each;
  }
  options.key_offset = keys.first + up;
}

}  // namespace

Run seen(const Problem& problem, const AttentionOptions& options, Run queries, Run keys) {
  const Mask& mask = options.mask;
  const Range lengths = over_items(problem, [&](std::int64_t b) { return length_of(problem, mask, b); });
  const Range shifts = over_items(problem, [&](std::int64_t b) { return shift_of(problem, mask, b); });
  Run run{keys.first, std::min(keys.last, lengths.most)};
  const std::int64_t far = std::int64_t{1} << 40, left = mask.window_left,
                     right = mask.is_causal ? 0 : mask.window_right;
  if (left >= 0) run.first = std::max(run.first, queries.first + shifts.least - std::min(left, far));
  if (right >= 0) run.last = std::min(run.last, queries.last + shifts.most + std::min(right, far));
  if (mask.query_starts.defined()) {
    std::int64_t first = far, last = 0;
    for (std::int64_t s = 0; s + 1 < mask.query_starts.numel(); ++s) {
      const Run own{std::max(entry(mask.query_starts, s), queries.first),
                    std::min(entry(mask.query_starts, s + 1), queries.last)};
      if (own.empty()) continue;
      first = std::min(first, entry(mask.key_starts, s)), last = std::max(last, entry(mask.key_starts, s + 1));
    }
    run = {std::max(run.first, first), std::min(run.last, last)};
  }
  if (run.empty() || queries.empty()) return {keys.first, keys.first};
  return run;
}

AttentionOptions of_block(const Problem& problem, const AttentionOptions& options, Run queries, std::int64_t mask_row,
                          Run keys) {
  AttentionOptions block = options;
  Mask& mask = block.mask;
  place(problem, queries, keys, block);
  if (mask.query_starts.defined()) {
    mask.query_starts = clipped(mask.query_starts, queries), mask.key_starts = clipped(mask.key_starts, keys);
  }
  if (mask.key_lengths.defined()) {
    mask.key_lengths = Tensor::empty({problem.batch}, DType::i64);
    for (std::int64_t b = 0; b < problem.batch; ++b)
      mask.key_lengths.data<std::int64_t>()[b] =
          std::clamp<std::int64_t>(length_of(problem, options.mask, b) - keys.first, 0, keys.length());
  }
  mask.align = Align::top_left;
  visit_tensors(block, [&](const char*, FieldKind what, Tensor& t) {
    if (what == FieldKind::cells) t = cells(t, mask_row, queries.length(), keys);
  });
  block.sinks = {};
  return block;
}

Heads share_of_heads(std::int64_t heads, std::int64_t pieces, std::int64_t i) {
  return {heads * i / pieces, heads * (i + 1) / pieces};
}

Tensor key_heads(const Tensor& t, Heads heads) {
  return heads.count() == t.size(1) ? t : t.slice(1, heads.first, heads.last);
}

Tensor query_heads(const Problem& problem, const Tensor& t, Heads heads) {
  if (heads.count() == problem.key_heads) return t;
  const std::int64_t group = problem.query_heads / problem.key_heads;
  return t.slice(1, heads.first * group, heads.last * group);
}

Tensor mask_heads(const Problem& problem, const Tensor& t, Heads heads) {
  return !t.defined() || t.size(1) == 1 ? t : query_heads(problem, t, heads);
}

AttentionOptions of_heads(const Problem& problem, const AttentionOptions& options, Heads heads) {
  if (heads.count() == problem.key_heads || problem.key_heads == 0) return options;
  AttentionOptions some = options;
  const std::int64_t group = problem.query_heads / problem.key_heads, first = heads.first * group,
                     last = heads.last * group;
  visit_tensors(some, [&](const char*, FieldKind what, Tensor& t) {
    if (what == FieldKind::cells || what == FieldKind::blocks) t = mask_heads(problem, t, heads);
    if (t.defined() && what == FieldKind::by_head) t = t.slice(0, first, last);
    if (t.defined() && what == FieldKind::table) t = t.slice(1, first, last);
  });
  some.heads = {options.heads.first + first, options.heads.all == 0 ? problem.query_heads : options.heads.all};
  return some;
}

std::vector<Run> within_sequences(const Tensor& starts, Run run) {
  if (!starts.defined()) return {run};
  std::vector<Run> parts;
  for (std::int64_t s = 0; s + 1 < starts.numel(); ++s) {
    const Run part{std::max(entry(starts, s), run.first), std::min(entry(starts, s + 1), run.last)};
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

void add_to(const Tensor& sum, const Tensor& part) {
  constexpr std::int64_t rows_of_task = 64;
  const Tensor from = part.contiguous();
  const std::int64_t width = sum.size(-1), rows = width == 0 ? 0 : sum.numel() / width, run = sum.size(-2);
  const auto add = [&](const auto* source) {
    parallel_for(
        (rows + rows_of_task - 1) / rows_of_task, 0, static_cast<double>(sum.numel()), [&](std::int64_t task, void*) {
          for (std::int64_t r = task * rows_of_task; r < std::min(rows, (task + 1) * rows_of_task); ++r) {
            const std::int64_t item = r / run / sum.size(1), head = r / run % sum.size(1);
            double* to = sum.data<double>() + item * sum.stride(0) + head * sum.stride(1) + r % run * sum.stride(2);
            for (std::int64_t c = 0; c < width; ++c)
              to[c * sum.stride(3)] += static_cast<double>(source[r * width + c]);
          }
        });
  };
  from.dtype() == DType::f64 ? add(from.data<double>()) : add(from.to(DType::f32).data<float>());
}

}  // namespace attn::distributed
