#include "layout.hpp"

#include <algorithm>

#include "attn/error.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

[[noreturn]] void fail(const char* expected, const Tensor& q, const Tensor& k, const Tensor& v) {
  throw Error(Error::Kind::shape, kOp, expected,
              "query " + q.shape().str() + ", key " + k.shape().str() + ", value " + v.shape().str());
}

// (…) with ones in front.
Tensor with_rank(Tensor t, std::size_t rank) {
  while (t.rank() < rank) t = t.unsqueeze(0);
  return t;
}

Tensor expand_leading(const Tensor& t, const Shape& leading) {
  Shape shape = leading;
  for (std::size_t i = leading.size(); i < t.rank(); ++i) shape.push_back(t.shape()[i]);
  return t.expand(shape);
}

// The first `count` dimensions as one: a view where one stride can walk them, else a copy.
Tensor collapse(const Tensor& t, std::size_t count) {
  std::int64_t size = 1, stride = 0;
  bool one_stride = true;
  for (std::size_t i = count; i-- > 0;) {
    if (t.shape()[i] == 1) continue;
    if (size == 1) stride = t.strides()[i];
    one_stride = one_stride && (size == 1 || t.strides()[i] == stride * size);
    size *= t.shape()[i];
  }
  Shape shape{size}, strides{stride};
  for (std::size_t i = count; i < t.rank(); ++i) shape.push_back(t.shape()[i]), strides.push_back(t.strides()[i]);
  if (one_stride) return Tensor::from_blob(t.raw(), shape, strides, t.dtype(), t.storage());
  return t.contiguous().view(shape);
}

std::int64_t broadcast(std::int64_t a, std::int64_t b) { return a == 1 ? b : a; }
bool fits(std::int64_t a, std::int64_t b) { return a == b || a == 1 || b == 1; }

bool in_order(const Tensor& q, const Tensor& k, const Tensor& v, bool grouped) {
  if (!(q.rank() == 4 && k.rank() == 4 && v.rank() == 4)) return false;
  const std::int64_t h = k.size(1);
  return q.size(0) == k.size(0) && q.size(0) == v.size(0) && h == v.size(1) && (grouped || h == 1 || q.size(1) == h);
}

}  // namespace

Layout layout(const Tensor& query, const Tensor& key, const Tensor& value, bool grouped) {
  if (in_order(query, key, value, grouped)) return {query, key, value, {query.size(0), query.size(1)}, 1};
  const std::size_t rank = std::max({query.rank(), key.rank(), value.rank()});
  if (std::min({query.rank(), key.rank(), value.rank()}) < 2) {
    fail("query (…, tq, d), key (…, tk, d), value (…, tk, dv)", query, key, value);
  }
  const std::size_t full = std::max<std::size_t>(rank, 4), heads = full - 3;
  Tensor q = with_rank(query, full), k = with_rank(key, full), v = with_rank(value, full);
  Shape leading;
  for (std::size_t i = 0; i < heads; ++i) {
    const std::int64_t a = q.shape()[i], b = k.shape()[i], c = v.shape()[i];
    if (!(fits(a, b) && fits(a, c) && fits(b, c))) fail("leading dimensions that broadcast", query, key, value);
    leading.push_back(broadcast(broadcast(a, b), c));
  }
  const std::int64_t hq = q.shape()[heads], hk = k.shape()[heads], hv = v.shape()[heads];
  Shape of_q = leading, of_kv = leading;
  if (grouped && hk == hv) {
    of_q.push_back(hq), of_kv.push_back(hk);
  } else {
    if (!(fits(hq, hk) && fits(hq, hv) && fits(hk, hv))) {
      fail("heads that broadcast (enable_gqa=True for grouped heads)", query, key, value);
    }
    of_q.push_back(broadcast(broadcast(hq, hk), hv));
    of_kv.push_back(hk == 1 && hv == 1 ? 1 : of_q.back());
  }
  Layout result{collapse(expand_leading(q, of_q), heads), collapse(expand_leading(k, of_kv), heads),
                collapse(expand_leading(v, of_kv), heads), of_q, heads};
  // The result loses what the caller had not: a batch, or heads.
  while (result.leading.size() > rank - 2) {
    result.leading.erase(0);
    result.batch -= result.batch > 0 ? 1 : 0;
  }
  return result;
}

Tensor mask_of(const Tensor& mask, const Layout& layout) {
  if (!mask.defined() || mask.rank() <= 3 || layout.batch < 2) return mask;
  const Tensor all = with_rank(mask, layout.batch + 3);
  Shape batch;
  bool alike = true;
  for (std::size_t i = 0; i < layout.batch; ++i) {
    if (!(all.shape()[i] == 1 || all.shape()[i] == layout.leading[i])) {
      throw Error(Error::Kind::shape, kOp,
                  "a mask that broadcasts to (…, h, tq, tk), before them " + layout.leading.str(), mask.shape().str());
    }
    alike = alike && all.shape()[i] == 1;
    batch.push_back(layout.leading[i]);
  }
  return collapse(alike ? all : expand_leading(all, batch), layout.batch);
}

Tensor unfold(const Tensor& result, const Layout& layout) {
  if (!result.defined() || layout.leading.size() == 2) return result;
  Shape shape = layout.leading;
  for (std::size_t i = 2; i < result.rank(); ++i) shape.push_back(result.shape()[i]);
  return result.contiguous().view(shape);
}

}  // namespace attn::python
