#include "attn/gguf.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>
#include <utility>

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "io/gguf_blocks.hpp"
#include "io/gguf_header.hpp"

namespace attn::io {
namespace {

constexpr std::string_view kOp = "load_gguf";

}  // namespace

std::string text_of(const GgufValue& value) {
  const auto text = []<class T>(const T& v) -> std::string {
    if constexpr (std::is_same_v<T, std::string>) return v;
    if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
    if constexpr (std::is_same_v<T, std::int64_t>) return std::to_string(v);
    if constexpr (std::is_same_v<T, double>) {
      std::array<char, 32> digits{};
      char *begin = digits.data(), *end = begin + digits.size();
      const auto single = static_cast<float>(v);  // which most are: in its own, fewer digits
      const bool is_single = static_cast<double>(single) == v;
      return {begin, (is_single ? std::to_chars(begin, end, single) : std::to_chars(begin, end, v)).ptr};
    }
    if constexpr (requires { v.size(); }) return std::to_string(v.size()) + " values";
  };
  return std::visit(text, value);
}

bool is_gguf(const std::filesystem::path& path) noexcept {
  try {
    const RandomAccessFile file(path, kOp);
    std::array<std::byte, 4> start{};
    if (path == "-" || file.size() < start.size()) return false;
    file.read(0, start);
    return as_text(start) == kGgufMagic;
  } catch (const std::exception&) {
    return false;
  }
}

// Where the bytes are. A file is read at its places when they are asked for, and not mapped into memory: one that
// another program cuts off meanwhile would end this one.
class Gguf::Source {
 public:
  explicit Source(const std::filesystem::path& path) : name_(source_name(path)), file_(path, kOp) {}
  Source(Bytes bytes, std::string_view name) : name_(name), memory_(bytes) {}

  Origin origin() const { return {kOp, name_}; }
  std::uint64_t size() const { return file_.is_open() ? file_.size() : memory_.size(); }

  // The bytes [begin, begin + count), which are there unless the file has become shorter; in `buffer` where need be.
  Bytes read(std::uint64_t begin, std::size_t count, Buffer& buffer) const {
    if (!file_.is_open()) return memory_.subspan(begin, count);
    buffer = Buffer(count);
    file_.read(begin, buffer.unused().first(count));
    buffer.use(count);
    return buffer.bytes();
  }

 private:
  std::string name_;
  RandomAccessFile file_;
  Bytes memory_;
};

Gguf::Gguf(std::shared_ptr<const Source> source) : source_(std::move(source)) {
  constexpr std::uint64_t first_try = std::uint64_t{1} << 20;
  for (std::uint64_t bytes = first_try;; bytes *= 4) {
    Buffer buffer;
    const std::uint64_t count = std::min(bytes, source_->size());
    const Bytes first = source_->read(0, count, buffer);
    if (auto header = parse_gguf_header(first, source_->size(), source_->origin())) {
      metadata_ = std::move(header->metadata), tensors_ = std::move(header->tensors);
      return;
    }
  }
}

Gguf Gguf::open(const std::filesystem::path& path) { return Gguf(std::make_shared<const Source>(path)); }

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string_view source) {
  return Gguf(std::make_shared<const Source>(bytes, source));
}

const GgufTensor* Gguf::find(std::string_view name) const noexcept {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

Tensor Gguf::load(const GgufTensor& tensor, DType dtype) const {
  if (!is_floating(dtype) || dtype == DType::f64) {
    throw Error(Error::Kind::argument, kOp, "float32, bfloat16 or float16", attn::name(dtype));
  }
  const GgufBlock& block = *gguf_block(static_cast<std::uint32_t>(tensor.type));
  Buffer buffer;
  const Bytes bytes = source_->read(tensor.begin, tensor.bytes, buffer);
  const Tensor values = Tensor::empty(tensor.shape);
  const auto blocks = static_cast<std::int64_t>(tensor.bytes / block.bytes);
  for_runs(blocks, static_cast<double>(block.elements), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      block.widen(bytes.data() + static_cast<std::size_t>(i) * block.bytes, values.data<float>() + i * block.elements);
    }
  });
  return values.to(dtype);
}

}  // namespace attn::io
