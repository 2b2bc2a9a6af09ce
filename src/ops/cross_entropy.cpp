#include "attn/cross_entropy.hpp"

#include <string>

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "kernels/targets.hpp"

namespace attn {
namespace {

constexpr const char* kCrossEntropy = "cross_entropy";
constexpr std::int64_t kIgnored = -100, kSoftmaxRows = 16;

void check(const Tensor& logits, const Tensor& targets) {
  require_float32(kCrossEntropy, "logits", logits);
  if (targets.dtype() != DType::i64) {
    throw Error(Error::Kind::dtype, kCrossEntropy, "targets of dtype int64", name(targets.dtype()));
  }
  if (logits.rank() < 1 || logits.size(-1) == 0 || targets.numel() != row_count(logits)) {
    throw Error(Error::Kind::shape, kCrossEntropy, "logits (…, vocab) and targets (…)",
                logits.shape().str() + " and " + targets.shape().str());
  }
}

// The losses' sum, in the order of the rows; with `gradient`, factor · its gradient there.
CrossEntropy losses(const Tensor& logits, const Tensor& targets, float* gradient, double factor) {
  const Tensor wanted = targets.contiguous();
  const auto* target = wanted.data<std::int64_t>();
  const std::int64_t rows = wanted.numel(), vocab = logits.size(-1);
  CrossEntropy result;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (target[row] == kIgnored) continue;
    if (target[row] < 0 || target[row] >= vocab) {
      throw Error(Error::Kind::argument, kCrossEntropy,
                  "targets in [0, " + std::to_string(vocab) + "), or -100 to ignore", std::to_string(target[row]));
    }
    ++result.count;
  }
  const Tensor each = Tensor::zeros({rows}, DType::f64);
  const kernels::ModelKernel& kernel = *kernels::active().model;
  parallel_for((rows + kSoftmaxRows - 1) / kSoftmaxRows, 0, 20 * static_cast<double>(logits.numel()),
               [&](std::int64_t task, void*) {
                 for (std::int64_t row = task * kSoftmaxRows; row < std::min(rows, (task + 1) * kSoftmaxRows); ++row) {
                   float* out = gradient ? gradient + row * vocab : nullptr;
                   if (target[row] == kIgnored) {
                     if (out) std::fill_n(out, vocab, 0.f);
                     continue;
                   }
                   each.data<double>()[row] = kernel.cross_entropy(
                       {vocab, target[row], logits.data<float>() + row * vocab, out, static_cast<float>(factor)});
                 }
               });
  for (std::int64_t row = 0; row < rows; ++row) result.loss += each.data<double>()[row];
  if (result.count > 0) result.loss /= static_cast<double>(result.count);
  return result;
}

}  // namespace

CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets) {
  check(logits, targets);
  return losses(logits.contiguous(), targets, nullptr, 0);
}

CrossEntropy cross_entropy_in_place(const Tensor& logits, const Tensor& targets, double factor) {
  check(logits, targets);
  if (!logits.is_contiguous())
    throw Error(Error::Kind::shape, kCrossEntropy, "contiguous logits", logits.strides().str());
  return losses(logits, targets, logits.data<float>(), factor);
}

}  // namespace attn
