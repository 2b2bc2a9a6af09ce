#include "ops/embedding.hpp"

#include <string>

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kOp = "GPT";
constexpr std::int64_t kColumns = 64;  // of a task in the gradient: rows may repeat, columns do not

std::int64_t place_of(const Tensor& places, std::int64_t token) {
  return places.defined() ? places.data<std::int64_t>()[token] : token;
}

}  // namespace

void check_ids(const Tensor& ids, std::int64_t vocab, std::int64_t longest) {
  if (!ids.defined() || ids.rank() < 1 || ids.rank() > 2 || ids.numel() == 0 || ids.size(-1) > longest) {
    throw Error(Error::Kind::shape, kOp,
                "ids (tokens) or (batch, tokens), of 1 to " + std::to_string(longest) + " tokens",
                ids.defined() ? ids.shape().str() : "no tensor");
  }
  if (ids.dtype() != DType::i64) throw Error(Error::Kind::dtype, kOp, "ids of dtype int64", name(ids.dtype()));
  const Tensor all = ids.contiguous();
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    const std::int64_t id = all.data<std::int64_t>()[i];
    if (id < 0 || id >= vocab) {
      throw Error(Error::Kind::argument, kOp, "token ids in [0, " + std::to_string(vocab) + ")", std::to_string(id));
    }
  }
}

Tensor embed(const Tensor& ids, const Tensor& tokens, const Tensor& positions, const Tensor& places) {
  const std::int64_t t = ids.size(1), width = tokens.size(1);
  const Tensor x = Tensor::empty({ids.size(0), t, width});
  for_runs(
      ids.numel(), static_cast<double>(width),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) {
          const float* token = tokens.data<float>() + ids.data<std::int64_t>()[row] * width;
          const float* position = positions.data<float>() + place_of(places, row % t) * width;
          float* out = x.data<float>() + row * width;
          for (std::int64_t j = 0; j < width; ++j) out[j] = token[j] + position[j];
        }
      },
      16);
  return x;
}

Tensor embed(const Tensor& ids, const Parameter& table, double scale) {
  require_present(table);
  const Tensor &tokens = table.value, &scales = table.scales;
  const std::int64_t width = tokens.size(1);
  const Tensor x = Tensor::empty({ids.size(0), ids.size(1), width}), rows = x.view({-1, width});
  const DType of_scale = scales.defined() ? DType::f32 : tokens.dtype();
  const auto factor = static_cast<float>(Tensor::full({1}, scale, of_scale).item());
  for_runs(
      ids.numel(), static_cast<double>(width),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) {
          const std::int64_t id = ids.data<std::int64_t>()[row];
          rows.select(0, row).copy_from(tokens.select(0, id));
          float* out = x.data<float>() + row * width;
          const float own = scales.defined() ? scales.data<float>()[id] * factor : factor;
          for (std::int64_t j = 0; own != 1 && j < width; ++j) out[j] *= own;
        }
      },
      16);
  return x;
}

void embed_backward(const Tensor& dx, const Tensor& ids, const Tensor& d_tokens, const Tensor& d_positions,
                    const Tensor& places) {
  const std::int64_t t = ids.size(1), width = dx.size(2);
  for_runs(
      width, 2 * static_cast<double>(ids.numel()),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = 0; row < ids.numel(); ++row) {
          // x[row] = tokens[ids[row]] + positions[places[row % t]]
          const float* in = dx.data<float>() + row * width;
          float* token = d_tokens.data<float>() + ids.data<std::int64_t>()[row] * width;
          for (std::int64_t j = first; j < first + count; ++j) token[j] += in[j];
          if (!d_positions.defined()) continue;
          float* position = d_positions.data<float>() + place_of(places, row % t) * width;
          for (std::int64_t j = first; j < first + count; ++j) position[j] += in[j];
        }
      },
      kColumns);
}

}  // namespace attn
