// The blocks again, in double and by plain loops: what the tests differentiate by finite differences.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "attn/language_model.hpp"
#include "core/testing.hpp"

namespace attn::test {

// x (rows, width) float64 → x / √(mean(x²) + ε) · (added + weight)
inline Tensor rms_norm_double(const Tensor& x, const Tensor& weight, double epsilon, double added) {
  const std::int64_t width = x.size(-1);
  Tensor y = x.clone();
  for (std::int64_t row = 0; row < x.numel() / width; ++row) {
    double* values = y.data<double>() + row * width;
    double sum = 0;
    for (std::int64_t j = 0; j < width; ++j) sum += values[j] * values[j];
    const double norm = std::sqrt(sum / static_cast<double>(width) + epsilon);
    for (std::int64_t j = 0; j < width; ++j) values[j] = values[j] / norm * (added + weight.data<double>()[j]);
  }
  return y;
}

inline double activation_double(double x, Activation kind) {
  switch (kind) {
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu:
      break;
  }
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}

// x (n, k) · weight (m, k)ᵀ + bias (m), if defined
inline Tensor linear_double(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t n = x.size(0), k = x.size(1), m = weight.size(0);
  Tensor y = Tensor::zeros({n, m}, DType::f64);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t o = 0; o < m; ++o) {
      double sum = bias.defined() ? bias.data<double>()[o] : 0;
      for (std::int64_t j = 0; j < k; ++j) sum += x.data<double>()[i * k + j] * weight.data<double>()[o * k + j];
      y.data<double>()[i * m + o] = sum;
    }
  }
  return y;
}

// Pairs i and i + n/2 of each head's vector turn by position · rate[i]; x (t, heads · d).
inline Tensor turned_double(const Tensor& x, std::int64_t d, const std::vector<float>& rates) {
  Tensor y = x.clone();
  const auto half = static_cast<std::int64_t>(rates.size());
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    for (std::int64_t h = 0; h < x.size(1); h += d) {
      double* v = y.data<double>() + t * x.size(1) + h;
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(t) * static_cast<double>(rates[static_cast<std::size_t>(i)]);
        const double a = v[i], b = v[i + half];
        v[i] = a * std::cos(angle) - b * std::sin(angle);
        v[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  return y;
}

// Causal attention of q (t, heads · d) to k, v (t, kv_heads · d).
inline Tensor attention_double(const Tensor& q, const Tensor& k, const Tensor& v, const ModuleConfig& c,
                               const Tensor& sinks) {
  const std::int64_t tokens = q.size(0), d = c.head_dim, group = c.num_heads / c.kv_heads;
  const double scale = c.scale.value_or(1 / std::sqrt(static_cast<double>(d)));
  Tensor out = Tensor::zeros(q.shape(), DType::f64);
  for (std::int64_t h = 0; h < c.num_heads; ++h) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t first = c.window > 0 ? std::max<std::int64_t>(0, i - c.window + 1) : 0;
      std::vector<double> scores;
      double sum = c.sinks ? std::exp(sinks.data<double>()[h]) : 0;
      for (std::int64_t j = first; j <= i; ++j) {
        double s = 0;
        for (std::int64_t e = 0; e < d; ++e) {
          s += q.data<double>()[i * c.num_heads * d + h * d + e] *
               k.data<double>()[j * c.kv_heads * d + h / group * d + e];
        }
        s *= scale;
        if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
        scores.push_back(std::exp(s));
        sum += scores.back();
      }
      for (std::int64_t j = first; j <= i; ++j) {
        for (std::int64_t e = 0; e < d; ++e) {
          out.data<double>()[i * c.num_heads * d + h * d + e] +=
              scores[static_cast<std::size_t>(j - first)] / sum *
              v.data<double>()[j * c.kv_heads * d + h / group * d + e];
        }
      }
    }
  }
  return out;
}

}  // namespace attn::test
