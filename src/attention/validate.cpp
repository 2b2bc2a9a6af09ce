#include "attention/validate.hpp"

#include <cmath>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

using Kind = Error::Kind;

void require(bool ok, Kind kind, const std::string& expected, const std::string& found, const char* hint = "") {
  if (!ok) throw Error(kind, "attention", expected, found, hint);
}

std::string shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  return "q " + q.shape().str() + ", k " + k.shape().str() + ", v " + v.shape().str();
}

void check_dtypes(const Tensor& q, const Tensor& k, const Tensor& v) {
  require(is_floating(q.dtype()), Kind::dtype, "q of a floating dtype", std::string(name(q.dtype())));
  require(q.dtype() == k.dtype() && q.dtype() == v.dtype(), Kind::dtype, "q, k and v of one dtype",
          std::string(name(q.dtype())) + ", " + std::string(name(k.dtype())) + ", " + std::string(name(v.dtype())),
          "convert with to(dtype)");
}

void check_mask(const Mask& mask, const Shape& scores) {
  if (mask.keep.defined()) {
    require(mask.keep.dtype() == DType::boolean, Kind::dtype, "mask.keep of dtype bool (true = allowed)",
            std::string(name(mask.keep.dtype())), "use Mask::additive for a mask that is added to the scores");
    require(broadcasts_to(mask.keep.shape(), scores), Kind::shape,
            "mask.keep that broadcasts to (b, h, tq, tk) = " + scores.str(), mask.keep.shape().str());
  }
  if (mask.bias.defined()) {
    require(is_floating(mask.bias.dtype()), Kind::dtype, "mask.bias of a floating dtype",
            std::string(name(mask.bias.dtype())), "use Mask::boolean for a mask of true and false");
    require(broadcasts_to(mask.bias.shape(), scores), Kind::shape,
            "mask.bias that broadcasts to (b, h, tq, tk) = " + scores.str(), mask.bias.shape().str());
  }
}

void check_numbers(const AttentionOptions& options, const Shape& scores) {
  require(!options.scale || std::isfinite(*options.scale), Kind::argument, "a finite scale",
          "a scale that is not finite");
  require(std::isfinite(options.softcap) && options.softcap >= 0, Kind::argument, "softcap >= 0 (0 = none)",
          std::to_string(options.softcap));
  require(options.dropout >= 0 && options.dropout <= 1, Kind::argument, "dropout in [0, 1]",
          std::to_string(options.dropout));
  if (options.dropout == 0) return;
  const Tensor& keep = options.dropout_keep;
  require(keep.defined() && keep.dtype() == DType::boolean && broadcasts_to(keep.shape(), scores), Kind::argument,
          "dropout_keep: booleans that broadcast to " + scores.str(), keep.defined() ? keep.shape().str() : "none",
          "draw it with Generator::dropout_keep");
}

}  // namespace

bool broadcasts_to(const Shape& tensor, const Shape& shape) {
  if (tensor.size() > shape.size()) return false;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t have = tensor[tensor.size() - 1 - i], want = shape[shape.size() - 1 - i];
    if (have != want && have != 1) return false;
  }
  return true;
}

Problem validate(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  require(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, Kind::shape,
          "q (b, hq, tq, d), k (b, hkv, tk, d), v (b, hkv, tk, dv)", shapes(q, k, v),
          "add dimensions with unsqueeze(0)");
  check_dtypes(q, k, v);
  require(q.size(0) == k.size(0) && q.size(0) == v.size(0), Kind::shape, "one batch size", shapes(q, k, v));
  require(k.size(1) == v.size(1), Kind::shape, "as many key heads as value heads", shapes(q, k, v));
  require(k.size(2) == v.size(2), Kind::shape, "as many keys as values", shapes(q, k, v));
  require(q.size(3) == k.size(3), Kind::shape, "queries and keys of one head_dim", shapes(q, k, v));
  require(q.size(3) > 0, Kind::shape, "a head_dim of at least 1", shapes(q, k, v));
  const bool divides = k.size(1) == 0 ? q.size(1) == 0 : q.size(1) % k.size(1) == 0;
  require(divides, Kind::shape, "query heads a multiple of key heads", shapes(q, k, v));

  Problem p{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3), v.size(3), 0};
  p.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(p.d)));
  check_mask(options.mask, p.scores_shape());
  check_numbers(options, p.scores_shape());
  return p;
}

}  // namespace attn
