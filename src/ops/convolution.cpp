// The short causal convolution: 64 channels at a time, whose window of rows lies in L1.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "attn/recurrent_parts.hpp"
#include "core/processors.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

using Kind = Error::Kind;

constexpr std::int64_t kMostTaps = 8, kChannels = 64;  // of a task
constexpr std::array<float, kChannels> kOnes = [] {
  std::array<float, kChannels> ones{};
  ones.fill(1);
  return ones;
}();

struct Sequence {
  std::int64_t row, tokens, state;  // its first row of x (b · t, c)
};

void require(bool fits, Kind kind, const char* op, const std::string& expected, const std::string& found) {
  if (!fits) throw Error(kind, op, expected, found);
}

void require_floating(const char* op, const char* what, const Tensor& t) {
  require(t.defined(), Kind::argument, op, what, "a tensor that holds nothing");
  require(is_floating(t.dtype()), Kind::dtype, op, std::string(what) + " of a floating dtype",
          std::string(name(t.dtype())));
}

void require_shape(const char* op, const char* what, const Tensor& t, const Shape& shape) {
  require_floating(op, what, t);
  require(t.shape() == shape, Kind::shape, op, std::string(what) + " of shape " + shape.str(), t.shape().str());
}

std::vector<std::int64_t> integers(const char* op, const char* what, const Tensor& t, std::int64_t most) {
  require(t.dtype() == DType::i64, Kind::dtype, op, std::string(what) + " of dtype int64",
          std::string(name(t.dtype())));
  require(t.rank() == 1, Kind::shape, op, std::string(what) + " of one dimension", t.shape().str());
  const Tensor flat = t.contiguous();
  std::vector<std::int64_t> all(flat.data<std::int64_t>(), flat.data<std::int64_t>() + flat.numel());
  for (const std::int64_t each : all)
    require(each >= 0 && each <= most, Kind::argument, op, std::string(what) + " from 0 to t = " + std::to_string(most),
            std::to_string(each));
  return all;
}

std::vector<Sequence> sequences_of(const char* op, const Tensor& x, const ConvolutionOptions& o) {
  const std::int64_t batch = x.size(0), t = x.size(1);
  std::vector<Sequence> all;
  if (o.starts.defined()) {
    require(batch == 1 && !o.lengths.defined(), Kind::argument, op, "packed sequences in a batch of 1, without lengths",
            o.lengths.defined() ? "both" : "batch " + std::to_string(batch));
    const auto starts = integers(op, "starts", o.starts, t);
    require(
        !starts.empty() && starts.front() == 0 && starts.back() == t && std::is_sorted(starts.begin(), starts.end()),
        Kind::argument, op, "starts that begin at 0, never fall and end at t = " + std::to_string(t),
        std::to_string(starts.size()) + " values that do not");
    for (std::size_t n = 0; n + 1 < starts.size(); ++n)
      all.push_back({starts[n], starts[n + 1] - starts[n], static_cast<std::int64_t>(n)});
    return all;
  }
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(batch), t);
  if (o.lengths.defined()) {
    require(o.lengths.shape() == Shape{batch}, Kind::shape, op, "lengths (b) = " + Shape{batch}.str(),
            o.lengths.shape().str());
    lengths = integers(op, "lengths", o.lengths, t);
  }
  for (std::int64_t b = 0; b < batch; ++b) all.push_back({b * t, lengths[static_cast<std::size_t>(b)], b});
  return all;
}

// A call, checked, in the dtype of its sums.
struct Call {
  Call(const char* op, const Tensor& x_in, const Tensor& weight_in, const ConvolutionOptions& o) : silu(o.silu) {
    require_floating(op, "x", x_in), require_floating(op, "weight", weight_in);
    require(x_in.rank() == 3 && weight_in.rank() == 2 && weight_in.size(0) == x_in.size(2), Kind::shape, op,
            "x (b, t, c) and weight (c, k)", x_in.shape().str() + " and " + weight_in.shape().str());
    channels = x_in.size(2), taps = weight_in.size(1);
    require(taps >= 1 && taps <= kMostTaps, Kind::shape, op, "a kernel of 1 to 8 numbers", std::to_string(taps));
    all = sequences_of(op, x_in, o);
    dtype = x_in.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const auto take = [&](const Tensor& t) { return t.defined() ? t.to(dtype).contiguous() : t; };
    if (o.bias.defined()) require_shape(op, "bias", o.bias, {channels});
    if (o.initial_state.defined()) require_shape(op, "initial_state", o.initial_state, state_shape());
    x = take(x_in), weight = take(weight_in), bias = take(o.bias), initial = take(o.initial_state);
  }

  Shape state_shape() const { return {static_cast<std::int64_t>(all.size()), channels, taps - 1}; }

  // f(first channel, how many), on threads; all sequences of a channel are one thread's.
  template <class F>
  void each_block(const F& f) const {
    const double operations = 8 * static_cast<double>(x.numel()) * static_cast<double>(taps);
    parallel_for((channels + kChannels - 1) / kChannels, 0, operations, [&](std::int64_t task, void*) {
      f(task * kChannels, std::min(kChannels, channels - task * kChannels));
    });
  }

  Tensor x, weight, bias, initial;
  std::vector<Sequence> all;
  std::int64_t channels = 0, taps = 0;
  bool silu;
  DType dtype = DType::f32;
};

template <class T>
using Taps = T[kMostTaps][kChannels];

// to_i += Σ_j weight_ji from_ji
template <class T>
ATTN_FOR_EACH_PROCESSOR void add_taps(const Taps<T>& weight, const std::array<const T*, kMostTaps>& from,
                                      std::int64_t taps, std::int64_t n, T* to) {
  for (std::int64_t j = 0; j < taps; ++j) {
    const T* in = from[static_cast<std::size_t>(j)];
    for (std::int64_t i = 0; i < n; ++i) to[i] += weight[j][i] * in[i];
  }
}

// d_weight_ji += d_i in_ji, and d_in_ji += weight_ji d_i
template <class T>
ATTN_FOR_EACH_PROCESSOR void add_gradients(const T* d, const Taps<T>& weight, const std::array<const T*, kMostTaps>& in,
                                           std::int64_t taps, std::int64_t n, Taps<double>& d_weight, double* d_bias,
                                           const std::array<T*, kMostTaps>& d_in) {
  for (std::int64_t i = 0; i < n; ++i) d_bias[i] += static_cast<double>(d[i]);
  for (std::int64_t j = 0; j < taps; ++j) {
    const T* x = in[static_cast<std::size_t>(j)];
    T* dx = d_in[static_cast<std::size_t>(j)];
    for (std::int64_t i = 0; i < n; ++i) d_weight[j][i] += static_cast<double>(d[i]) * static_cast<double>(x[i]);
    for (std::int64_t i = 0; i < n; ++i) dx[i] += weight[j][i] * d[i];
  }
}

// Some channels of one sequence.
template <class T>
struct Block {
  Block(const Call& c, std::int64_t first_channel, std::int64_t some) : call(c), first(first_channel), count(some) {
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < call.taps; ++j) weight[j][i] = call.weight.data<T>()[(first + i) * call.taps + j];
    }
  }

  void begin(const Sequence& s) {
    sequence = s;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j + 1 < call.taps; ++j)
        before[j][i] = call.initial.defined() ? call.initial.data<T>()[state_at(i) + j] : T(0);
    }
  }

  std::int64_t state_at(std::int64_t i) const { return (sequence.state * call.channels + first + i) * (call.taps - 1); }

  // Row t of a tensor (b · t, c).
  T* row(const Tensor& of, std::int64_t t) const { return of.data<T>() + (sequence.row + t) * call.channels + first; }

  // Returns token t of x, or of the state where t is before the first one.
  const T* input(std::int64_t t) const { return t < 0 ? before[call.taps - 1 + t] : row(call.x, t); }

  // The sum of token t, before silu.
  void sum(std::int64_t t, T* to) const {
    for (std::int64_t i = 0; i < count; ++i) to[i] = call.bias.defined() ? call.bias.data<T>()[first + i] : T(0);
    add_taps<T>(weight, inputs(t), call.taps, count, to);
  }

  // A block's part of a row is short and the next one far away, so that no processor fetches it by itself.
  void fetch(const Tensor& of, std::int64_t t) const {
    constexpr std::int64_t ahead = 8, line = 64 / sizeof(T);
    if (t + ahead >= sequence.tokens) return;
    const T* next = row(of, t + ahead);
    for (std::int64_t i = 0; i < count; i += line) __builtin_prefetch(next + i);
  }

  // Returns the input of each tap of token t.
  std::array<const T*, kMostTaps> inputs(std::int64_t t) const {
    std::array<const T*, kMostTaps> all{};
    for (std::int64_t j = 0; j < call.taps; ++j) all[static_cast<std::size_t>(j)] = input(t - call.taps + 1 + j);
    return all;
  }

  const Call& call;
  std::int64_t first, count;
  Sequence sequence{};
  Taps<T> weight, before;
};

void silu(double* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] /= 1 + std::exp(-x[i]);
}

void silu(float* x, std::int64_t n) {
  kernels::active().model->gated(
      {kernels::Activation::silu, kernels::Element::f32, n, x, kOnes.data(), nullptr, x, nullptr});
}

// `d` becomes the gradient of x.
void silu_backward(const double* x, double* d, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double open = 1 / (1 + std::exp(-x[i]));
    d[i] *= open * (1 + x[i] * (1 - open));
  }
}

void silu_backward(const float* x, float* d, std::int64_t n) {
  float of_ones[kChannels];
  kernels::active().model->gated_backward(
      {kernels::Activation::silu, kernels::Element::f32, n, x, kOnes.data(), d, d, of_ones});
}

template <class T>
void forward(const Call& call, const Tensor& output, const Tensor& state) {
  call.each_block([&](std::int64_t first, std::int64_t count) {
    Block<T> block(call, first, count);
    for (const Sequence& each : call.all) {
      block.begin(each);
      for (std::int64_t t = 0; t < each.tokens; ++t) {
        T* to = block.row(output, t);
        block.fetch(call.x, t), block.fetch(output, t);
        block.sum(t, to);
        if (call.silu) silu(to, count);
      }
      for (std::int64_t j = 0; j + 1 < call.taps; ++j) {
        const T* last = block.input(each.tokens - call.taps + 1 + j);
        for (std::int64_t i = 0; i < count; ++i) state.data<T>()[block.state_at(i) + j] = last[i];
      }
    }
  });
}

struct Sums {
  Tensor x, weight, bias, state;  // of the state: whether it was given or not
};

template <class T>
void backward(const Call& call, const Tensor& d_output, const Tensor& d_state, const Sums& to) {
  call.each_block([&](std::int64_t first, std::int64_t count) {
    Block<T> block(call, first, count);
    Taps<double> d_weight = {};
    double d_bias[kChannels] = {};
    for (const Sequence& each : call.all) {
      block.begin(each);
      T before[kMostTaps][kChannels] = {}, sum[kChannels], d[kChannels];
      const auto d_input = [&](std::int64_t t) { return t < 0 ? before[call.taps - 1 + t] : block.row(to.x, t); };
      for (std::int64_t t = 0; t < each.tokens; ++t) {
        block.fetch(call.x, t), block.fetch(d_output, t), block.fetch(to.x, t);
        std::copy_n(block.row(d_output, t), count, d);
        if (call.silu) block.sum(t, sum), silu_backward(sum, d, count);
        std::array<T*, kMostTaps> d_inputs{};
        for (std::int64_t j = 0; j < call.taps; ++j)
          d_inputs[static_cast<std::size_t>(j)] = d_input(t - call.taps + 1 + j);
        add_gradients<T>(d, block.weight, block.inputs(t), call.taps, count, d_weight, d_bias, d_inputs);
      }
      for (std::int64_t j = 0; j + 1 < call.taps; ++j) {
        T* d_last = d_input(each.tokens - call.taps + 1 + j);
        for (std::int64_t i = 0; d_state.defined() && i < count; ++i)
          d_last[i] += d_state.data<T>()[block.state_at(i) + j];
      }
      for (std::int64_t j = 0; j + 1 < call.taps; ++j) {
        for (std::int64_t i = 0; i < count; ++i) to.state.data<T>()[block.state_at(i) + j] = before[j][i];
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < call.taps; ++j)
        to.weight.data<T>()[(first + i) * call.taps + j] = static_cast<T>(d_weight[j][i]);
      to.bias.data<T>()[first + i] = static_cast<T>(d_bias[i]);
    }
  });
}

}  // namespace

ConvolutionResult causal_convolution(const Tensor& x, const Tensor& weight, const ConvolutionOptions& options) {
  const Call call("causal_convolution", x, weight, options);
  const Tensor output =
      options.lengths.defined() ? Tensor::zeros(x.shape(), call.dtype) : Tensor::empty(x.shape(), call.dtype);
  const Tensor state = Tensor::empty(call.state_shape(), call.dtype);
  call.dtype == DType::f64 ? forward<double>(call, output, state) : forward<float>(call, output, state);
  return {output.to(x.dtype()), state.to(x.dtype())};
}

ConvolutionGradient causal_convolution_backward(const Tensor& d_output, const Tensor& d_state, const Tensor& x,
                                                const Tensor& weight, const ConvolutionOptions& options) {
  constexpr const char* op = "causal_convolution_backward";
  const Call call(op, x, weight, options);
  require_shape(op, "d_output", d_output, x.shape());
  if (d_state.defined()) require_shape(op, "d_state", d_state, call.state_shape());
  const Tensor dy = d_output.to(call.dtype).contiguous();
  const Tensor ds = d_state.defined() ? d_state.to(call.dtype).contiguous() : d_state;
  const Sums sums{Tensor::zeros(x.shape(), call.dtype), Tensor::empty(weight.shape(), call.dtype),
                  Tensor::empty({call.channels}, call.dtype), Tensor::empty(call.state_shape(), call.dtype)};
  call.dtype == DType::f64 ? backward<double>(call, dy, ds, sums) : backward<float>(call, dy, ds, sums);
  return {sums.x.to(x.dtype()), sums.weight, options.bias.defined() ? sums.bias : Tensor{},
          options.initial_state.defined() ? sums.state : Tensor{}};
}

}  // namespace attn
