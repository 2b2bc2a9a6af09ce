#include "attn/gguf.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <set>
#include <type_traits>
#include <utility>

#include "attn/error.hpp"
#include "core/decimal.hpp"
#include "core/rows.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "io/gguf_blocks.hpp"
#include "io/gguf_header.hpp"

namespace attn::io {
namespace {

constexpr std::string_view kOp = "load_gguf";

std::int64_t split_number(const GgufHeader& header, const char* key, std::int64_t otherwise, const Origin& origin) {
  const auto at = header.metadata.find(key);
  if (at == header.metadata.end()) return otherwise;
  const auto* number = std::get_if<std::int64_t>(&at->second);
  if (!number) origin.fail(std::string(key) + " of a whole number", in_quotes(text_of(at->second)));
  return *number;
}

// "-00002-of-00003.gguf", which the names of a model's files end in.
std::string part_ending(std::int64_t number, std::int64_t count) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "-%05lld-of-%05lld.gguf", static_cast<long long>(number),
                static_cast<long long>(count));
  return text.data();
}

}  // namespace

std::string text_of(const GgufValue& value) {
  const auto text = []<class T>(const T& v) -> std::string {
    if constexpr (std::is_same_v<T, std::string>) return v;
    if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
    if constexpr (std::is_same_v<T, std::int64_t>) return std::to_string(v);
    if constexpr (std::is_same_v<T, double>) return shortest_decimal(v);  // most are float32
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
class Gguf::Source : public RandomAccessFile {
 public:
  using RandomAccessFile::RandomAccessFile;

  Origin origin() const { return {kOp, source()}; }

  GgufHeader header() const {
    constexpr std::uint64_t first_try = std::uint64_t{1} << 20;
    for (std::uint64_t bytes = is_open() ? first_try : size();; bytes *= 4) {
      Buffer buffer;
      const Bytes first = read(0, static_cast<std::size_t>(std::min(bytes, size())), buffer);
      if (auto header = parse_gguf_header(first, size(), origin())) return std::move(*header);
    }
  }
};

Gguf::Gguf(std::shared_ptr<const Source> source) : sources_{std::move(source)} {
  GgufHeader header = sources_[0]->header();
  metadata_ = std::move(header.metadata), tensors_ = std::move(header.tensors);
}

std::int64_t Gguf::parts() const { return split_number({metadata_, {}}, "split.count", 1, sources_[0]->origin()); }

void Gguf::add_parts(const std::filesystem::path& first) {
  const Origin origin = sources_[0]->origin();
  const GgufHeader own{metadata_, {}};
  const std::int64_t count = parts(), number = split_number(own, "split.no", 0, origin);
  if (count <= 1) return;
  const std::string file = first.filename().string(), ending = part_ending(number + 1, count);
  if (!file.ends_with(ending)) {
    origin.fail("a name that ends in " + ending + ", by which the other parts are found", in_quotes(file));
  }
  const std::string name = file.substr(0, file.size() - ending.size());
  if (number != 0) {
    origin.fail("the first of " + std::to_string(count) + " parts, " + name + part_ending(1, count),
                "part " + std::to_string(number + 1));
  }
  for (std::int64_t i = 1; i < count; ++i) {
    sources_.push_back(std::make_shared<const Source>(first.parent_path() / (name + part_ending(i + 1, count)), kOp));
    GgufHeader part = sources_.back()->header();
    const Origin its = sources_.back()->origin();
    const std::int64_t its_number = split_number(part, "split.no", -1, its),
                       its_count = split_number(part, "split.count", -1, its);
    if (its_number != i || its_count != count) {
      its.fail("part " + std::to_string(i + 1) + " of " + std::to_string(count),
               "split.no " + std::to_string(its_number) + " and split.count " + std::to_string(its_count));
    }
    for (GgufTensor& tensor : part.tensors) {
      tensor.part = sources_.size() - 1;
      tensors_.push_back(std::move(tensor));
    }
  }
  std::set<std::string_view> names;
  for (const GgufTensor& tensor : tensors_) {
    if (!names.insert(tensor.name).second) origin.fail("names that differ", in_quotes(tensor.name) + " in two parts");
  }
  const auto there = static_cast<std::int64_t>(tensors_.size());
  const std::int64_t told = split_number(own, "split.tensors.count", there, origin);
  if (told != there) {
    origin.fail("the " + std::to_string(told) + " tensors of split.tensors.count", std::to_string(there));
  }
}

Gguf Gguf::open(const std::filesystem::path& path) {
  Gguf file(std::make_shared<const Source>(path, kOp));
  file.add_parts(path);
  return file;
}

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string_view source) {
  Gguf file(std::make_shared<const Source>(bytes, source));
  if (const std::int64_t count = file.parts(); count > 1) {
    file.sources_[0]->origin().fail("a whole model", "one of " + std::to_string(count) + " parts");
  }
  return file;
}

const GgufTensor* Gguf::find(std::string_view name) const noexcept {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

void Gguf::require_own(const GgufTensor& tensor) const {
  const std::less<> before;
  if (!before(&tensor, tensors_.data()) && before(&tensor, tensors_.data() + tensors_.size())) return;
  const GgufTensor* const own = find(tensor.name);  // a copy of one is as good
  if (own && *own == tensor) return;
  throw Error(Error::Kind::argument, kOp, "a tensor of this file", in_quotes(tensor.name));
}

Tensor Gguf::load(const GgufTensor& tensor, DType dtype) const {
  require_own(tensor);
  if (!is_floating(dtype) || dtype == DType::f64) {
    throw Error(Error::Kind::argument, kOp, "float32, bfloat16 or float16", attn::name(dtype));
  }
  const GgufBlock& block = *gguf_block(static_cast<std::uint32_t>(tensor.type));
  Buffer buffer;
  const Bytes bytes = sources_[tensor.part]->read(tensor.begin, static_cast<std::size_t>(tensor.bytes), buffer);
  const Tensor values = Tensor::empty(tensor.shape);
  const auto blocks = static_cast<std::int64_t>(tensor.bytes / block.bytes);
  for_runs(blocks, static_cast<double>(block.elements()), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      block.widen(bytes.data() + static_cast<std::size_t>(i) * block.bytes,
                  values.data<float>() + i * block.elements());
    }
  });
  return values.to(dtype);
}

std::shared_ptr<const QuantizedMatrix> Gguf::load_blocks(const GgufTensor& tensor, std::int64_t first,
                                                         std::int64_t last, const RowOf& row_of) const {
  require_own(tensor);
  const GgufBlock& block = *gguf_block(static_cast<std::uint32_t>(tensor.type));
  if (!block.take || tensor.shape.size() != 2 || tensor.shape[1] == 0 || first >= last) return nullptr;
  const std::int64_t width = tensor.shape[1], runs = width / block.elements(), rows = last - first;
  const auto require_row = [&](std::int64_t row) {
    if (row >= 0 && row < tensor.shape[0]) return;
    throw Error(Error::Kind::argument, kOp, "rows of " + tensor.shape.str(), "row " + std::to_string(row));
  };
  require_row(first), require_row(last - 1);
  const auto matrix = std::make_shared<QuantizedMatrix>(rows, width, block.form);
  const std::size_t row_bytes = static_cast<std::size_t>(runs) * block.bytes;
  std::atomic<bool> fits{true}, failed{false};
  std::exception_ptr error;
  constexpr std::int64_t some = QuantizedMatrix::kGroup;
  parallel_for((rows + some - 1) / some, 0, static_cast<double>(4 * rows * width), [&](std::int64_t task, void*) {
    try {
      Buffer buffer;
      for (std::int64_t row = task * some; row < std::min(rows, (task + 1) * some); ++row) {
        const std::int64_t from = row_of ? row_of(first + row) : first + row;
        require_row(from);
        const std::uint64_t begin = tensor.begin + static_cast<std::uint64_t>(from) * row_bytes;
        const Bytes bytes = sources_[tensor.part]->read(begin, row_bytes, buffer);
        BlockRun taken;
        for (std::int64_t i = 0; i < runs; ++i) {
          block.take(bytes.data() + static_cast<std::size_t>(i) * block.bytes, taken);
          if (!matrix->set(row, i, taken)) fits = false;
        }
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
  return fits ? matrix : nullptr;
}

}  // namespace attn::io
