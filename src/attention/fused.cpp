#include "attention/fused.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/blocks.hpp"
#include "attention/composed.hpp"
#include "attention/element.hpp"
#include "attention/row.hpp"
#include "core/parallel.hpp"
#include "core/rows.hpp"
#include "kernels/explain.hpp"
#include "kernels/targets.hpp"
#include "random/philox.hpp"

namespace attn {
namespace {

// The rows of a tensor (b, h, t, d) from an item and a token on.
kernels::Rows rows_from(const Tensor& t, std::int64_t b, std::int64_t token) {
  const std::int64_t offset = b * t.stride(0) + token * t.stride(2),
                     bytes = static_cast<std::int64_t>(size_of(t.dtype()));
  return {static_cast<std::byte*>(t.raw()) + offset * bytes, t.stride(0), t.stride(1), t.stride(2)};
}

// Unit stride in the last dimension, as the kernels read; one element long has any.
Tensor readable(const Tensor& t) { return t.size(-1) == 1 || t.stride(-1) == 1 ? t : t.contiguous(); }

// Without a value, (b, h, t, d); tokens before heads in memory where `like` has them so, that is, where it was split
// from projections: heads then merge without a copy.
Tensor empty_like(const Tensor& like, const Shape& shape) {
  if (like.stride(1) >= like.stride(2) || shape[1] == 1) return Tensor::empty(shape, like.dtype());
  return Tensor::empty({shape[0], shape[2], shape[1], shape[3]}, like.dtype()).transpose(1, 2);
}

template <class T>
kernels::Grid<T> grid(const Tensor& t, const Shape& shape) {
  if (!t.defined()) return {};
  const Tensor all = t.expand(shape);
  return {all.data<T>(), all.stride(0), all.stride(1), all.stride(2), all.stride(3)};
}

// From an item, a query and a key on.
template <class T>
kernels::Grid<T> from(kernels::Grid<T> all, std::int64_t b, std::int64_t i, std::int64_t j) {
  if (all.data) all.data += b * all.batch + i * all.query + j * all.key;
  return all;
}

// Rows whose scores or sums left float32's range show it: their log-sum-exp is not finite, though they see keys.
// The reference, which sums in double, computes those again. A row at a time, so that memory stays linear in tk.
// composed(piece, b, h, i) is such a row.
template <class Row>
void mend_overflow(const Problem& p, const Mask& mask, const Piece& piece, AttentionResult& result, Row&& composed) {
  const auto sees_none = [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const auto [first, last] = piece.seen(i - piece.query);
    return !sees_block(p, mask, b, h, i, piece.key + first, piece.key + last);
  };
  for (std::int64_t head = piece.batch * p.hq; head < (piece.batch + piece.batches) * p.hq; ++head) {
    float* lse = result.lse.data<float>() + head * p.tq;
    const std::int64_t b = head / p.hq, h = head % p.hq;
    for (std::int64_t i = piece.query; i < piece.query + piece.tq; ++i) {
      if (std::isfinite(lse[i])) continue;
      if (lse[i] == -std::numeric_limits<float>::infinity() && sees_none(b, h, i)) continue;
      const AttentionResult exact = composed(piece, b, h, i);
      result.output.select(0, b).select(0, h).select(0, i).copy_from(exact.output.view({p.dv}));
      lse[i] = exact.lse.data<float>()[0];
    }
  }
}

// Of options.weight_rows.
template <class Row>
Tensor weights_of_rows(const Problem& p, const AttentionOptions& options, const std::vector<Piece>& all,
                       Row&& composed) {
  const std::int64_t n = options.weight_rows.numel();
  Tensor weights = Tensor::empty({p.batch, p.hq, n, p.tk});
  for (std::int64_t at = 0; p.tk != 0 && at < p.batch * p.hq * n; ++at) {
    const std::int64_t b = at / n / p.hq, h = at / n % p.hq;
    const auto i = static_cast<std::int64_t>(options.weight_rows.at({at % n}));
    const auto holds = [b, i](const Piece& piece) {
      return b < piece.batch + piece.batches && i < piece.query + piece.tq;  // the first that ends behind it
    };
    const Piece& piece = *std::find_if(all.begin(), all.end(), holds);
    weights.select(0, b).select(0, h).select(0, at % n).copy_from(composed(piece, b, h, i).weights.view({p.tk}));
  }
  return weights;
}

}  // namespace

bool can_fuse(const Tensor& q, const AttentionOptions& options) {
  const bool all_weights = options.return_weights && !options.weight_rows.defined();
  return q.dtype() != DType::f64 && !all_weights && options.dropout < 1;
}

namespace {

// One piece of a call as the kernels take it.
struct Part {
  Piece piece;
  kernels::Problem problem{};
  kernels::Pages pages{};  // of its items, where keys and values are in a cache
};

// A call as the kernels take it, with the tensors that its pointers look into.
struct Call {
  Tensor q, k, v, bias, slopes, sinks;
  std::vector<Piece> pieces;
  std::vector<Part> parts;
  std::vector<std::int32_t> intervals;  // of each part: first, last and centre of its queries
  double operations = 0;

  Call(const Tensor& query, const Tensor& key, const Tensor& value, const Problem& p, const AttentionOptions& options)
      : Call(query, p, options) {
    k = readable(key), v = readable(value);
    for (Part& part : parts) {
      part.problem.k = rows_from(k, part.piece.batch, part.piece.key);
      part.problem.v = rows_from(v, part.piece.batch, part.piece.key);
    }
  }

  Call(const Tensor& query, const kernels::Pages& pages, const Problem& p, const AttentionOptions& options)
      : Call(query, p, options) {
    for (Part& part : parts) {
      part.pages = pages;
      part.pages.tables += part.piece.batch;
      part.problem.pages = &part.pages;
    }
  }

  // Without keys and values.
  Call(const Tensor& query, const Problem& p, const AttentionOptions& options)
      : q(readable(query)), pieces(attn::pieces(p, options.mask)) {
    if (options.mask.bias.defined()) bias = options.mask.bias.to(DType::f32);
    if (options.alibi_slopes.defined()) slopes = options.alibi_slopes.to(DType::f32).contiguous();
    if (options.sinks.defined()) sinks = options.sinks.to(DType::f32).contiguous();
    for (const Piece& piece : pieces) {
      parts.push_back({piece, problem_of(piece, p, options)});
      operations += 2.0 * static_cast<double>(piece.batches * p.hq * piece.tq) * static_cast<double>(piece.tk) *
                    static_cast<double>(p.d + p.dv);
    }
    place();
  }

  Call(const Call&) = delete;

 private:
  kernels::Problem problem_of(const Piece& piece, const Problem& p, const AttentionOptions& options) const {
    kernels::Problem problem{};
    problem.batch = piece.batches, problem.hq = p.hq, problem.hkv = p.hkv;
    problem.tq = piece.tq, problem.tk = piece.tk, problem.d = p.d, problem.dv = p.dv;
    problem.first_batch = piece.batch, problem.first_query = piece.query, problem.first_key = piece.key;
    problem.element = element(q.dtype());
    problem.q = rows_from(q, piece.batch, piece.query);
    problem.scale = static_cast<float>(p.scale);
    problem.softcap = static_cast<float>(options.softcap);
    const auto cells = [&]<class T>(const Tensor& t, T) {
      return from(grid<T>(t, p.scores_shape()), piece.batch, piece.query, piece.key);
    };
    problem.keep = cells(options.mask.keep, bool{});
    problem.bias = cells(bias, float{});
    if (options.mask.block_keep.defined()) set_blocks(problem, piece, p, options.mask);
    problem.score_forward = options.score_function.forward;
    problem.score_backward = options.score_function.backward;
    problem.score_user = options.score_function.user;
    if (options.dropout > 0 && !options.dropout_key) problem.dropout_keep = cells(options.dropout_keep, bool{});
    problem.dropout_factor = static_cast<float>(1 / (1 - options.dropout));
    if (options.dropout > 0 && options.dropout_key) {
      problem.dropout_key = *options.dropout_key;
      problem.dropout_threshold = static_cast<std::uint32_t>(philox_threshold(options.dropout));
    }
    problem.precision = options.precision;
    if (piece.has_window()) problem.window = std::min(piece.left, piece.tk) + std::min(piece.right, piece.tk) + 1;
    if (slopes.defined()) problem.alibi_slopes = slopes.data<float>();
    if (sinks.defined()) problem.sinks = sinks.data<float>();
    return problem;
  }

  // A block larger than all tokens holds as many as one that just does.
  static void set_blocks(kernels::Problem& problem, const Piece& piece, const Problem& p, const Mask& mask) {
    const auto size = [](std::int64_t block, std::int64_t t) { return std::min(block, std::max<std::int64_t>(t, 1)); };
    problem.block_query = size(mask.block_query, p.tq), problem.block_key = size(mask.block_key, p.tk);
    problem.block_query_start = piece.query % problem.block_query;
    problem.block_key_start = piece.key % problem.block_key;
    problem.blocks = from(grid<bool>(mask.block_keep, block_shape(p, mask)), piece.batch,
                          piece.query / problem.block_query, piece.key / problem.block_key);
  }

  // Where each query of the parts stands among the keys.
  void place() {
    std::size_t queries = 0;
    for (const Part& part : parts) queries += static_cast<std::size_t>(part.piece.tq);
    intervals.resize(3 * queries);
    std::int32_t* at = intervals.data();
    for (Part& part : parts) {
      const std::int64_t tq = part.piece.tq;
      std::int32_t *first = at, *last = first + tq, *centre = last + tq;
      for (std::int64_t i = 0; i < tq; ++i) {
        const Piece::Keys seen = part.piece.seen(i);
        first[i] = static_cast<std::int32_t>(seen.first), last[i] = static_cast<std::int32_t>(seen.last);
        centre[i] = static_cast<std::int32_t>(part.piece.centre(i));
      }
      part.problem.first = first, part.problem.last = last, part.problem.centre = centre;
      at += 3 * tq;
    }
  }
};

// Runs several problems side by side, each by its plan: the tasks of a phase are those of one problem after the other,
// on all threads. run(problem, phase, task, shared, scratch), the problem by its place.
template <class Plan, class Run>
void run_plans(const std::vector<Plan>& plans, double operations, Run&& run) {
  constexpr std::size_t line = 64;
  std::vector<std::size_t> shared_at;
  std::size_t shared_bytes = 0, scratch = 0;
  int phases = 0;
  for (const Plan& plan : plans) {
    shared_at.push_back(shared_bytes);
    shared_bytes += (plan.shared + line - 1) / line * line;
    scratch = std::max(scratch, plan.scratch), phases = std::max(phases, plan.phases);
  }
  const CallMemory shared(shared_bytes);
  std::vector<std::int64_t> ends(plans.size());  // of the problems' tasks
  for (int phase = 0; phase < phases; ++phase) {
    std::int64_t tasks = 0;
    for (std::size_t i = 0; i < plans.size(); ++i)
      ends[i] = tasks += phase < plans[i].phases ? plans[i].tasks[phase] : 0;
    parallel_for(tasks, scratch, operations, [&](std::int64_t task, void* own) {
      const auto at = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
      const std::int64_t first = at == 0 ? 0 : ends[at - 1];
      run(at, phase, task - first, static_cast<std::byte*>(shared.get()) + shared_at[at], own);
    });
  }
}

void run_forward(const Call& call, AttentionResult& result) {
  std::vector<kernels::ForwardPlan> plans;
  std::vector<kernels::ForwardResult> results;
  const std::int64_t tq = result.lse.size(2);
  for (const Part& part : call.parts) {
    const Piece& piece = part.piece;
    float* lse = result.lse.data<float>() + piece.batch * part.problem.hq * tq + piece.query;
    plans.push_back(kernels::plan(part.problem, kernels::active()));
    results.push_back({rows_from(result.output, piece.batch, piece.query), lse, tq, element(result.output.dtype())});
  }
  run_plans(plans, call.operations, [&](std::size_t i, int phase, std::int64_t task, void* shared, void* scratch) {
    plans[i].kernel->run(call.parts[i].problem, plans[i], results[i], phase, task, shared, scratch);
  });
}

// Of float32, in any dense layout. All bits of the exponent are set in infinities and NaN; as signed integers, whose
// largest the compiler finds a vector at a time.
bool all_finite(const Tensor& x) {
  constexpr std::int32_t exponent = 0x7f800000;
  const auto* p = static_cast<const std::uint32_t*>(x.raw());
  std::atomic<bool> finite{true};
  for_runs(x.numel(), 1, [&](std::int64_t first, std::int64_t count) {
    std::int32_t most = 0;
    for (std::int64_t i = first; i < first + count; ++i) {
      most = std::max(most, static_cast<std::int32_t>(p[i] & exponent));
    }
    if (most == exponent) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

// A sink's weight has no value: d_sink = -Σ_i w_i,sink · (d_output_i · output_i).
Tensor sinks_gradient(const Problem& p, const AttentionOptions& options, const Tensor& d_output, const Tensor& output,
                      const Tensor& lse) {
  Tensor grad = Tensor::empty({p.hq}, options.sinks.dtype());
  const Tensor d_rows = d_output.to(DType::f32).contiguous(), rows = output.to(DType::f32).contiguous();
  for (std::int64_t h = 0; h < p.hq; ++h) {
    double sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t i = 0; i < p.tq; ++i) {
        const std::int64_t row = (b * p.hq + h) * p.tq + i;
        double dot = 0;
        for (std::int64_t c = row * p.dv; c < (row + 1) * p.dv; ++c) {
          dot += static_cast<double>(d_rows.data<float>()[c]) * static_cast<double>(rows.data<float>()[c]);
        }
        const double log_weight = options.sinks.at({h}) - static_cast<double>(lse.data<float>()[row]);
        if (dot != 0) sum -= std::exp(log_weight) * dot;
      }
    }
    grad.set({h}, sum);
  }
  return grad;
}

// composed(piece, b, h, i) computes a row by the reference.
template <class Row>
AttentionResult forward(const Call& call, const Problem& p, const AttentionOptions& options, Tensor output,
                        Row&& composed) {
  AttentionResult result{std::move(output), Tensor::empty({p.batch, p.hq, p.tq}), {}};
  run_forward(call, result);
  for (const Piece& piece : call.pieces) mend_overflow(p, options.mask, piece, result, composed);
  if (options.return_weights) result.weights = weights_of_rows(p, options, call.pieces, composed);
  return result;
}

struct Backward {
  kernels::BackwardInput in;
  kernels::BackwardResult result;
};

void run_backward(std::span<const Part> parts, double operations, const std::function<Backward(const Part&)>& of) {
  std::vector<kernels::BackwardPlan> plans;
  std::vector<Backward> all;
  for (const Part& part : parts) {
    all.push_back(of(part));
    plans.push_back(kernels::plan(part.problem, all.back().result, kernels::active()));
  }
  run_plans(plans, 2.5 * operations, [&](std::size_t i, int phase, std::int64_t task, void* shared, void* scratch) {
    plans[i].kernel->run(parts[i].problem, plans[i], all[i].in, all[i].result, phase, task, shared, scratch);
  });
}

// Keys behind an item's length have no part, and no gradient.
void clear_padding(const Piece& piece, const AttentionGradient& grad) {
  for (const Tensor* t : {&grad.k, &grad.v}) {
    if (piece.batches == 0 || piece.key != 0) continue;
    t->slice(0, piece.batch, piece.batch + piece.batches).slice(2, piece.tk, t->size(2)).fill(0);
  }
}

}  // namespace

AttentionResult fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Problem& p,
                                const AttentionOptions& options) {
  const Call call(q, k, v, p, options);
  const auto composed = [&](const Piece& piece, std::int64_t b, std::int64_t h, std::int64_t i) {
    return composed_row(q, k, v, p, options, piece, b, h, i);
  };
  return forward(call, p, options, empty_like(q, p.output_shape()), composed);
}

bool can_decode(const Tensor& q, const Problem& p, const AttentionOptions& options) {
  if (!can_fuse(q, options)) return false;
  const Call call(q, p, options);
  const kernels::PlanListener unheard;  // nobody is told of plans that are not carried out
  return std::all_of(call.parts.begin(), call.parts.end(),
                     [](const Part& part) { return kernels::plan(part.problem, kernels::active()).decodes(); });
}

AttentionResult fused_decode(const Tensor& q, const kernels::Pages& pages, const Problem& p,
                             const AttentionOptions& options,
                             const std::function<std::pair<Tensor, Tensor>()>& gather) {
  const Call call(q, pages, p, options);
  Tensor k, v;
  const auto composed = [&](const Piece& piece, std::int64_t b, std::int64_t h, std::int64_t i) {
    if (!k.defined()) std::tie(k, v) = gather();
    return composed_row(q, k, v, p, options, piece, b, h, i);
  };
  return forward(call, p, options, Tensor::empty(p.output_shape(), q.dtype()), composed);
}

AttentionGradient fused_attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Problem& p, const AttentionOptions& options,
                                           const AttentionResult& forward) {
  const Call call(q, k, v, p, options);
  const Tensor d_out = readable(d_output.to(q.dtype())), out = readable(forward.output), lse = forward.lse.contiguous();
  AttentionGradient grad{empty_like(q, q.shape()), empty_like(k, k.shape()), empty_like(v, v.shape()), {}, {}};
  if (options.mask.key_lengths.defined()) {
    for (const Piece& piece : call.pieces) clear_padding(piece, grad);
  }
  kernels::Grid<float> d_bias;
  if (call.bias.defined()) {
    grad.bias = Tensor::zeros(call.bias.shape());
    d_bias = grid<float>(grad.bias, p.scores_shape());
  }
  bool finite = true;
  const auto of = [&](const Part& part) {
    const Piece& at = part.piece;
    const auto queries = [&](const Tensor& t) { return rows_from(t, at.batch, at.query); };
    const auto keys = [&](const Tensor& t) { return rows_from(t, at.batch, at.key); };
    const float* own_lse = lse.data<float>() + at.batch * p.hq * p.tq + at.query;
    const kernels::Grid<float> own_bias = from(d_bias, at.batch, at.query, at.key);
    return Backward{{queries(out), queries(d_out), own_lse, p.tq},
                    {queries(grad.q), keys(grad.k), keys(grad.v), const_cast<float*>(own_bias.data), own_bias.batch,
                     own_bias.head, own_bias.query, own_bias.key, &finite}};
  };
  if (call.bias.defined()) {  // to whose gradient several parts may add
    for (const Part& part : call.parts) run_backward({&part, 1}, call.operations, of);
  } else {
    run_backward(call.parts, call.operations, of);
  }
  if (!finite || (grad.bias.defined() && !all_finite(grad.bias))) {
    return composed_attention_backward(d_output, q, k, v, p, options);
  }
  if (grad.bias.defined()) grad.bias = grad.bias.to(options.mask.bias.dtype());
  if (options.sinks.defined()) grad.sinks = sinks_gradient(p, options, d_out, out, lse);
  return grad;
}

}  // namespace attn
