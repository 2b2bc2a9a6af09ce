#include "io/safetensors_header.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/order.hpp"
#include "io/json_object.hpp"

namespace attn::io {
namespace {

struct Name {
  DType dtype;
  std::string_view text;
};
constexpr std::array<Name, 9> kNames{{{DType::f64, "F64"},
                                      {DType::f32, "F32"},
                                      {DType::f16, "F16"},
                                      {DType::bf16, "BF16"},
                                      {DType::i64, "I64"},
                                      {DType::i32, "I32"},
                                      {DType::i8, "I8"},
                                      {DType::u8, "U8"},
                                      {DType::boolean, "BOOL"}}};

// Follows the parser's events instead of building a document: that sees duplicate keys, which a document
// would merge, and stops at the first value that is out of place, however deep it would go on.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(std::string_view json, const Origin& origin) : json_(json), origin_(origin) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::name) {
      const bool metadata = name_ == kMetadataKey;
      place_ = metadata ? Place::metadata : Place::entry;
      if (!metadata) entry_.emplace(origin_);
    } else {
      misplaced("an object");
    }
    return true;
  }

  bool key(string_t& key) override {
    if (place_ == Place::top) {
      if (!names_.insert(key).second) origin_.fail("every name once", in_quotes(key) + " twice");
      name_ = key;
      place_ = Place::name;
    } else if (place_ == Place::metadata) {
      if (header_.metadata.contains(key)) origin_.fail("every metadata key once", in_quotes(key) + " twice");
      field_ = key;
    } else {
      entry_key(key);
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::entry) finish_entry();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(field_, value);
    } else if (place_ == Place::entry && field_ == "dtype") {
      entry_->dtype = dtype_named(value);
    } else {
      misplaced("string " + in_quotes(value));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::entry || field_ == "dtype") misplaced("an array");
    (field_ == "shape" ? entry_->has_shape : entry_->has_offsets) = true;
    place_ = Place::array;
    return true;
  }

  bool end_array() override {
    place_ = Place::entry;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::array) misplaced("number " + std::to_string(value));
    if (field_ == "shape") {
      entry_->sizes.add(value);
    } else if (entry_->offset_count == 2) {
      origin_.fail("two data_offsets", "more for " + in_quotes(name_));
    } else {
      entry_->offsets[entry_->offset_count++] = value;
    }
    return true;
  }

  bool number_integer(number_integer_t value) override { misplaced("number " + std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { misplaced("number " + in_quotes(text)); }
  bool boolean(bool) override { misplaced("true or false"); }
  bool null() override { misplaced("null"); }
  bool binary(binary_t&) override { misplaced("binary"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail_json(json_, position, origin_);
  }

 private:
  enum class Place { outside, top, name, entry, array, metadata };

  struct Entry {
    explicit Entry(const Origin& origin) : sizes(origin) {}
    std::optional<DType> dtype;
    ExtentBuilder sizes;
    bool has_shape = false, has_offsets = false;
    std::array<std::uint64_t, 2> offsets{};
    std::size_t offset_count = 0;
    std::set<std::string> keys;
  };

  void entry_key(const std::string& key) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      origin_.fail("keys dtype, shape and data_offsets", in_quotes(key) + " for " + in_quotes(name_));
    }
    if (!entry_->keys.insert(key).second)
      origin_.fail("every key once", in_quotes(key) + " twice for " + in_quotes(name_));
    field_ = key;
  }

  void finish_entry() {
    if (!entry_->dtype || !entry_->has_shape || entry_->offset_count != 2) {
      origin_.fail("dtype, shape and two data_offsets", "fewer for " + in_quotes(name_));
    }
    const auto [begin, end] = entry_->offsets;
    header_.entries.push_back({name_, *entry_->dtype, entry_->sizes.finish(*entry_->dtype), begin, end});
    entry_.reset();
  }

  DType dtype_named(std::string_view text) const {
    const auto found = std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.text == text; });
    if (found == kNames.end()) {
      origin_.fail("a dtype of F64 F32 F16 BF16 I64 I32 I8 U8 BOOL", in_quotes(text) + " for " + in_quotes(name_));
    }
    return found->dtype;
  }

  [[noreturn]] void misplaced(const std::string& what) const {
    origin_.fail(
        "a header like {\"name\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": [0, 24]}}, "
        "with strings in __metadata__",
        what + (name_.empty() ? "" : " at " + in_quotes(name_)));
  }

  std::string_view json_;
  const Origin& origin_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::set<std::string> names_;
  std::string name_, field_;
  std::optional<Entry> entry_;
};

}  // namespace

std::string_view safetensors_name(DType dtype) noexcept {
  return std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.dtype == dtype; })->text;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, const Origin& origin) {
  if (!json.starts_with('{')) origin.fail("a header that begins with {", in_quotes(json.substr(0, 1)));
  require_plain_json(json, origin);
  HeaderEvents events(json, origin);
  nlohmann::json::sax_parse(json, &events);
  return events.take();
}

std::uint64_t safetensors_header_length(Bytes first, std::uint64_t file_bytes, const Origin& origin) {
  const std::uint64_t length = little_endian(first, 0, kSafetensorsLengthBytes);
  if (length > kMostSafetensorsHeader) origin.fail("a header of at most 100 MB", std::to_string(length) + " bytes");
  if (const std::uint64_t there = file_bytes - kSafetensorsLengthBytes; length > there) {
    origin.fail("a header of " + std::to_string(length) + " bytes", std::to_string(there) + " bytes",
                "the file is cut off, or its length lies");
  }
  return length;
}

void check_safetensors_layout(SafetensorsHeader& header, std::uint64_t data_size, const Origin& origin) {
  std::vector<SafetensorsEntry> given = std::move(header.entries);
  header.entries.clear();
  const auto before = [&](std::size_t a, std::size_t b) {
    return std::pair(given[a].begin, given[a].end) < std::pair(given[b].begin, given[b].end);
  };
  std::uint64_t at = 0;
  for (const std::size_t i : order_of(given.size(), before)) {
    const SafetensorsEntry& entry = header.entries.emplace_back(std::move(given[i]));
    const std::string who = " for " + in_quotes(entry.name);
    if (entry.end < entry.begin || entry.end - entry.begin != entry.extent.bytes) {
      origin.fail("data_offsets " + std::to_string(entry.extent.bytes) + " bytes apart, as shape and dtype say",
                  std::to_string(entry.begin) + " and " + std::to_string(entry.end) + who);
    }
    if (entry.begin != at) {
      origin.fail("tensors without gap or overlap: begin " + std::to_string(at), std::to_string(entry.begin) + who);
    }
    at = entry.end;
    if (at > data_size) {
      origin.fail("data_offsets inside the " + std::to_string(data_size) + " bytes of data", std::to_string(at) + who,
                  "the file is cut off, or its header lies");
    }
  }
  if (at != data_size) {
    origin.fail("data that ends with the last tensor, at " + std::to_string(at), std::to_string(data_size) + " bytes");
  }
}

}  // namespace attn::io
