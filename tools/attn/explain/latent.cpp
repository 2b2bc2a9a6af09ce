// One token's way through a latent: what is kept of it, and the same scores and context from what is kept alone.
#include <cmath>

#include "common/arithmetic.hpp"
#include "common/format.hpp"
#include "explain/walk.hpp"

namespace attn::tool {
namespace {

using Row = std::vector<double>;

// Rows first to first + count of the weight, each with x.
Row products(const Tensor& weight, std::int64_t first, std::int64_t count, const Row& x) {
  Row y;
  for (std::int64_t i = first; i < first + count; ++i) {
    double sum = 0;
    for (std::size_t d = 0; d < x.size(); ++d) sum += weight.at({i, static_cast<std::int64_t>(d)}) * x[d];
    y.push_back(sum);
  }
  return y;
}

Row part(const Row& x, std::int64_t first, std::int64_t count) {
  return {x.begin() + first, x.begin() + first + count};
}

}  // namespace

std::string Walk::latents() {
  const std::int64_t n = query_ + 1;
  const LatentSizes& sizes = walked_.config.latents;
  const Row x = row("inputs", query_), compressed = row("compressed", query_);
  double squares = 0;
  for (const double v : compressed) squares += v * v;
  const double root = std::sqrt(squares / static_cast<double>(sizes.latent) + walked_.config.epsilon);
  std::string text = heading(formatted("Latent: each token in {} numbers, which a cache keeps", sizes.latent));
  text.append(formatted("compressed_{} = W_a · x_{} = {}\n", n, n, vector_text(compressed)));
  text.append(components("compressed", x, parameter("kv_a_proj_with_mqa.weight"), parameter("kv_a_proj_with_mqa.bias"),
                         0, compressed));
  text.append(formatted("latent_{} = compressed_{} / {}, its root mean square, times the norm's weight\n", n, n,
                        number_text(root)));
  text.append("all latents\n" + rows("latent", "latents"));
  if (has("query latents"))
    text.append(formatted("the query's own latent, made likewise\n  latent_{} = {}\n", n,
                          vector_text(row("query latents", query_))));
  return text;
}

std::string Walk::latent_projections() {
  const std::int64_t n = query_ + 1;
  const LatentSizes& sizes = walked_.config.latents;
  const Row x = row("inputs", query_), latent = row("latents", query_), key = row("keys", query_);
  const bool low = has("query latents");
  const std::int64_t own = head_ * (sizes.plain + sizes.value);  // the head's rows: of keys, and then of values
  const Tensor up = parameter("kv_b_proj.weight"), none;
  const Row query = row("queries", query_), value = row("values", query_);
  std::string text = heading(low ? "Projection: queries of their latents, keys and values of the others"
                                 : "Projection: queries of the inputs, keys and values of the latents");
  text.append(formatted("query_{} = W_q · {}_{} = {}\n", n, low ? "latent" : "x", n, vector_text(query)));
  text.append(components("query", low ? row("query latents", query_) : x,
                         parameter(low ? "q_b_proj.weight" : "q_proj.weight"), none, head_ * sizes.key(), query));
  text.append(formatted("key_{} = W_k · latent_{} = {}\n", n, n, vector_text(part(key, 0, sizes.plain))));
  text.append(components("key", latent, up, none, own, part(key, 0, sizes.plain)));
  if (sizes.rotary > 0) {
    const Row shared = part(key, sizes.plain, sizes.rotary);
    text.append(formatted("and behind it, for all heads, W_r · x_{} = {}\n", n, vector_text(shared)));
    text.append(components("shared", x, parameter("kv_a_proj_with_mqa.weight"), parameter("kv_a_proj_with_mqa.bias"),
                           sizes.latent, shared));
  }
  text.append(formatted("value_{} = W_v · latent_{} = {}\n", n, n, vector_text(value)));
  text.append(components("value", latent, up, none, own + sizes.plain, value));
  return text.append("all keys\n" + rows("key", "keys") + "all values\n" + rows("value", "values"));
}

// A decoder changes the query in place of all keys, and makes the values once, from the weights' sum.
std::string Walk::absorbed() {
  const std::int64_t n = query_ + 1;
  const LatentSizes& sizes = walked_.config.latents;
  const std::int64_t own = head_ * (sizes.plain + sizes.value);
  const Tensor up = parameter("kv_b_proj.weight");
  const bool turned = has("rotated queries");
  const Row query = row(turned ? "rotated queries" : "queries", query_), scores = row("scores", query_);
  Row wide =
      products(up.slice(0, own, own + sizes.plain).transpose(0, 1), 0, sizes.latent, part(query, 0, sizes.plain));
  wide.insert(wide.end(), query.begin() + sizes.plain, query.end());
  std::string text = heading("The same from the cache: no key and no value is made of a latent");
  text.append(formatted("a cache has {} numbers of a token; the keys and values of its {} {} are {}\n", sizes.cached(),
                        heads_, heads_ == 1 ? "head" : "heads", heads_ * (sizes.key() + sizes.value)));
  text.append(formatted("q_{} = query_{} · W_k{} = {}\n", n, n, sizes.rotary > 0 ? ", and its rotary part" : "",
                        vector_text(wide)));
  const Row weights = row(final_weights(), query_);
  Row sum(static_cast<std::size_t>(sizes.latent));
  text.append(each_line(shown_keys(), [&](std::int64_t j) {
    Row kept = row("latents", j);
    const Row key = row(turned ? "rotated keys" : "keys", j);
    kept.insert(kept.end(), key.begin() + sizes.plain, key.end());
    return dot_line(formatted("  q_{} · {}_{}", n, sizes.rotary > 0 ? "cached" : "latent", j + 1), wide, kept,
                    std::nullopt, scores[static_cast<std::size_t>(j)], key_label(j));
  }));
  for (std::int64_t j = 0; j < keys_; ++j) {
    const Row latent = row("latents", j);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += weights[static_cast<std::size_t>(j)] * latent[c];
  }
  text.append("these are the scores above; their weights sum the latents\n");
  text.append(formatted("  sum = {}\n", vector_text(sum)));
  return text +
         style_.strong(formatted("  context_{} = W_v · sum = {}", n,
                                 vector_text(products(up, own + sizes.plain, sizes.value, sum)))) +
         "\n";
}

}  // namespace attn::tool
