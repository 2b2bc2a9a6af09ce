#include "attention/relative_bias.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

using Kind = Error::Kind;

constexpr std::int64_t kMostDistance = std::int64_t{1} << 20;  // tables by distance stay small

// The buckets of one side, and how many of them hold one distance each.
struct Side {
  std::int64_t buckets, exact;
};

Side side_of(std::int64_t buckets, bool bidirectional, std::int64_t max_distance, const char* op) {
  const std::int64_t own = bidirectional ? buckets / 2 : buckets, exact = own / 2;
  if (own < 2) {
    throw Error(
        Kind::argument, op,
        bidirectional ? "at least 4 buckets of distances in both directions" : "at least 2 buckets of distances",
        std::to_string(buckets));
  }
  if (max_distance <= exact || max_distance > kMostDistance) {
    throw Error(Kind::argument, op, "max_distance past " + std::to_string(exact) + ", and at most 2^20",
                std::to_string(max_distance));
  }
  return {own, exact};
}

// In float32, as T5 was trained: where a logarithm is a whole number, its rounding decides.
std::int64_t bucket_of(std::int64_t distance, bool bidirectional, std::int64_t max_distance, const Side& side) {
  const std::int64_t first = bidirectional && distance > 0 ? side.buckets : 0;
  const std::int64_t far = bidirectional ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  if (far < side.exact) return first + far;
  const auto log32 = [](double x) { return static_cast<float>(std::log(x)); };
  const auto exact = static_cast<float>(side.exact);
  const float share = log32(static_cast<float>(far) / exact) /
                      log32(static_cast<double>(max_distance) / static_cast<double>(side.exact));
  const auto step = static_cast<std::int64_t>(share * static_cast<float>(side.buckets - side.exact));
  return first + std::min(side.exact + step, side.buckets - 1);
}

// The same of a bias that was checked.
std::int64_t bucket_of(const RelativeBias& bias, std::int64_t distance) {
  return relative_bucket(distance, bias.table.size(0), bias.bidirectional, bias.max_distance);
}

// f(b, i, j, bucket) for each of some distances (b, 1, tq, tk).
template <class F>
void for_each_bucket(const RelativeBias& bias, const Tensor& distances, F&& f) {
  const std::int64_t* distance = distances.data<std::int64_t>();
  for (std::int64_t b = 0; b < distances.size(0); ++b) {
    for (std::int64_t i = 0; i < distances.size(2); ++i) {
      for (std::int64_t j = 0; j < distances.size(3); ++j) f(b, i, j, bucket_of(bias, *distance++));
    }
  }
}

}  // namespace

std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, bool bidirectional,
                             std::int64_t max_distance) {
  const Side side = side_of(buckets, bidirectional, max_distance, "relative_bucket");
  return bucket_of(std::clamp(distance, -max_distance, max_distance), bidirectional, max_distance, side);
}

void check_relative_bias(const RelativeBias& bias, std::int64_t hq) {
  const auto fail = [](Kind kind, const std::string& expected, const std::string& found) {
    throw Error(kind, "attention", "relative_bias " + expected, found);
  };
  const RelativeBias none;
  if (!bias.table.defined()) {
    if (bias.bidirectional == none.bidirectional && bias.max_distance == none.max_distance) return;
    fail(Kind::argument, "with a table beside bidirectional and max_distance", "none");
  }
  if (!is_floating(bias.table.dtype())) fail(Kind::dtype, "of a floating dtype", std::string(name(bias.table.dtype())));
  if (!(bias.table.rank() == 2 && bias.table.size(1) == hq))
    fail(Kind::shape, "of shape (buckets, hq) with hq = " + std::to_string(hq), bias.table.shape().str());
  side_of(bias.table.size(0), bias.bidirectional, bias.max_distance, "attention");
}

DistanceTable::DistanceTable(const RelativeBias& bias, std::span<const Piece> pieces) {
  std::int64_t low = kMostDistance, high = -kMostDistance;
  for (const Piece& piece : pieces) {
    if (piece.tq == 0 || piece.tk == 0) continue;
    low = std::min(low, piece.centre(0) - (piece.tk - 1)), high = std::max(high, piece.centre(piece.tq - 1));
  }
  const std::int64_t least = bias.bidirectional ? -bias.max_distance : 0, most = bias.max_distance;
  low_ = std::clamp(low, least, most), high_ = std::clamp(std::max(high, low), low_, most);
  const std::int64_t hq = bias.table.size(1);
  const Tensor table = bias.table.to(DType::f64).contiguous();
  rows_ = Tensor::empty({hq, width()});
  constexpr double log2e = 0x1.71547652b82fep0;
  for (std::int64_t place = 0; place < width(); ++place) {
    const bool repeats = place > 0 && distance(place) == distance(place - 1);
    bucket_.push_back(repeats ? bucket_.back() : bucket_of(bias, distance(place)));
    for (std::int64_t h = 0; h < hq; ++h) {
      const double number = table.data<double>()[bucket_.back() * hq + h], scaled = number * log2e;
      constexpr double end = std::numeric_limits<float>::max();
      rows_.data<float>()[h * width() + place] =
          static_cast<float>(std::isfinite(number) ? std::clamp(scaled, -end, end) : scaled);
    }
  }
}

std::int64_t DistanceTable::distance(std::int64_t place) const {
  return -std::clamp(low_ + place - kernels::DistanceBias::kPad, low_, high_);
}

kernels::DistanceBias DistanceTable::for_kernels() const { return {start(rows_), width(), low_, high_}; }

Tensor DistanceTable::zeros(std::int64_t rows) const { return Tensor::zeros({rows, width()}); }

float* DistanceTable::start(const Tensor& sums) const {
  return sums.data<float>() + kernels::DistanceBias::kPad - low_;
}

void DistanceTable::add_to(const Tensor& gradient, const Tensor& sums) const {
  const std::int64_t hq = rows_.size(0);
  auto* out = gradient.data<double>();
  const auto* in = sums.data<float>();
  for (std::int64_t row = 0; row < sums.size(0); ++row) {
    for (const std::int64_t bucket : bucket_) out[bucket * hq + row % hq] += static_cast<double>(*in++);
  }
}

double relative_bias_at(const RelativeBias& bias, std::int64_t h, std::int64_t distance) {
  return bias.table.at({bucket_of(bias, distance), h});
}

Tensor relative_bias(const Sizes& p, const AttentionOptions& options) {
  const Tensor all = distances(p, options), table = options.relative_bias.table.to(DType::f64).contiguous();
  const Tensor bias = Tensor::empty({all.size(0), p.hq, p.tq, p.tk}, DType::f64);
  for_each_bucket(options.relative_bias, all, [&](std::int64_t b, std::int64_t i, std::int64_t j, std::int64_t bucket) {
    for (std::int64_t h = 0; h < p.hq; ++h) {
      bias.data<double>()[((b * p.hq + h) * p.tq + i) * p.tk + j] = table.data<double>()[bucket * p.hq + h];
    }
  });
  return bias;
}

Tensor relative_bias_gradient(const Sizes& p, const AttentionOptions& options, const Tensor& d_scores) {
  const Tensor all = distances(p, options).expand({p.batch, 1, p.tq, p.tk}).contiguous();
  const Tensor d = d_scores.to(DType::f64).contiguous();
  Tensor gradient = Tensor::zeros(options.relative_bias.table.shape(), DType::f64);
  for_each_bucket(options.relative_bias, all, [&](std::int64_t b, std::int64_t i, std::int64_t j, std::int64_t bucket) {
    for (std::int64_t h = 0; h < p.hq; ++h) {
      gradient.data<double>()[bucket * p.hq + h] += d.data<double>()[((b * p.hq + h) * p.tq + i) * p.tk + j];
    }
  });
  return gradient;
}

}  // namespace attn
