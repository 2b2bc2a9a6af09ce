// merge(): one attention of several, by their log-sum-exp (Rabe and Staats 2021; Dao et al. 2023, "Flash-Decoding").
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attn/attention.hpp"
#include "attn/error.hpp"
#include "core/parallel.hpp"
#include "reference/elementwise.hpp"

namespace attn {
namespace {

using Kind = Error::Kind;

void check(std::span<const Tensor> outputs, std::span<const Tensor> lses, std::optional<DType> dtype) {
  const auto fail = [](Kind kind, const std::string& expected, const std::string& found) {
    throw Error(kind, "merge", expected, found);
  };
  if (outputs.empty() || outputs.size() != lses.size()) {
    fail(Kind::argument, "one log-sum-exp for each of at least one output",
         std::to_string(outputs.size()) + " outputs and " + std::to_string(lses.size()));
  }
  if (dtype && !is_floating(*dtype)) fail(Kind::dtype, "a floating dtype of the result", std::string(name(*dtype)));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor &output = outputs[i], &lse = lses[i];
    if (!output.defined() || !lse.defined()) fail(Kind::argument, "outputs and lses", "an undefined tensor");
    if (!is_floating(output.dtype()))
      fail(Kind::dtype, "outputs of a floating dtype", std::string(name(output.dtype())));
    if (!is_floating(lse.dtype())) fail(Kind::dtype, "lses of a floating dtype", std::string(name(lse.dtype())));
    Shape rows = output.shape();
    if (rows.empty()) fail(Kind::shape, "outputs (…, dv)", "()");
    rows.erase(rows.size() - 1);
    if (!(output.shape() == outputs[0].shape() && lse.shape() == rows && output.dtype() == outputs[0].dtype())) {
      fail(Kind::shape, "outputs of one dtype and shape (…, dv), and lses of their shape but for dv",
           output.shape().str() + " and " + lse.shape().str() + " beside " + outputs[0].shape().str());
    }
  }
}

// The parts' shares of a row, from their log-sum-exps; returns that of the whole.
double share_out(std::span<double> lse) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double x : lse) most = std::isnan(x) || x > most ? x : most;
  if (most == -std::numeric_limits<double>::infinity()) {
    std::fill(lse.begin(), lse.end(), 0);
    return most;
  }
  for (double& x : lse) sum += x = std::exp(x - most);
  for (double& x : lse) x /= sum;
  return most + std::log(sum);
}

// A part without a share gives nothing, not even NaN.
void add_row(const Tensor& part, std::int64_t row, double share, std::span<double> sum) {
  if (share == 0) return;
  reference::visit_floating("merge", part.dtype(), [&](auto zero) {
    const auto* in = part.data<decltype(zero)>() + row * static_cast<std::int64_t>(sum.size());
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += share * to_double(in[c]);
  });
}

void store_row(std::span<const double> sum, const Tensor& out, std::int64_t row) {
  reference::visit_floating("merge", out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>() + row * static_cast<std::int64_t>(sum.size());
    for (std::size_t c = 0; c < sum.size(); ++c) to[c] = reference::narrow<T>(sum[c]);
  });
}

}  // namespace

AttentionResult merge(std::span<const Tensor> outputs, std::span<const Tensor> lses, std::optional<DType> dtype) {
  check(outputs, lses, dtype);
  std::vector<Tensor> from, log_sums;
  for (const Tensor& t : outputs) from.push_back(t.contiguous());
  for (const Tensor& t : lses) log_sums.push_back(t.to(DType::f64).contiguous());
  const auto parts = from.size(), dv = static_cast<std::size_t>(from[0].size(-1));
  const Tensor output = Tensor::empty(from[0].shape(), dtype.value_or(from[0].dtype())),
               lse = Tensor::empty(log_sums[0].shape(), lses[0].dtype() == DType::f64 ? DType::f64 : DType::f32);
  constexpr std::int64_t run = 64;  // rows of a task
  const std::int64_t rows = lse.numel();
  parallel_for((rows + run - 1) / run, 0, static_cast<double>(output.numel()) * static_cast<double>(parts),
               [&](std::int64_t task, void*) {
                 std::vector<double> shares(parts), sum(dv);
                 for (std::int64_t row = task * run; row < std::min(rows, (task + 1) * run); ++row) {
                   for (std::size_t i = 0; i < parts; ++i) shares[i] = log_sums[i].data<double>()[row];
                   const double whole = share_out(shares);
                   std::fill(sum.begin(), sum.end(), 0);
                   for (std::size_t i = 0; i < parts; ++i) add_row(from[i], row, shares[i], sum);
                   store_row(sum, output, row);
                   store_row({&whole, 1}, lse, row);
                 }
               });
  return {output, lse};
}

}  // namespace attn
