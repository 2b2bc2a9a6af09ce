// GGUF: a model in one file, its tensors often quantized in blocks; versions 2 and 3, little-endian.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attn/quantized.hpp"
#include "attn/tensor.hpp"

namespace attn::io {

// How a tensor's elements are stored. The quantized ones are blocks of 32 or 256 elements of a row, with scales.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39
};

// "F32", "Q4_K", …
std::string_view name(GgufType type) noexcept;

// Whether its elements are in blocks.
bool is_quantized(GgufType type) noexcept;

// Whole numbers of any size and sign are int64, floating ones double. Arrays have elements of one kind.
using GgufValue = std::variant<bool, std::int64_t, double, std::string, std::vector<bool>, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

// A value as one line. A text stays as it is, and a list becomes its length, "49152 values".
std::string text_of(const GgufValue& value);

struct GgufTensor {
  std::string name;
  Shape shape;  // row-major, as elsewhere: the file's own order of sizes is the reverse
  GgufType type = GgufType::f32;
  std::uint64_t begin = 0, bytes = 0;  // in the file
  std::size_t part = 0;                // which of a model's files that is

  friend bool operator==(const GgufTensor&, const GgufTensor&) = default;
};

// Whether a file begins as GGUF does. It is false, too, for a file that cannot be read, and for "-".
bool is_gguf(const std::filesystem::path& path) noexcept;

// A Gguf holds what a file says, without its elements. A tensor's elements are read when they are asked for.
class Gguf {
 public:
  // Throws Error: kind `file` when the file cannot be read, kind `data` when its content is not what the format says.
  // Sizes are compared with the bytes that are there before anything is made of them. Of a model in several files
  // (split.count) `path` is the first, "NAME-00001-of-00003.gguf", and the others lie beside it.
  static Gguf open(const std::filesystem::path& path);
  // Reads bytes that the caller keeps, of a whole model. `source` names them in messages.
  static Gguf parse(std::span<const std::byte> bytes, std::string_view source);

  const std::map<std::string, GgufValue, std::less<>>& metadata() const noexcept { return metadata_; }
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }  // in the file's order
  const GgufTensor* find(std::string_view name) const noexcept;                 // null where there is none

  // A tensor's elements, as float32 or, rounded, as bfloat16 or float16. Throws Error (argument) for another dtype, and
  // for a tensor that is none of tensors().
  Tensor load(const GgufTensor& tensor, DType dtype = DType::f32) const;

  // Rows [first, last) of a matrix that is quantised, as its blocks: exactly its elements. Row i is row_of(i) of the
  // file where that is given. Threads read and arrange the rows, with a row's memory each beside the result. Null for
  // another tensor, and for MXFP4 with scales that float16 does not hold. Throws Error (argument) for a row that is
  // not there, and for a tensor that is none of tensors().
  using RowOf = std::function<std::int64_t(std::int64_t)>;
  std::shared_ptr<const QuantizedMatrix> load_blocks(const GgufTensor& tensor, std::int64_t first, std::int64_t last,
                                                     const RowOf& row_of = {}) const;

 private:
  class Source;

  explicit Gguf(std::shared_ptr<const Source> source);
  std::int64_t parts() const;
  void add_parts(const std::filesystem::path& first);
  void require_own(const GgufTensor& tensor) const;

  std::vector<std::shared_ptr<const Source>> sources_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace attn::io
