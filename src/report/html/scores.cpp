#include "report/html/scores.hpp"

#include <algorithm>
#include <cmath>

namespace attn::report_page {

HeadScores head_scores(const Tensor& weights) {
  const std::int64_t queries = weights.size(0), keys = weights.size(1);
  const Tensor whole = weights.contiguous();
  HeadScores sum;
  double rows = 0, later = 0;
  for (std::int64_t i = 0; i < queries; ++i) {
    const float* row = whole.data<float>() + i * keys;
    bool any = false;
    for (std::int64_t j = 0; j < keys; ++j) {
      const double w = row[j];
      if (w == 0) continue;
      any = true;
      sum.entropy -= w * std::log(w);
      sum.distance += w * static_cast<double>(std::abs(i - j));
      if (j == 0) sum.first += w;
      if (j == i) sum.diagonal += w;
      if (j == i - 1) sum.previous += w;
    }
    rows += any;
    later += any && i > 0;
  }
  if (rows == 0) return {};
  return {.entropy = sum.entropy / rows,
          .distance = sum.distance / rows,
          .first = sum.first / rows,
          .previous = later > 0 ? sum.previous / later : 0,
          .diagonal = sum.diagonal / rows};
}

HeadKinds head_kinds(const Tensor& weights, std::span<const std::int64_t> ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const Tensor whole = weights.contiguous();
  const auto id = [&](std::int64_t at) { return ids[static_cast<std::size_t>(at % n)]; };
  HeadKinds sum;
  for (std::int64_t i = n; i < 2 * n; ++i) {
    const float* row = whole.data<float>() + i * 2 * n;
    for (std::int64_t j = 0; j < i; ++j) {
      double* kind = j == 0               ? &sum.first
                     : j == i - 1         ? &sum.previous
                     : id(j) == id(i)     ? &sum.same
                     : id(j - 1) == id(i) ? &sum.induction
                                          : nullptr;
      if (kind) *kind += static_cast<double>(row[j]);
    }
  }
  const auto queries = static_cast<double>(n);
  return {sum.first / queries, sum.previous / queries, sum.same / queries, sum.induction / queries};
}

std::optional<std::pair<std::int64_t, std::int64_t>> strongest_head(const std::vector<std::vector<HeadKinds>>& layers,
                                                                    std::optional<std::int64_t> layer) {
  std::optional<std::pair<std::int64_t, std::int64_t>> found;
  const std::int64_t first = layer.value_or(0), end = layer ? first + 1 : std::ssize(layers);
  if (first < 0 || end > std::ssize(layers)) return found;
  for (const auto kind : {&HeadKinds::induction, &HeadKinds::previous, &HeadKinds::same, &HeadKinds::first}) {
    double most = 0;
    for (std::int64_t l = first; l < end; ++l) {
      const std::vector<HeadKinds>& heads = layers[static_cast<std::size_t>(l)];
      for (std::int64_t h = 0; h < std::ssize(heads); ++h) {
        const HeadKinds& k = heads[static_cast<std::size_t>(h)];
        if (k.*kind < kNamed || k.*kind <= most || k.*kind < std::max({k.first, k.previous, k.same, k.induction}))
          continue;
        most = k.*kind;
        found = {l, h};
      }
    }
    if (found) return found;
  }
  return found;
}

}  // namespace attn::report_page
