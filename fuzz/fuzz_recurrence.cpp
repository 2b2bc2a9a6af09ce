// Bytes become a call of linear_attention() on one of the machine's units; loops in double that share no code with the
// library say what is right, and gradients are compared with differences of these loops along a random direction.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "attn/linear_attention.hpp"
#include "bytes.hpp"
#include "kernels/targets.hpp"

namespace attn::fuzz {
namespace {

struct Call {
  std::vector<Tensor> inputs;  // q, k, v, decay, beta, initial_state; undefined where they are not given
  LinearAttentionOptions options;
  std::int64_t b, hq, hk, hv, t, d_k, d_v, states;
  DType dtype;
};

using Numbers = std::vector<double>;

Numbers numbers(const Tensor& t) {
  if (!t.defined()) return {};
  const Tensor wide = t.to(DType::f64).contiguous();
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

Tensor draw(std::mt19937& rng, const Shape& shape, double low, double high) {
  std::uniform_real_distribution<double> number(low, high);
  Numbers all(static_cast<std::size_t>(shape.numel()));
  for (double& x : all) x = number(rng);
  return Tensor::from(std::span<const double>(all), shape);
}

Tensor integers(const std::vector<std::int64_t>& all) {
  return Tensor::from(std::span<const std::int64_t>(all), {static_cast<std::int64_t>(all.size())});
}

Call call_of(Bytes& bytes) {
  Call c{};
  c.dtype = bytes.one_of({DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64});
  c.b = bytes.number(1, 3), c.hv = bytes.one_of<std::int64_t>({1, 2, 4}), c.hk = bytes.yes() ? c.hv : 1;
  c.hq = bytes.one_of<std::int64_t>({c.hv, 1, 2 * c.hv});
  c.d_k = bytes.number(1, 70), c.d_v = bytes.number(1, 70);
  c.t = bytes.number(0, std::max<std::int64_t>(4, 40000 / (c.d_k * c.d_v * c.hv)) % 200);
  LinearAttentionOptions& o = c.options;
  o.rule = bytes.yes() ? StateRule::delta : StateRule::plain;
  o.heads = bytes.yes() ? HeadMap::tiled : HeadMap::grouped;
  if (bytes.yes()) o.scale = 0.5;
  const double least = bytes.one_of({-0.1, -1e-6, -3.0, -40.0});
  const std::uint8_t given = bytes.byte();
  std::mt19937 rng(static_cast<std::uint32_t>(bytes.word()));
  c.states = c.b;
  const auto place = [&] { return std::uniform_int_distribution<std::int64_t>(0, c.t)(rng); };
  if (c.b == 1 && (given & 1)) {
    std::vector<std::int64_t> starts{0, place(), place(), c.t};
    std::sort(starts.begin(), starts.end());
    o.starts = integers(starts), c.states = 3;
  } else if (given & 1) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < c.b; ++i) lengths.push_back(place());
    o.lengths = integers(lengths);
  }
  const double unit = 1.7 / std::sqrt(static_cast<double>(c.d_k));  // keys about as long as 1, and a few longer
  c.inputs = {draw(rng, {c.b, c.hq, c.t, c.d_k}, -1, 1),
              draw(rng, {c.b, c.hk, c.t, c.d_k}, -unit, unit),
              draw(rng, {c.b, c.hv, c.t, c.d_v}, -1, 1),
              {},
              {},
              {}};
  if (given & 2) c.inputs[3] = draw(rng, {c.b, c.hv, c.t}, least, 0);
  if (given & 4) c.inputs[3] = draw(rng, {c.b, c.hv, c.t, c.d_k}, least, 0);
  if ((given & 8) && o.rule == StateRule::delta) c.inputs[4] = draw(rng, {c.b, c.hv, c.t}, 0, 0.9);
  if (given & 16) c.inputs[5] = draw(rng, {c.states, c.hv, c.d_k, c.d_v}, -1, 1);
  for (std::size_t i = 0; i < 3; ++i) c.inputs[i] = c.inputs[i].to(c.dtype).to(DType::f64);
  return c;
}

struct Result {
  Numbers output, state;
};

Result defined(const Call& c, const std::vector<Numbers>& in) {
  const LinearAttentionOptions& o = c.options;
  const std::int64_t outputs = std::max(c.hq, c.hv);
  Result r{Numbers(static_cast<std::size_t>(c.b * outputs * c.t * c.d_v)),
           Numbers(static_cast<std::size_t>(c.states * c.hv * c.d_k * c.d_v))};
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(c.d_k)));
  const auto of = [&](std::int64_t i, std::int64_t many, std::int64_t few) {
    return o.heads == HeadMap::grouped ? i / (many / few) : i % few;
  };
  const auto at = [](const Numbers& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; };
  for (std::int64_t n = 0; n < c.states; ++n) {
    const bool packed = o.starts.defined();
    const std::int64_t item = packed ? 0 : n;
    const auto number = [](const Tensor& t, std::int64_t i) { return t.data<std::int64_t>()[i]; };
    const std::int64_t first = packed ? number(o.starts, n) : 0;
    const std::int64_t end = packed ? number(o.starts, n + 1) : o.lengths.defined() ? number(o.lengths, n) : c.t;
    for (std::int64_t h = 0; h < c.hv; ++h) {
      const auto size = static_cast<std::size_t>(c.d_k * c.d_v);
      Numbers s(size);
      if (!in[5].empty()) std::copy_n(in[5].begin() + (n * c.hv + h) * c.d_k * c.d_v, size, s.begin());
      for (std::int64_t t = first; t < end; ++t) {
        const std::int64_t row = (item * c.hv + h) * c.t + t,
                           key = ((item * c.hk + of(h, c.hv, c.hk)) * c.t + t) * c.d_k;
        const bool by_channel = c.inputs[3].defined() && c.inputs[3].rank() == 4;
        for (std::int64_t x = 0; x < c.d_v; ++x) {
          double recalled = 0;
          for (std::int64_t d = 0; d < c.d_k; ++d) {
            double& cell = s[static_cast<std::size_t>(d * c.d_v + x)];
            if (!in[3].empty()) cell *= std::exp(at(in[3], by_channel ? row * c.d_k + d : row));
            recalled += cell * at(in[1], key + d);
          }
          double written = at(in[2], row * c.d_v + x);
          if (o.rule == StateRule::delta) written = (in[4].empty() ? 1 : at(in[4], row)) * (written - recalled);
          for (std::int64_t d = 0; d < c.d_k; ++d)
            s[static_cast<std::size_t>(d * c.d_v + x)] += at(in[1], key + d) * written;
        }
        for (std::int64_t out = 0; out < outputs; ++out) {
          if (of(out, outputs, c.hv) != h) continue;
          const std::int64_t query = ((item * c.hq + of(out, outputs, c.hq)) * c.t + t) * c.d_k;
          for (std::int64_t x = 0; x < c.d_v; ++x) {
            double sum = 0;
            for (std::int64_t d = 0; d < c.d_k; ++d)
              sum += s[static_cast<std::size_t>(d * c.d_v + x)] * at(in[0], query + d);
            r.output[static_cast<std::size_t>(((item * outputs + out) * c.t + t) * c.d_v + x)] = scale * sum;
          }
        }
      }
      std::copy_n(s.begin(), size, r.state.begin() + (n * c.hv + h) * c.d_k * c.d_v);
    }
  }
  return r;
}

[[noreturn]] void found(const Call& c, const char* unit, const std::string& what) {
  std::fprintf(stderr, "on %s: %s; b %d hq %d hk %d hv %d t %d d_k %d d_v %d, %s, rule %d\n", unit, what.c_str(),
               static_cast<int>(c.b), static_cast<int>(c.hq), static_cast<int>(c.hk), static_cast<int>(c.hv),
               static_cast<int>(c.t), static_cast<int>(c.d_k), static_cast<int>(c.d_v),
               std::string(name(c.dtype)).c_str(), static_cast<int>(c.options.rule));
  std::abort();
}

double tolerance(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : dtype == DType::f32 ? 1e-5 : 1e-11;
}

void compare(const Call& c, const char* unit, const Tensor& tensor, const Numbers& expected, const char* what) {
  const Numbers all = numbers(tensor);
  double largest = 1;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(all[i] - expected[i]) <= tolerance(tensor.dtype()) * largest) continue;
    found(c, unit,
          std::string(what) + " " + std::to_string(i) + " is " + std::to_string(all[i]) + ", not " +
              std::to_string(expected[i]));
  }
}

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void check(const Call& c, const char* unit, bool backward) {
  std::vector<Numbers> in;
  for (const Tensor& t : c.inputs) in.push_back(numbers(t));
  const Tensor q = c.inputs[0].to(c.dtype), k = c.inputs[1].to(c.dtype), v = c.inputs[2].to(c.dtype);
  LinearAttentionOptions o = c.options;
  o.decay = c.inputs[3], o.beta = c.inputs[4], o.initial_state = c.inputs[5];
  const LinearAttentionResult r = linear_attention(q, k, v, o);
  const Result expected = defined(c, in);
  compare(c, unit, r.output, expected.output, "output"), compare(c, unit, r.state, expected.state, "state");
  if (!backward) return;
  std::mt19937 rng(1);
  const Tensor d_output = draw(rng, r.output.shape(), -1, 1).to(c.dtype), d_state = draw(rng, r.state.shape(), -1, 1);
  const LinearAttentionGradient g = linear_attention_backward(d_output, d_state, q, k, v, o);
  const Numbers dy = numbers(d_output), ds = numbers(d_state);
  const Tensor* gradients[] = {&g.q, &g.k, &g.v, &g.decay, &g.beta, &g.initial_state};
  for (std::size_t i = 0; i < 6; ++i) {
    if (in[i].empty()) continue;
    const Numbers direction = numbers(draw(rng, c.inputs[i].shape(), -1, 1)), gradient = numbers(*gradients[i]);
    const auto loss = [&](double step) {
      std::vector<Numbers> moved = in;
      for (std::size_t j = 0; j < direction.size(); ++j) moved[i][j] += step * direction[j];
      const Result there = defined(c, moved);
      return dot(there.output, dy) + dot(there.state, ds);
    };
    const double slope = (loss(1e-5) - loss(-1e-5)) / 2e-5, sum = dot(gradient, direction);
    double size = 1;
    for (std::size_t j = 0; j < gradient.size(); ++j) size += std::abs(gradient[j] * direction[j]);
    if (std::abs(slope - sum) > (20 * tolerance(c.dtype) + 1e-6) * size)
      found(c, unit,
            "the gradient of input " + std::to_string(i) + " along a direction is " + std::to_string(sum) + ", not " +
                std::to_string(slope));
  }
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn;
  fuzz::Bytes bytes(data, size);
  std::vector<const kernels::Target*> units;
  for (const kernels::Target& t : kernels::targets()) {
    if (t.supported) units.push_back(&t);
  }
  const kernels::Target& unit = *units[static_cast<std::size_t>(bytes.byte()) % units.size()];
  kernels::use(unit.kernels);
  const bool backward = bytes.yes();
  check(fuzz::call_of(bytes), std::string(unit.isa).c_str(), backward);
  return 0;
}
