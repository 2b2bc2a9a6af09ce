// The logit lens, and direct logit attribution: the residual stream read by the last norm and the head.
#include <algorithm>
#include <cmath>

#include "attn/error.hpp"
#include "experiment/measures.hpp"
#include "lm/editor.hpp"
#include "lm/names.hpp"

namespace attn {
namespace {

using editing::Editor;
using editing::step_name;
using experiment::kOp;
using Of = Edit::Of;
using Vector = std::vector<double>;

Vector row_of(const Tensor& x, std::int64_t position) {  // x (1, t, n), or (1, 1, t, n) of one head
  Vector row;
  const Tensor rows = x.rank() == 4 ? x.select(0, 0) : x;
  for (std::int64_t j = 0; j < x.size(-1); ++j) row.push_back(rows.at({0, position, j}));
  return row;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The parameter of a layer, or of the last norm, whose name ends so; undefined where there is none.
Tensor weight_of(Module& module, std::string_view end) {
  for (const Parameter* p : module.parameters()) {
    if (!p->name.ends_with(end)) continue;
    if (p->blocks || p->scales.defined()) {
      throw Error(Error::Kind::dtype, kOp, "weights in float32 or bfloat16", p->name + " in fewer bits");
    }
    return p->value;
  }
  return {};
}

// u, a direction that a norm's output is read by → the direction that its input x is read by, the norm's scale being
// that of x.
Vector through_norm(Vector u, const Vector& x, const Tensor& weight, NormForm form, double epsilon) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0, sum = 0;
  if (form == NormForm::layer) {
    for (const double v : x) mean += v / n;
  }
  for (const double v : x) squares += (v - mean) * (v - mean) / n;
  const double scale = 1 / std::sqrt(squares + epsilon), added = form == NormForm::rms_plus_one ? 1 : 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    u[i] *= (weight.at({static_cast<std::int64_t>(i)}) + added) * scale;
    sum += u[i];
  }
  if (form == NormForm::layer) {
    for (double& v : u) v -= sum / n;
  }
  return u;
}

double with_bias(const Tensor& bias, const Vector& u) {
  double sum = 0;
  for (std::size_t i = 0; bias.defined() && i < u.size(); ++i) sum += bias.at({static_cast<std::int64_t>(i)}) * u[i];
  return sum;
}

// Sets what each head of a layer adds, read by u: u · W_O[:, head] · z_head. z has the numbers of head after head.
void add_heads(Tensor to, std::int64_t heads, const Vector& z, const Tensor& out, const Vector& u) {
  const std::int64_t d = std::ssize(z) / heads;
  for (std::int64_t h = 0; h < heads; ++h) {
    double sum = 0;
    for (std::int64_t j = h * d; j < (h + 1) * d; ++j) {
      double column = 0;
      for (std::size_t i = 0; i < u.size(); ++i) column += u[i] * out.at({static_cast<std::int64_t>(i), j});
      sum += column * z[static_cast<std::size_t>(j)];
    }
    to.set({h}, sum);
  }
}

// The step that the output projection reads: the heads joined, which of one head is the last step of its own.
const char* joined_step(const LanguageModelConfig& c, std::int64_t l) {
  if (c.heads_of(l) > 1) return "merged";
  if (c.layers[static_cast<std::size_t>(l)].mixer == Mixer::gated_delta) return "normed";
  return c.output_gate ? "gated" : "context";
}

std::set<std::string> attribution_steps(const LanguageModelConfig& c) {
  std::set<std::string> names{step_name(c, Of::block, 0, "inputs")};
  for (std::int64_t l = 0; l < std::ssize(c.layers); ++l) {
    names.insert({step_name(c, Of::attention, l, joined_step(c, l)), step_name(c, Of::attention, l, "output"),
                  step_name(c, Of::feed_forward, l, "added"), step_name(c, Of::block, l, "output")});
  }
  return names;
}

// W[a] or W[a] - W[b], times the logits' factor.
Vector direction(LanguageModel& model, std::int64_t a, std::optional<std::int64_t> b) {
  const Tensor head = weight_of(model, model.head().name);
  Vector u;
  for (std::int64_t j = 0; j < head.size(1); ++j) {
    u.push_back((head.at({a, j}) - (b ? head.at({*b, j}) : 0)) * model.config().logits_scale);
  }
  return u;
}

void check(const LanguageModelConfig& c, std::int64_t a, std::int64_t b, std::int64_t position, std::int64_t t) {
  experiment::check({a, b}, c);
  if (position < 0 || position >= t) {
    throw Error(Error::Kind::argument, kOp, "a position from 0 to " + std::to_string(t - 1), std::to_string(position));
  }
  if (c.sum_norm) throw Error(Error::Kind::argument, kOp, "a model whose layers add to a stream", "norms of the sums");
}

}  // namespace

Attribution attribution(LanguageModel& model, const Tensor& ids, std::int64_t a, std::optional<std::int64_t> b,
                        std::optional<std::int64_t> position, const Edits& edits) {
  const LanguageModelConfig& c = model.config();
  const std::int64_t at = position.value_or(ids.numel() - 1);
  check(c, a, b.value_or(a), at, ids.numel());
  const auto layers = std::ssize(c.layers);
  Editor editor(edits, c);
  editor.keep(attribution_steps(c));
  const Tensor logits = model.forward(experiment::one_text(ids), editor.trace()).select(0, 0);
  editor.check();
  const auto row = [&](Of of, std::int64_t l, const char* step) {
    return row_of(editor.kept(step_name(c, of, l, step)), at);
  };
  Attribution found;
  found.heads = experiment::table_of_heads(c);
  found.biases = Tensor::empty({layers}, DType::f64), found.feed_forwards = Tensor::empty({layers}, DType::f64);
  const Vector u = direction(model, a, b);
  found.bias = with_bias(weight_of(model.norm, ".bias"), u);
  const Vector into =
      through_norm(u, row(Of::block, layers - 1, "output"), weight_of(model.norm, ".weight"), c.norm, c.epsilon);
  found.embedding = dot(into, row(Of::block, 0, "inputs"));
  found.sum = found.embedding + found.bias;
  for (std::int64_t l = 0; l < layers; ++l) {
    Block& block = *model.blocks[static_cast<std::size_t>(l)];
    const ModelNames& model_names = names_of(c.family);
    const std::string out(block.recurrent ? model_names.of_recurrent.out : model_names.of_attention.out);
    Vector g = into;
    double bias = 0;
    if (c.post_norm && !c.layers[static_cast<std::size_t>(l)].pre_norm_alone) {
      const auto post = [&](const char* end) {
        return weight_of(block, std::string("post_attention_layernorm") + end);
      };
      bias = c.residual_scale * with_bias(post(".bias"), g);
      g = through_norm(g, row(Of::attention, l, "output"), post(".weight"), c.norm, c.epsilon);
    }
    for (double& v : g) v *= c.residual_scale;
    add_heads(found.heads.select(0, l), c.heads_of(l), row(Of::attention, l, joined_step(c, l)),
              weight_of(block, out + ".weight").to(DType::f32), g);
    found.biases.set({l}, bias + with_bias(weight_of(block, out + ".bias"), g));
    found.feed_forwards.set({l}, dot(into, row(Of::feed_forward, l, "added")));
    found.sum += found.biases.at({l}) + found.feed_forwards.at({l});
    for (std::int64_t h = 0; h < c.heads_of(l); ++h) found.sum += found.heads.at({l, h});
  }
  const auto before_cap = [&](std::int64_t id) {
    const double logit = logits.at({at, id}), cap = c.logits_softcap;
    return cap > 0 ? cap * std::atanh(logit / cap) : logit;
  };
  found.logit = before_cap(a) - (b ? before_cap(*b) : 0);
  return found;
}

Lens logit_lens(LanguageModel& model, const Tensor& ids, const Edits& edits) {
  const LanguageModelConfig& c = model.config();
  const auto layers = std::ssize(c.layers);
  const std::int64_t t = ids.numel();
  Editor editor(edits, c);
  std::vector<std::string> names;
  for (std::int64_t l = 0; l < layers; ++l) names.push_back(step_name(c, Of::block, l, "inputs"));
  names.push_back(step_name(c, Of::block, layers - 1, "output"));
  editor.keep({names.begin(), names.end()});
  model.forward(experiment::one_text(ids), editor.trace());
  editor.check();
  Lens lens{Tensor::empty({layers + 1, t}, DType::i64), Tensor::empty({layers + 1, t}, DType::f64), {}};
  if (t > 1) lens.losses = Tensor::empty({layers + 1, t - 1}, DType::f64);
  for (std::int64_t l = 0; l <= layers; ++l) {
    const Tensor hidden = model.norm.forward(editor.kept(names[static_cast<std::size_t>(l)]), DType::f32);
    const Tensor logits = model.logits_of_hidden(hidden).select(0, 0).contiguous();
    for (std::int64_t i = 0; i < t; ++i) {
      const float* row = logits.data<float>() + i * c.vocab_size;
      const std::int64_t likeliest = std::max_element(row, row + c.vocab_size) - row;
      lens.tokens.data<std::int64_t>()[l * t + i] = likeliest;
      lens.probability.set({l, i}, std::exp(log_probabilities(logits.select(0, i)).at({likeliest})));
    }
    if (t > 1) lens.losses.select(0, l).copy_from(token_losses(logits, ids));
  }
  return lens;
}

}  // namespace attn
