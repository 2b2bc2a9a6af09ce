#include "attention_problem.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace attn::fuzz {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
// Multiplications of one problem: what a sanitized build does in a millisecond, and of one in sixteen in ten.
constexpr double kMostWork = 2e4, kMostWorkOfFew = 3e5;

double work_of(const Sizes& s) {
  return static_cast<double>(s.b * s.hq * s.tq * s.tk) * static_cast<double>(s.d + s.dv);
}

// A shape that broadcasts to (b, h, i, j): sizes made 1, and leading ones left out.
Shape broadcastable(Bytes& bytes, const Shape& full) {
  const std::uint8_t choice = bytes.byte();
  Shape shape;
  for (std::size_t i = choice >> 4 & 3; i < 4; ++i) shape.push_back((choice >> i & 1) != 0 ? 1 : full[i]);
  return shape;
}

Tensor integers(const std::vector<std::int64_t>& all) {
  return Tensor::from(std::span<const std::int64_t>(all), {static_cast<std::int64_t>(all.size())});
}

// 0, rising, `total`: sequences, some of them empty.
Tensor starts(Elements& elements, std::int64_t n, std::int64_t total) {
  std::vector<std::int64_t> all{0, total};
  for (std::int64_t i = 1; i < n; ++i) all.push_back(elements.number(0, total));
  std::sort(all.begin(), all.end());
  return integers(all);
}

std::int64_t window(Bytes& bytes, const Sizes& s) {
  return bytes.yes() ? -1 : bytes.number(0, std::min<std::int64_t>(s.tk + 2, 60000));
}

void add_mask(Bytes& bytes, Elements& elements, const Sizes& s, DType dtype, Mask& mask) {
  const std::uint8_t parts = bytes.byte();
  const Shape scores{s.b, s.hq, s.tq, s.tk};
  mask.is_causal = (parts & 1) != 0;
  mask.align = (parts & 2) != 0 ? Align::bottom_right : Align::top_left;
  if ((parts & 4) != 0) mask.window_left = window(bytes, s), mask.window_right = window(bytes, s);
  if ((parts & 8) != 0 && (s.b != 1 || (parts & 1) != 0)) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < s.b; ++b) lengths.push_back(elements.number(0, s.tk));
    mask.key_lengths = integers(lengths);
  } else if ((parts & 8) != 0) {
    const std::int64_t n = bytes.number(1, 4);
    mask.query_starts = starts(elements, n, s.tq), mask.key_starts = starts(elements, n, s.tk);
  }
  const double share = bytes.one_of({0.7, 0.1, 0.0, 1.0});
  if ((parts & 16) != 0) mask.keep = scattered(bytes, elements.booleans(broadcastable(bytes, scores), share));
  if ((parts & 32) != 0) {
    const Shape shape = broadcastable(bytes, scores);  // first, whatever order a compiler evaluates arguments in
    mask.bias = elements.tensor(shape, bytes.yes() ? dtype : DType::f32, -2, 2);
    const Tensor flat = mask.bias.view({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i) {
      if (elements.uniform(0, 1) < 0.2) Tensor(flat).set({i}, -kInf);
    }
    mask.bias = scattered(bytes, mask.bias);
  }
  if ((parts & 64) != 0) {
    mask.block_query = bytes.number(1, 70), mask.block_key = bytes.number(1, 140);
    const auto blocks = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
    const Shape all{s.b, s.hq, blocks(s.tq, mask.block_query), blocks(s.tk, mask.block_key)};
    mask.block_keep = scattered(bytes, elements.booleans(broadcastable(bytes, all), share));
  }
}

void add_dropout(Bytes& bytes, Elements& elements, const Sizes& s, AttentionOptions& options) {
  options.dropout = bytes.one_of({0.25, 0.5, 0.9, 1.0});
  if (bytes.yes() && options.dropout < 1) {
    options.dropout_key = bytes.word();
  } else {
    options.dropout_keep =
        scattered(bytes, elements.booleans(broadcastable(bytes, {s.b, s.hq, s.tq, s.tk}), 1 - options.dropout));
  }
}

ScoreFunction wave() {
  return ScoreFunction::elementwise(
      [](auto s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
        if ((i + 3 * j) % 11 == 0) return -kInf;
        const auto x = static_cast<double>(s);
        return x / static_cast<double>(1 + h) + 0.2 * std::sin(x + static_cast<double>(b));
      },
      [](auto s, std::int64_t b, std::int64_t h, std::int64_t, std::int64_t) {
        return 1 / static_cast<double>(1 + h) + 0.2 * std::cos(static_cast<double>(s) + static_cast<double>(b));
      });
}

}  // namespace

Elements::Elements(Bytes& bytes) {
  const std::uint8_t choice = bytes.byte();
  specials_ = (choice & 3) == 3 ? 1 + (choice >> 2) : 0;
  kinds_ = bytes.byte();
  state_ = bytes.word();
}

// SplitMix64 (Steele, Lea and Flood 2014).
std::uint64_t Elements::next() {
  std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

double Elements::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
}

std::int64_t Elements::number(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(next() % (static_cast<std::uint64_t>(high - low) + 1));
}

double Elements::special() {
  constexpr double all[] = {0,     -0.0, 1e-40, -1e-45, 6e-8,  100,  -60,  1e4,  -3e4,
                            1e-20, 1e10, -1e18, 3e38,   -3e38, kNan, kInf, -kInf};
  constexpr int mild = 7, finite = 14, count = static_cast<int>(std::size(all));
  return all[number((kinds_ & 6) == 6 ? finite : 0, (kinds_ & 2) != 0   ? count - 1
                                                    : (kinds_ & 1) != 0 ? finite - 1
                                                                        : mild - 1)];
}

Tensor Elements::tensor(const Shape& shape, DType dtype, double low, double high, bool finite) {
  std::vector<double> all(static_cast<std::size_t>(shape.numel()));
  for (double& x : all) {
    x = specials_ != 0 && number(0, 255) < specials_ ? special() : uniform(low, high);
    if (finite && !std::isfinite(x)) x = 1;
  }
  return Tensor::from(std::span<const double>(all), shape).to(dtype);
}

Tensor Elements::booleans(const Shape& shape, double share) {
  Tensor t = Tensor::empty(shape, DType::boolean);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<bool>()[i] = uniform(0, 1) < share;
  return t;
}

Tensor scattered(Bytes& bytes, const Tensor& t) {
  const std::uint8_t choice = bytes.byte();
  if ((choice & 3) == 0 || t.rank() == 0) return t;
  const auto dim = [&](int bits) { return static_cast<std::int64_t>(static_cast<std::size_t>(bits & 3) % t.rank()); };
  const std::int64_t a = dim(choice >> 2), b = dim(choice >> 4);
  if ((choice & 3) == 1) return t.transpose(a, b).clone().transpose(a, b);
  Shape padded = t.shape();
  for (auto& size : padded) size = size * 2 + 1;
  std::swap(padded[static_cast<std::size_t>(a)], padded[static_cast<std::size_t>(b)]);
  const Tensor memory = Tensor::full(padded, t.dtype() == DType::boolean ? 1 : 1e4, t.dtype()).transpose(a, b);
  auto* first = static_cast<std::byte*>(memory.raw());
  Shape strides = memory.strides();
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const bool back = (choice & 3) == 3 && (choice >> 6) % t.rank() == i;
    first += (back ? 2 * t.shape()[i] : 1) * strides[i] * static_cast<std::int64_t>(size_of(t.dtype()));
    strides[i] *= back ? -2 : 2;
  }
  const Tensor view = Tensor::from_blob(first, t.shape(), strides, t.dtype(), memory.storage());
  view.copy_from(t);
  return view;
}

Sizes sizes_of(Bytes& bytes) {
  Sizes s{};
  const std::uint8_t kind = bytes.byte();
  s.b = bytes.number(0, 8) % 4, s.hkv = bytes.number(0, 8) % 4, s.hq = s.hkv * bytes.number(1, 4);
  if ((kind & 15) != 0)
    s.b = std::max<std::int64_t>(s.b, 1), s.hkv = std::max<std::int64_t>(s.hkv, 1), s.hq = std::max(s.hq, s.hkv);
  const std::int64_t least = (kind & 15) != 0 ? 1 : 0;
  s.tq = (kind & 16) != 0 ? bytes.number(least, 200) : bytes.number(least, 8);
  s.tk = (kind & 32) != 0 ? bytes.number(least, 700) : bytes.number(least, 40);
  s.d = (kind & 64) != 0 ? bytes.number(1, 140) : bytes.number(1, 20);
  s.dv = (kind & 128) != 0 ? bytes.number(least, 140) : s.d;
  while (work_of(s) > ((kind & 15) == 1 ? kMostWorkOfFew : kMostWork)) {
    std::int64_t* most = &s.tk;
    for (std::int64_t* size : {&s.tq, &s.d, &s.dv}) most = *size > *most ? size : most;
    if (s.b > 1) most = &s.b;
    *most /= 2;
  }
  return s;
}

// Positions that are near each other, or as far as they may be.
Offset offset_of(Bytes& bytes, Elements& elements, const Sizes& s) {
  if (bytes.yes()) return {};
  const std::int64_t far = bytes.yes() ? (std::int64_t{1} << 30) - s.tq - s.tk : 0;
  if (bytes.yes()) return far + elements.number(0, s.tq + s.tk);
  std::vector<std::int64_t> each;
  for (std::int64_t b = 0; b < s.b; ++b) each.push_back(far + elements.number(0, s.tq + s.tk));
  return integers(each);
}

RelativeBias relative_bias_of(Bytes& bytes, Elements& elements, const Sizes& s) {
  const bool bidirectional = bytes.yes();
  const std::int64_t buckets = bytes.number(bidirectional ? 4 : 2, 40);
  return {elements.tensor({buckets, s.hq}, DType::f32, -2, 2, true), bidirectional, buckets + bytes.number(0, 300)};
}

AttentionOptions options_of(Bytes& bytes, Elements& elements, const Sizes& s, DType dtype) {
  AttentionOptions options;
  const std::uint8_t parts = bytes.byte();
  add_mask(bytes, elements, s, dtype, options.mask);
  if ((parts & 1) != 0) options.scale = bytes.one_of({1.0, 0.0, -0.5, 0.125, 3.0});
  if ((parts & 2) != 0) options.softcap = bytes.one_of({0.5, 2.0, 30.0, 1e-3, 1e6});
  if ((parts & 4) != 0) options.alibi_slopes = elements.tensor({s.hq}, DType::f32, 0, 0.5, true);
  if ((parts & 8) != 0) options.sinks = elements.tensor({s.hq}, DType::f32, -2, 2, true);
  if ((parts & 16) != 0) add_dropout(bytes, elements, s, options);
  if ((parts & 32) != 0) options.score_function = wave();
  options.return_weights = (parts & 64) != 0;
  if (options.return_weights && s.tq > 0 && bytes.yes()) {
    std::vector<std::int64_t> rows;
    for (std::int64_t n = bytes.number(0, 3); n > 0; --n) rows.push_back(elements.number(0, s.tq - 1));
    options.weight_rows = integers(rows);
  }
  if ((parts & 128) != 0) options.precision = bytes.yes() ? Precision::high : Precision::medium;
  const std::uint8_t more = bytes.byte();
  if ((more & 1) != 0) options.relative_bias = relative_bias_of(bytes, elements, s);
  if ((more & 2) != 0) {
    options.mask.align = Align::top_left;
    options.query_offset = offset_of(bytes, elements, s), options.key_offset = offset_of(bytes, elements, s);
  }
  if ((more & 4) != 0 && size_of(dtype) == 2) options.output_dtype = DType::f32;
  return options;
}

}  // namespace attn::fuzz
