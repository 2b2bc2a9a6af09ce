#include "ops/embedding.hpp"

#include <algorithm>
#include <string>

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "ops/stored.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

constexpr const char* kEmbedding = "language model";
constexpr std::int64_t kColumns = 64;  // of a task in the gradient: rows may repeat, columns do not

std::int64_t place_of(const Tensor& places, std::int64_t token) {
  return places.defined() ? places.data<std::int64_t>()[token] : token;
}

// Rows 0 to `last` of a table, or of its gradient, are read or written by their number: it may have been replaced.
void require_rows(const char* what, const Tensor& table, std::int64_t last, std::int64_t width) {
  if (!table.defined() || (table.rank() == 2 && table.size(0) > last && table.size(1) == width)) return;
  throw Error(
      Error::Kind::shape, kEmbedding,
      std::string(what) + " of " + std::to_string(width) + " columns and more than " + std::to_string(last) + " rows",
      table.shape().str());
}

}  // namespace

void check_ids(const Tensor& ids, std::int64_t vocab, std::int64_t longest) {
  if (!ids.defined() || ids.rank() < 1 || ids.rank() > 2 || ids.numel() == 0 || ids.size(-1) > longest) {
    throw Error(Error::Kind::shape, kEmbedding,
                "ids (tokens) or (batch, tokens), of 1 to " + std::to_string(longest) + " tokens",
                ids.defined() ? ids.shape().str() : "no tensor");
  }
  if (ids.dtype() != DType::i64) throw Error(Error::Kind::dtype, kEmbedding, "ids of dtype int64", name(ids.dtype()));
  const Tensor all = ids.contiguous();
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    const std::int64_t id = all.data<std::int64_t>()[i];
    if (id < 0 || id >= vocab) {
      throw Error(Error::Kind::argument, kEmbedding, "token ids in [0, " + std::to_string(vocab) + ")",
                  std::to_string(id));
    }
  }
}

Tensor embed(const Tensor& ids, const Parameter& table, double scale) {
  require_present(table);
  const Tensor &tokens = table.value, &scales = table.scales;
  const std::int64_t width = tokens.size(1);
  check_ids(ids, tokens.size(0), ids.size(-1));
  const Tensor x = Tensor::empty({ids.size(0), ids.size(1), width}), rows = x.view({-1, width});
  const DType of_scale = scales.defined() || table.blocks ? DType::f32 : tokens.dtype();
  const auto factor = static_cast<float>(Tensor::full({1}, scale, of_scale).item());
  for_runs(
      ids.numel(), static_cast<double>(width),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) {
          const std::int64_t id = ids.data<std::int64_t>()[row];
          float* out = x.data<float>() + row * width;
          if (table.blocks) {
            table.blocks->read(id, out);
          } else if (tokens.dtype() == DType::f32 && tokens.is_contiguous()) {
            std::copy_n(tokens.data<float>() + id * width, width, out);
          } else {
            rows.select(0, row).copy_from(tokens.select(0, id));
          }
          const float own = scales.defined() ? scales.data<float>()[id] * factor : factor;
          for (std::int64_t j = 0; own != 1 && j < width; ++j) out[j] *= own;
        }
      },
      16);
  return x;
}

void add_positions(const Tensor& x, const Parameter& positions, const Tensor& places) {
  require_present(positions);
  const std::int64_t t = x.size(1), width = x.size(2),
                     each = places.defined() && places.rank() == 2 ? places.numel() : t;
  std::int64_t first_place = place_of(places, 0), last_place = first_place;
  for (std::int64_t i = 0; i < each; ++i) {
    first_place = std::min(first_place, place_of(places, i)), last_place = std::max(last_place, place_of(places, i));
  }
  require_rows("a table of positions", positions.value, last_place, width);
  const Tensor rows = rows_of(positions, first_place, last_place + 1);
  for_runs(
      x.numel() / width, static_cast<double>(width),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) {
          const float* add = rows.data<float>() + (place_of(places, row % each) - first_place) * width;
          float* out = x.data<float>() + row * width;
          for (std::int64_t j = 0; j < width; ++j) out[j] += add[j];
        }
      },
      16);
}

Tensor table_gradient(Parameter& table) {
  if (!table.requires_grad || !table.value.defined()) return {};
  if (!table.grad.defined()) table.grad = Tensor::zeros(table.value.shape());
  require_gradient_shape(table);
  table.grad = table.grad.contiguous();  // rows are found by their number alone
  return table.grad;
}

void embed_backward(const Tensor& dx, const Tensor& ids, const Tensor& d_tokens, const Tensor& d_positions,
                    const Tensor& places) {
  const std::int64_t t = ids.size(1), width = dx.size(2);
  const auto* id = ids.data<std::int64_t>();
  std::int64_t last_place = 0;
  for (std::int64_t i = 0; i < t; ++i) last_place = std::max(last_place, place_of(places, i));
  require_rows("a table of tokens", d_tokens, *std::max_element(id, id + ids.numel()), width);
  require_rows("a table of positions", d_positions, last_place, width);
  for_runs(
      width, 2 * static_cast<double>(ids.numel()),
      [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = 0; row < ids.numel(); ++row) {
          // x[row] = tokens[ids[row]] + positions[places[row % t]], and without the latter where there are none
          const float* in = dx.data<float>() + row * width;
          float* token = d_tokens.defined() ? d_tokens.data<float>() + id[row] * width : nullptr;
          for (std::int64_t j = first; token && j < first + count; ++j) token[j] += in[j];
          if (!d_positions.defined()) continue;
          float* position = d_positions.data<float>() + place_of(places, row % t) * width;
          for (std::int64_t j = first; j < first + count; ++j) position[j] += in[j];
        }
      },
      kColumns);
}

}  // namespace attn
