#include "io/gguf_header.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <utility>

#include "core/order.hpp"
#include "io/gguf_blocks.hpp"

namespace attn::io {
namespace {

constexpr std::uint64_t kDefaultAlignment = 32, kMostAlignment = 1 << 16;
constexpr std::string_view kAlignmentKey = "general.alignment";

// The bytes at hand end, those of the file do not.
struct NeedsMore {};

enum class Kind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
constexpr std::uint32_t kKinds = 13;

std::size_t size_of(Kind kind) {
  constexpr std::size_t sizes[kKinds] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // at least
  return sizes[static_cast<std::uint32_t>(kind)];
}

bool is_signed(Kind kind) { return kind == Kind::i8 || kind == Kind::i16 || kind == Kind::i32 || kind == Kind::i64; }

class Reader {
 public:
  Reader(Bytes first, std::uint64_t file_bytes, const Origin& origin)
      : first_(first), file_bytes_(file_bytes), origin_(origin) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return file_bytes_ - at_; }

  // A count of things that take so many bytes at least.
  std::uint64_t count(std::string_view what, std::size_t bytes_each) {
    const std::uint64_t count = unsigned_number(8);
    if (count > left() / bytes_each) {
      origin_.fail("no more " + std::string(what) + " than " + std::to_string(left()) + " bytes can hold",
                   std::to_string(count), "the file is cut off, or its header lies");
    }
    return count;
  }

  std::uint64_t unsigned_number(std::size_t bytes) {
    need(bytes, "a number");
    const std::uint64_t value = little_endian(first_, at_, bytes);
    at_ += bytes;
    return value;
  }

  std::string string() {
    const std::uint64_t length = count("characters", 1);
    need(length, "a string");
    std::string text(as_text(first_.subspan(at_, length)));
    at_ += length;
    return text;
  }

  Kind kind() {
    const std::uint64_t kind = unsigned_number(4);
    if (kind >= kKinds) origin_.fail("a kind of value from 0 to 12", std::to_string(kind));
    return static_cast<Kind>(kind);
  }

  std::int64_t whole(Kind kind) {
    const std::size_t bytes = size_of(kind);
    const std::uint64_t value = unsigned_number(bytes);
    const auto unused = static_cast<int>(64 - 8 * bytes);
    if (is_signed(kind)) return static_cast<std::int64_t>(value << unused) >> unused;
    if (value > kLargest) origin_.fail("whole numbers below 2^63", std::to_string(value));
    return static_cast<std::int64_t>(value);
  }

  double floating(Kind kind) {
    if (kind == Kind::f64) return std::bit_cast<double>(unsigned_number(8));
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(unsigned_number(4))));
  }

  bool boolean() {
    const std::uint64_t value = unsigned_number(1);
    if (value > 1) origin_.fail("a boolean of 0 or 1", std::to_string(value));
    return value == 1;
  }

  GgufValue value() {
    const Kind what = kind();
    return what == Kind::array ? array() : scalar(what);
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& found) const { origin_.fail(expected, found); }

 private:
  static constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();

  void need(std::uint64_t bytes, std::string_view what) const {
    if (bytes > left()) {
      origin_.fail(std::string(what) + " of " + std::to_string(bytes) + " bytes", std::to_string(left()) + " bytes",
                   "the file is cut off, or its header lies");
    }
    if (bytes > first_.size() - at_) throw NeedsMore{};
  }

  GgufValue scalar(Kind kind) {
    switch (kind) {
      case Kind::boolean:
        return boolean();
      case Kind::string:
        return string();
      case Kind::f32:
      case Kind::f64:
        return floating(kind);
      default:
        return whole(kind);
    }
  }

  template <class T, class F>
  std::vector<T> list(std::uint64_t count, F&& next) {
    std::vector<T> values;
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(next());
    return values;
  }

  GgufValue array() {
    const Kind of = kind();
    if (of == Kind::array) origin_.fail("arrays of numbers, booleans or strings", "an array of arrays");
    const std::uint64_t length = count("elements", size_of(of));
    switch (of) {
      case Kind::boolean:
        return list<bool>(length, [&] { return boolean(); });
      case Kind::string:
        return list<std::string>(length, [&] { return string(); });
      case Kind::f32:
      case Kind::f64:
        return list<double>(length, [&] { return floating(of); });
      default:
        return list<std::int64_t>(length, [&] { return whole(of); });
    }
  }

  Bytes first_;
  std::uint64_t file_bytes_, at_ = 0;
  const Origin& origin_;
};

void read_start(Reader& reader, Bytes first, const Origin& origin) {
  if (!as_text(first).starts_with(kGgufMagic)) origin.fail("a file that begins with GGUF", "other bytes");
  reader.unsigned_number(4);
  const std::uint64_t version = reader.unsigned_number(4);
  if (version == 2 || version == 3) return;
  const bool swapped = version != 0 && (version & 0xffff) == 0;
  origin.fail("version 2 or 3, little-endian", swapped ? "a big-endian file" : "version " + std::to_string(version));
}

// In the file the sizes of a row come first.
Extent extent_of(Reader& reader, const std::string& who, std::uint32_t& type, const Origin& origin) {
  const std::uint64_t rank = reader.unsigned_number(4);
  if (rank < 1 || rank > 4) origin.fail("1 to 4 dimensions", std::to_string(rank) + who);
  std::uint64_t sizes[4];
  for (std::uint64_t i = 0; i < rank; ++i) sizes[rank - 1 - i] = reader.unsigned_number(8);
  type = static_cast<std::uint32_t>(reader.unsigned_number(4));
  const GgufBlock* block = gguf_block(type);
  if (!block) {
    origin.fail("a tensor of type F32, F16, BF16, Q4_0 to Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4",
                "type " + gguf_type_name(type) + who, "convert the file to one of these");
  }
  ExtentBuilder builder(origin);
  for (std::uint64_t i = 0; i < rank; ++i) builder.add(sizes[i]);
  Extent extent = builder.finish(DType::f32);
  if (extent.shape.back() % block->elements() != 0) {
    origin.fail("rows of whole blocks of " + std::to_string(block->elements()) + " elements",
                std::to_string(extent.shape.back()) + who);
  }
  extent.bytes = extent.bytes / attn::size_of(DType::f32) / static_cast<std::size_t>(block->elements()) * block->bytes;
  return extent;
}

GgufTensor read_tensor(Reader& reader, const Origin& origin) {
  GgufTensor tensor;
  tensor.name = reader.string();
  const std::string who = " for " + in_quotes(tensor.name);
  std::uint32_t type = 0;
  const Extent extent = extent_of(reader, who, type, origin);
  tensor.shape = extent.shape, tensor.bytes = extent.bytes, tensor.type = static_cast<GgufType>(type);
  tensor.begin = reader.unsigned_number(8);
  return tensor;
}

std::uint64_t alignment_of(const GgufHeader& header, const Origin& origin) {
  const auto found = header.metadata.find(kAlignmentKey);
  if (found == header.metadata.end()) return kDefaultAlignment;
  const auto* value = std::get_if<std::int64_t>(&found->second);
  const bool fits = value && *value > 0 && *value <= static_cast<std::int64_t>(kMostAlignment) &&
                    std::has_single_bit(static_cast<std::uint64_t>(*value));
  if (!fits) {
    origin.fail("general.alignment as a power of two up to 65536", value ? std::to_string(*value) : "no whole number");
  }
  return static_cast<std::uint64_t>(*value);
}

// Their places in the file, each tensor's its own. Between them may be padding.
void place(GgufHeader& header, std::uint64_t header_bytes, std::uint64_t file_bytes, const Origin& origin) {
  const std::uint64_t alignment = alignment_of(header, origin);
  const std::uint64_t data = (header_bytes + alignment - 1) / alignment * alignment;
  auto& tensors = header.tensors;
  std::uint64_t end = 0;
  for (const std::size_t i :
       order_of(tensors.size(), [&](std::size_t a, std::size_t b) { return tensors[a].begin < tensors[b].begin; })) {
    GgufTensor* const tensor = &tensors[i];
    const std::string who = " for " + in_quotes(tensor->name);
    if (tensor->begin % alignment != 0) {
      origin.fail("offsets that are multiples of " + std::to_string(alignment), std::to_string(tensor->begin) + who);
    }
    if (tensor->begin < end) {
      origin.fail("tensors without overlap: an offset from " + std::to_string(end) + " on",
                  std::to_string(tensor->begin) + who);
    }
    const std::uint64_t room = file_bytes < data ? 0 : file_bytes - data;
    if (tensor->begin > room || tensor->bytes > room - tensor->begin) {
      origin.fail("offset and size inside the " + std::to_string(room) + " bytes of data",
                  std::to_string(tensor->begin) + " and " + std::to_string(tensor->bytes) + who,
                  "the file is cut off, or its header lies");
    }
    end = tensor->begin + tensor->bytes;
    tensor->begin += data;
  }
}

}  // namespace

std::optional<GgufHeader> parse_gguf_header(Bytes first, std::uint64_t file_bytes, const Origin& origin) {
  constexpr std::size_t least_tensor = 8 + 4 + 8 + 4 + 8, least_value = 8 + 4 + 1;
  try {
    Reader reader(first, file_bytes, origin);
    read_start(reader, first, origin);
    const std::uint64_t tensors = reader.count("tensors", least_tensor), values = reader.count("values", least_value);
    GgufHeader header;
    for (std::uint64_t i = 0; i < values; ++i) {
      std::string key = reader.string();
      GgufValue value = reader.value();
      const auto [at, is_new] = header.metadata.emplace(std::move(key), std::move(value));
      if (!is_new) origin.fail("keys that differ", in_quotes(at->first) + " twice");
    }
    std::set<std::string_view> names;
    header.tensors.reserve(tensors);  // `names` looks into them
    for (std::uint64_t i = 0; i < tensors; ++i) {
      header.tensors.push_back(read_tensor(reader, origin));
      const std::string& name = header.tensors.back().name;
      if (!names.insert(name).second) origin.fail("names that differ", in_quotes(name) + " twice");
    }
    place(header, reader.at(), file_bytes, origin);
    return header;
  } catch (const NeedsMore&) {
    return std::nullopt;
  }
}

}  // namespace attn::io
