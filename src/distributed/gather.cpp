// Every rank gets all keys and values, and computes its own queries: the sums of a row are those of one process, in
// their order. The backward pass computes twice, own queries against all keys for their gradient, and all queries
// against own keys for theirs: sums over ranks would have other bits.
#include <algorithm>
#include <limits>

#include "distributed/exchange.hpp"

namespace attn::distributed {
namespace {

// A call of few rows may be computed by other kernels than one of many. With so many made-up ones it is not
// (kernels/plan.cpp): rows of zeros, whose results are dropped.
constexpr std::int64_t kLeastRows = 256;

Tensor padded(const Tensor& t, std::int64_t dim, std::int64_t rows, double value = 0) {
  if (!t.defined() || t.size(dim) >= rows) return t;
  Shape shape = t.shape();
  shape[static_cast<std::size_t>(dim)] = rows;
  const Tensor all = Tensor::full(shape, value, t.dtype());
  all.slice(dim, 0, t.size(dim)).copy_from(t);
  return all;
}

// A sequence, or one of those that are packed, and this rank's part of it.
struct Part {
  Run queries, keys;                // positions
  std::int64_t query_row, key_row;  // of the first ones in the tensors at hand
  std::int64_t padded_queries, padded_keys;
};

// Heads whose keys and values, of all ranks, take no more than most_bytes.
std::int64_t heads_at_a_time(const Call& call) {
  const Problem& p = call.problem;
  const auto row = static_cast<std::int64_t>(size_of(p.dtype)) * p.batch * (p.depth + p.value_depth);
  return std::clamp<std::int64_t>(call.most_bytes / std::max<std::int64_t>(row * p.keys.tokens(), 1), 1, p.key_heads);
}

template <class F>
void for_each_piece_of_heads(const Call& call, F&& f) {
  const std::int64_t step = heads_at_a_time(call);
  for (std::int64_t h = 0; h < call.problem.key_heads; h += step)
    f(Heads{h, std::min(h + step, call.problem.key_heads)});
}

// The packed sequence that a run of queries, or of keys, lies in; without packing the whole.
Part whole_of(const Call& call, Run run, bool of_queries) {
  const Mask& mask = call.options.mask;
  Part part{{0, call.queries().tokens()}, {0, call.keys().tokens()}, 0, 0, 0, 0};
  for (std::int64_t s = 0; mask.query_starts.defined() && s + 1 < mask.query_starts.numel(); ++s) {
    const auto at = [s](const Tensor& starts, std::int64_t n) {
      return starts.data<std::int64_t>()[(s + n) * starts.stride(0)];
    };
    const Run queries{at(mask.query_starts, 0), at(mask.query_starts, 1)},
        keys{at(mask.key_starts, 0), at(mask.key_starts, 1)};
    const Run& of = of_queries ? queries : keys;
    if (of.first <= run.first && run.last <= of.last && !of.empty()) part.queries = queries, part.keys = keys;
  }
  return part;
}

// The reference sums the weights of all rows that it is given, and needs no others.
std::int64_t least_of(const Call& call, std::int64_t whole) {
  const bool is_fused = call.problem.dtype != DType::f64 && call.options.dropout < 1;
  return is_fused ? std::min(whole, kLeastRows) : 0;
}

// f(run, row) for each of this rank's runs within one sequence, whose first token is the rank's row `row`.
template <class F>
void for_each_own_run(const Layout& layout, const Tensor& starts, int rank, F&& f) {
  std::int64_t row = 0;
  for (const Run& run : layout.runs(rank)) {
    for (const Run& own : within_sequences(starts, run)) f(own, row + own.first - run.first);
    row += run.length();
  }
}

// f(part) for each of this rank's runs of queries, against all keys that are theirs.
template <class F>
void for_each_run_of_queries(const Call& call, F&& f) {
  for_each_own_run(call.queries(), call.options.mask.query_starts, call.rank(), [&](const Run& own, std::int64_t row) {
    Part part = whole_of(call, own, true);
    part.padded_queries = std::max(least_of(call, part.queries.length()), own.length());
    part.queries = own, part.query_row = row, part.key_row = part.keys.first;
    part.padded_keys = part.keys.length();
    f(part);
  });
}

// f(part) for each of this rank's runs of keys, against all queries that are theirs.
template <class F>
void for_each_run_of_keys(const Call& call, F&& f) {
  for_each_own_run(call.keys(), call.options.mask.key_starts, call.rank(), [&](const Run& own, std::int64_t row) {
    Part part = whole_of(call, own, false);
    part.padded_keys = std::max(least_of(call, part.keys.length()), own.length());
    part.keys = own, part.key_row = row, part.query_row = part.queries.first;
    part.padded_queries = part.queries.length();
    f(part);
  });
}

// Options of a part, whose masks begin at `mask_row`. Sequences are no longer packed.
AttentionOptions options_of(const Call& call, const AttentionOptions& of, const Part& part, std::int64_t mask_row) {
  AttentionOptions all = of;
  all.mask.query_starts = all.mask.key_starts = {};
  if (of.mask.query_starts.defined()) all.mask.align = Align::top_left;
  AttentionOptions options = of_block(call.problem, all, part.queries, mask_row, part.keys);
  options.sinks = of.sinks;
  const auto pad = [&](const Tensor& t) {
    if (!t.defined()) return t;
    const Tensor rows = t.size(2) == 1 ? t : padded(t, 2, part.padded_queries);
    return t.size(3) == 1 ? rows : padded(rows, 3, part.padded_keys);
  };
  options.mask.keep = pad(options.mask.keep), options.mask.bias = pad(options.mask.bias);
  options.dropout_keep = pad(options.dropout_keep);
  // As many keys as decide which kernels the item's whole length takes; what is made up is dropped.
  for (std::int64_t b = 0; options.mask.key_lengths.defined() && b < call.problem.batch; ++b) {
    std::int64_t& length = options.mask.key_lengths.data<std::int64_t>()[b];
    const Tensor& whole = of.mask.key_lengths;
    if (length > 0 && part.padded_keys > part.keys.length())
      length =
          std::max(length, std::min(part.padded_keys, least_of(call, whole.data<std::int64_t>()[b * whole.stride(0)])));
  }
  return options;
}

Tensor queries_of(const Tensor& t, const Part& part, double value = 0) {
  return padded(t.slice(2, part.query_row, part.query_row + part.queries.length()), 2, part.padded_queries, value);
}

Tensor keys_of(const Tensor& t, const Part& part) {
  return padded(t.slice(2, part.key_row, part.key_row + part.keys.length()), 2, part.padded_keys);
}

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // log-sum-exp of rows that are made up

// The gradients of one piece of heads come from these.
struct Side {
  Tensor d_output, q, k, v, output, lse;

  AttentionGradient gradient(const Part& part, const AttentionOptions& options) const {
    const AttentionResult forward{queries_of(output, part), queries_of(lse, part, kNothing)};
    return attn::attention_backward(queries_of(d_output, part), queries_of(q, part), keys_of(k, part), keys_of(v, part),
                                    options, forward);
  }
};

// Adds a part's gradient of the bias: sums where the bias has a size of 1.
void add_bias(const Call& call, const Part& part, Heads heads, const Tensor& d_part, const Tensor& sum) {
  Tensor to = sum, from = d_part;
  if (sum.size(1) != 1) to = mask_heads(call.problem, to, heads);
  if (sum.size(2) != 1) {
    to = to.slice(2, part.query_row, part.query_row + part.queries.length());
    from = from.slice(2, 0, part.queries.length());
  }
  if (sum.size(3) != 1) to = to.slice(3, part.keys.first, part.keys.last);
  add_to(to, from);
}

void add_shared(const Call& call, Heads heads, const AttentionGradient& part, const AttentionGradient& sum) {
  const std::int64_t first = heads.first * call.group(), last = heads.last * call.group();
  if (sum.sinks.defined()) add_to(sum.sinks.slice(0, first, last).view({1, 1, 1, last - first}), part.sinks);
  if (!sum.relative_bias.defined()) return;
  add_to(sum.relative_bias.slice(1, first, last).unsqueeze(0).unsqueeze(0), part.relative_bias);
}

AttentionGradient zeros(const Call& call, const Incoming& in) {
  AttentionGradient grad{Tensor::zeros(in.q.shape(), call.output_dtype()),
                         Tensor::zeros(in.k.shape(), call.output_dtype()),
                         Tensor::zeros(in.v.shape(), call.output_dtype())};
  const auto like = [](const Tensor& t) { return t.defined() ? Tensor::zeros(t.shape(), DType::f64) : Tensor{}; };
  grad.bias = like(call.options.mask.bias), grad.sinks = like(call.options.sinks);
  grad.relative_bias = like(call.options.relative_bias.table);
  return grad;
}

void gradients_of_queries(const Call& call, Heads heads, const Side& side, const AttentionGradient& grad) {
  const AttentionOptions some = of_heads(call.problem, call.options, heads);
  for_each_run_of_queries(call, [&](const Part& part) {
    const AttentionGradient own = side.gradient(part, options_of(call, some, part, part.query_row));
    query_heads(call.problem, grad.q, heads)
        .slice(2, part.query_row, part.query_row + part.queries.length())
        .copy_from(own.q.slice(2, 0, part.queries.length()));
    if (grad.bias.defined()) add_bias(call, part, heads, own.bias, grad.bias);
    add_shared(call, heads, own, grad);
  });
}

// Keys behind an item's length, which may have been computed with.
void clear_padding(const Call& call, const Part& part, Heads heads, const AttentionGradient& grad) {
  const Tensor& lengths = call.options.mask.key_lengths;
  for (std::int64_t b = 0; lengths.defined() && b < call.problem.batch; ++b) {
    const std::int64_t length = lengths.data<std::int64_t>()[b * lengths.stride(0)];
    const std::int64_t seen = std::clamp<std::int64_t>(length - part.keys.first, 0, part.keys.length());
    for (const Tensor* t : {&grad.k, &grad.v})
      key_heads(*t, heads).select(0, b).slice(1, part.key_row + seen, part.key_row + part.keys.length()).fill(0);
  }
}

void gradients_of_keys(const Call& call, Heads heads, const AttentionOptions& options, const Side& side,
                       const AttentionGradient& grad) {
  AttentionOptions some = of_heads(call.problem, options, heads);
  some.sinks = {};  // these are in the log-sum-exps
  for_each_run_of_keys(call, [&](const Part& part) {
    const AttentionGradient own = side.gradient(part, options_of(call, some, part, part.query_row));
    const auto put = [&](const Tensor& to, const Tensor& from) {
      key_heads(to, heads)
          .slice(2, part.key_row, part.key_row + part.keys.length())
          .copy_from(from.slice(2, 0, part.keys.length()));
    };
    put(grad.k, own.k), put(grad.v, own.v);
    clear_padding(call, part, heads, grad);
  });
}

}  // namespace

AttentionResult gather_forward(const Call& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  AttentionResult result{Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, call.output_dtype()),
                         Tensor::empty({q.size(0), q.size(1), q.size(2)}, call.wide())};
  for_each_piece_of_heads(call, [&](Heads heads) {
    const Tensor all_k = whole_rows(call.transport, call.keys(), key_heads(k, heads)),
                 all_v = whole_rows(call.transport, call.keys(), key_heads(v, heads));
    const AttentionOptions some = of_heads(call.problem, call.options, heads);
    for_each_run_of_queries(call, [&](const Part& part) {
      const AttentionResult own =
          attn::attention(queries_of(query_heads(call.problem, q, heads), part), keys_of(all_k, part),
                          keys_of(all_v, part), options_of(call, some, part, part.query_row));
      const auto put = [&](const Tensor& to, const Tensor& from) {
        query_heads(call.problem, to, heads)
            .slice(2, part.query_row, part.query_row + part.queries.length())
            .copy_from(from.slice(2, 0, part.queries.length()));
      };
      put(result.output, own.output), put(result.lse, own.lse);
    });
  });
  return result;
}

AttentionGradient gather_backward(const Call& call, const Incoming& in) {
  AttentionGradient grad = zeros(call, in);
  AttentionOptions whole = call.options;
  const auto all_rows = [&](Tensor& t, bool shared) {
    if (t.defined() && !shared) t = whole_rows(call.transport, call.queries(), t);
  };
  all_rows(whole.mask.keep, call.shared.keep), all_rows(whole.mask.bias, call.shared.bias);
  all_rows(whole.dropout_keep, call.shared.dropout_keep);
  for_each_piece_of_heads(call, [&](Heads heads) {
    const auto of_queries = [&](const Tensor& t) { return query_heads(call.problem, t, heads); };
    const auto all_queries = [&](const Tensor& t) { return whole_rows(call.transport, call.queries(), of_queries(t)); };
    const auto all_keys = [&](const Tensor& t) { return whole_rows(call.transport, call.keys(), key_heads(t, heads)); };
    const AttentionResult& forward = in.forward;
    gradients_of_queries(call, heads,
                         {of_queries(in.d_output), of_queries(in.q), all_keys(in.k), all_keys(in.v),
                          of_queries(forward.output), of_queries(forward.lse)},
                         grad);
    gradients_of_keys(call, heads, whole,
                      {all_queries(in.d_output), all_queries(in.q), key_heads(in.k, heads), key_heads(in.v, heads),
                       all_queries(forward.output), all_queries(forward.lse)},
                      grad);
  });
  return grad;
}

}  // namespace attn::distributed
