#include "report/figure/validate.hpp"

#include <string_view>

#include "attn/error.hpp"
#include "core/known.hpp"

namespace attn::figure {
namespace {

void require_labels(const char* op, const char* what, const std::vector<std::string>& labels, std::int64_t count) {
  if (labels.empty() || static_cast<std::int64_t>(labels.size()) == count) return;
  throw Error(Error::Kind::shape, op, std::to_string(count) + " " + what + ", or none", std::to_string(labels.size()));
}

}  // namespace

void validate(const char* op, const Tensor& weights, std::size_t low, std::size_t high, const char* expected,
              const Options& options) {
  if (!weights.defined() || weights.rank() < low || weights.rank() > high || weights.numel() == 0) {
    throw Error(Error::Kind::shape, op, expected, weights.defined() ? weights.shape().str() : "no tensor");
  }
  // All are read, and a view can have more than any memory holds.
  constexpr std::int64_t most = std::int64_t{1} << 32;
  if (weights.numel() > most) throw Error(Error::Kind::shape, op, "at most 2^32 numbers", weights.shape().str());
  require_known(op, "scale", options.scale, Scale::diverging);
  require_known(op, "colours", options.colours, Colours::grey);
  const std::int64_t queries = weights.size(-2), keys = weights.size(-1);
  require_labels(op, "tokens, one for each query", options.tokens, queries);
  require_labels(op, "key tokens, one for each key", options.key_tokens, keys);
  if (options.keep.defined() && !(options.keep.shape() == Shape{queries, keys})) {
    throw Error(Error::Kind::shape, op, "a mask " + Shape{queries, keys}.str(), options.keep.shape().str());
  }
  if (options.keep.defined() && options.keep.dtype() != DType::boolean)
    throw Error(Error::Kind::dtype, op, "a mask of dtype bool", name(options.keep.dtype()));
  if (options.query && std::string_view(op) != "lines")
    throw Error(Error::Kind::argument, op, "no query, which is for lines()", std::to_string(*options.query));
  if (options.max_cells < 2 || options.max_cells > 4096) {
    throw Error(Error::Kind::argument, op, "max_cells from 2 to 4096", std::to_string(options.max_cells));
  }
}

const std::vector<std::string>& key_tokens_of(const Options& options, std::int64_t queries, std::int64_t keys) {
  return options.key_tokens.empty() && queries == keys ? options.tokens : options.key_tokens;
}

}  // namespace attn::figure
