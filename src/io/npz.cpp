// .npz: a zip of .npy arrays. libzip reads and writes the zip; the sizes that it reports are checked here.
#include <zip.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "io/elements.hpp"
#include "io/file.hpp"
#include "io/npy.hpp"
#include "io/writers.hpp"

namespace attn::io {
namespace {

constexpr std::string_view kSuffix = ".npy";

// A zip without members, which libzip does not write: the end-of-directory record alone.
constexpr std::string_view kEmptyZip{"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22};

using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;
using Source = std::unique_ptr<zip_source_t, decltype(&zip_source_free)>;
using Member = std::unique_ptr<zip_file_t, decltype([](zip_file_t* file) { zip_fclose(file); })>;

// Where libzip says why a call without an archive failed.
struct ZipError {
  zip_error_t value{};
  ZipError() { zip_error_init(&value); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;
  ~ZipError() { zip_error_fini(&value); }
  std::string text() { return zip_error_strerror(&value); }
};

class NpzReader {
 public:
  NpzReader(Bytes bytes, const Origin& origin, std::uint64_t most) : bytes_(bytes), origin_(origin), most_(most) {
    ZipError error;
    Source source(zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error.value), zip_source_free);
    if (!source) throw std::bad_alloc();
    archive_.reset(zip_open_from_source(source.get(), ZIP_RDONLY, &error.value));
    if (!archive_) origin.fail("a zip archive", error.text());
    static_cast<void>(source.release());  // the archive's now
    // A comment of the archive would stand behind its directory's record, and libzip reads over what else does.
    if (!as_text(bytes.last(kEmptyZip.size())).starts_with(kEmptyZip.substr(0, 4))) {
      origin.fail("a zip archive that ends with its directory", "a comment or other bytes behind it");
    }
  }

  NamedTensors read() {
    NamedTensors result;
    result.format = Format::npz;
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const zip_stat_t info = checked(static_cast<zip_uint64_t>(i));
      const std::string_view name(info.name);
      result.tensors.emplace_back(name.substr(0, name.size() - kSuffix.size()), member(info));
    }
    return result;
  }

  // The array of that name, whatever else is there, of which nothing is read. Where there is none, the names of all
  // arrays, without their tensors.
  NamedTensors read(std::string_view wanted) {
    NamedTensors result;
    result.format = Format::npz;
    const std::string file = std::string(wanted).append(kSuffix);
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<zip_uint64_t>(i);
      if (name_of(index) == file) result.tensors.emplace_back(wanted, member(checked(index)));
    }
    if (!result.tensors.empty()) return result;
    for (zip_int64_t i = 0; i < count; ++i) {
      const std::string_view name = name_of(static_cast<zip_uint64_t>(i));
      if (name.ends_with(kSuffix)) result.tensors.emplace_back(name.substr(0, name.size() - kSuffix.size()), Tensor());
    }
    return result.tensors.empty() ? read() : result;  // which tells what the members are
  }

 private:
  std::string_view name_of(zip_uint64_t index) const {
    const char* name = zip_get_name(archive_.get(), index, 0);
    return name ? name : "";
  }

  // How to read on where a member is none that can be read, and another one can.
  std::string_view advice(std::string_view unreadable) const {
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const std::string_view name = name_of(static_cast<zip_uint64_t>(i));
      if (name.ends_with(kSuffix) && name != unreadable)
        return "name an array, to read it alone (attn draw FILE --tensor NAME)";
    }
    return {};
  }

  zip_stat_t checked(zip_uint64_t index) {
    zip_stat_t info;
    zip_stat_init(&info);
    constexpr zip_uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(archive_.get(), index, 0, &info) != 0 || (info.valid & needed) != needed || !info.name) {
      origin_.fail("a zip member with name and size", "none at " + std::to_string(index));
    }
    const std::string_view name(info.name);
    if (!name.ends_with(kSuffix)) {
      const std::string_view hint = advice(name);
      origin_.fail("members named *.npy", in_quotes(name),
                   hint.empty() ? "a PyTorch checkpoint has to be saved as safetensors" : hint);
    }
    if (!names_.emplace(name).second) origin_.fail("member names that differ", in_quotes(name) + " twice");
    if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE) {
      origin_.fail("members stored or deflated",
                   "method " + std::to_string(info.comp_method) + " for " + in_quotes(name));
    }
    check_ratio(info);
    check_limit(info);
    return info;
  }

  // No member may claim more bytes than deflate can make of its compressed ones, nor all members together more
  // compressed bytes than there are: that is how zip bombs overlap them. So memory is bounded by the file's size.
  void check_ratio(const zip_stat_t& info) {
    constexpr zip_uint64_t deflate_best = 1032, slack = 1024;
    if (info.comp_size > bytes_.size() - compressed_) {
      origin_.fail("members that lie apart in the zip", "sizes beyond its end at " + in_quotes(info.name));
    }
    compressed_ += info.comp_size;
    const bool stored = info.comp_method == ZIP_CM_STORE;
    if (stored ? info.size != info.comp_size : info.size > info.comp_size * deflate_best + slack) {
      origin_.fail(
          "a size that its compressed bytes can hold",
          std::to_string(info.size) + " from " + std::to_string(info.comp_size) + " for " + in_quotes(info.name));
    }
  }

  void check_limit(const zip_stat_t& info) {
    if (info.size > most_ - unpacked_) {
      origin_.fail("at most " + std::to_string(most_) + " bytes unpacked",
                   std::to_string(info.size) + (unpacked_ == 0 ? "" : " more") + " at " + in_quotes(info.name),
                   "pass max_bytes (attn: --max-bytes) to take as many");
    }
    unpacked_ += info.size;
  }

  // Reads the header first, so that storage is taken only once header and zip agree on its size.
  Tensor member(const zip_stat_t& info) {
    const Member file(zip_fopen_index(archive_.get(), info.index, 0));
    if (!file) origin_.fail("a readable zip member", std::string(zip_strerror(archive_.get())));
    const std::string where = in_quotes(info.name) + " of " + std::string(origin_.source);
    const Origin origin{.op = origin_.op, .source = where, .advice = advice(info.name)};
    Buffer start(std::min<std::size_t>(info.size, kMaxNpyHeader));
    fill(file.get(), start.unused(), origin);
    start.use(start.unused().size());
    const NpyHeader header = parse_npy_header(start.bytes(), origin);
    if (info.size - header.offset != header.extent.bytes) {
      origin.fail(std::to_string(header.extent.bytes) + " bytes for the elements of " + header.extent.shape.str(),
                  std::to_string(info.size - header.offset) + " bytes");
    }
    const Tensor storage = npy_storage(header);
    const auto elements = elements_of(storage);
    const Bytes first = start.bytes().subspan(header.offset);
    if (!first.empty()) std::memcpy(elements.data(), first.data(), first.size());
    fill(file.get(), elements.subspan(first.size()), origin);
    expect_end(file.get(), origin);
    return npy_tensor(storage, header);
  }

  static void fill(zip_file_t* file, std::span<std::byte> target, const Origin& origin) {
    while (!target.empty()) {
      const zip_int64_t got = zip_fread(file, target.data(), target.size());
      if (got < 0) origin.fail("a sound zip member", std::string(zip_file_strerror(file)));
      if (got == 0) origin.fail(std::to_string(target.size()) + " more bytes", "the member's end");
      target = target.subspan(static_cast<std::size_t>(got));
    }
  }

  // The checksum is compared when the end is read.
  static void expect_end(zip_file_t* file, const Origin& origin) {
    std::byte extra{};
    const zip_int64_t got = zip_fread(file, &extra, 1);
    if (got < 0) origin.fail("a sound zip member", std::string(zip_file_strerror(file)));
    if (got > 0) origin.fail("the size that the zip declares", "more bytes");
  }

  Bytes bytes_;
  const Origin& origin_;
  Archive archive_{nullptr, zip_discard};
  std::set<std::string, std::less<>> names_;
  std::uint64_t most_;
  zip_uint64_t compressed_ = 0, unpacked_ = 0;
};

// Zeros, which deflate packs best, make no honest file that much smaller than numbers do.
std::uint64_t most_unpacked(std::size_t file_bytes, std::uint64_t asked) {
  constexpr std::uint64_t always = 1'000'000'000, ratio = 16;
  return asked != 0 ? asked : std::max<std::uint64_t>(always, ratio * file_bytes);
}

[[noreturn]] void zip_failed(const std::string& why) {
  throw Error(Error::Kind::argument, "save_npz", "tensors that fit a zip archive", why);
}

// NumPy's date for every member, 1980-01-01, so that equal tensors make equal files.
constexpr zip_uint16_t kTime = 0, kDate = 1 << 5 | 1;

void add_member(zip_t* archive, const std::string& name, std::string& header, const Tensor& elements) {
  const auto bytes = elements_of(elements);
  const std::array<zip_buffer_fragment_t, 2> parts{{{reinterpret_cast<zip_uint8_t*>(header.data()), header.size()},
                                                    {reinterpret_cast<zip_uint8_t*>(bytes.data()), bytes.size()}}};
  Source source(zip_source_buffer_fragment(archive, parts.data(), parts.size(), 0), zip_source_free);
  const zip_int64_t added = source ? zip_file_add(archive, name.c_str(), source.get(), ZIP_FL_ENC_UTF_8) : -1;
  if (added < 0) zip_failed(std::string(zip_strerror(archive)) + " for " + in_quotes(name));
  static_cast<void>(source.release());  // the archive's now
  const auto index = static_cast<zip_uint64_t>(added);
  if (zip_set_file_compression(archive, index, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(archive, index, kTime, kDate, 0) != 0) {
    zip_failed(zip_strerror(archive));
  }
}

// Writes the tensors as a zip into `sink`, a growing buffer in memory.
void write_zip(zip_source_t* sink, const NamedTensors& tensors) {
  ZipError error;
  zip_source_keep(sink);
  Archive archive(zip_open_from_source(sink, ZIP_TRUNCATE, &error.value), zip_discard);
  if (!archive) {
    zip_source_free(sink);
    zip_failed(error.text());
  }
  std::vector<Tensor> elements;
  std::vector<std::string> headers;
  elements.reserve(tensors.tensors.size());
  headers.reserve(tensors.tensors.size());
  for (const auto& [name, tensor] : tensors.tensors) {
    elements.push_back(npy_storable(tensor));
    headers.push_back(npy_header(elements.back()));
    add_member(archive.get(), name + std::string(kSuffix), headers.back(), elements.back());
  }
  if (zip_close(archive.get()) != 0) zip_failed(zip_strerror(archive.get()));
  static_cast<void>(archive.release());
}

void copy_to(OutputFile& file, zip_source_t* source) {
  if (zip_source_open(source) != 0) zip_failed(zip_error_strerror(zip_source_error(source)));
  std::vector<std::byte> chunk(std::size_t{1} << 20);
  zip_int64_t got = 0;
  while ((got = zip_source_read(source, chunk.data(), chunk.size())) > 0) {
    file.write(Bytes(chunk).first(static_cast<std::size_t>(got)));
  }
  zip_source_close(source);
  if (got < 0) zip_failed(zip_error_strerror(zip_source_error(source)));
}

void check_names(const NamedTensors& tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors.tensors) {
    require_defined(tensor, "save_npz");
    constexpr std::size_t most = 0xffff - kSuffix.size();  // the format counts a name's bytes in 16 bits
    if (name.size() > most) zip_failed("a name of " + std::to_string(name.size()) + " bytes: " + in_quotes(name));
    if (name.find('\0') != std::string::npos) zip_failed("a zero byte in the name " + in_quotes(name));
    if (!names.insert(name).second) zip_failed("the name " + in_quotes(name) + " twice");
  }
}

}  // namespace

NamedTensors parse_npz(std::span<const std::byte> bytes, std::string_view source, std::uint64_t max_bytes) {
  return parse_npz_named(bytes, source, {}, max_bytes);
}

NamedTensors parse_npz_named(Bytes bytes, std::string_view source, std::string_view name, std::uint64_t max_bytes) {
  const Origin origin{"parse_npz", source};
  // libzip would take no bytes for no members, and look for a zip behind other bytes.
  if (!starts_a_zip(bytes)) origin.fail("a zip archive", std::to_string(bytes.size()) + " bytes of something else");
  if (as_text(bytes) == kEmptyZip) return {.format = Format::npz};
  NpzReader reader(bytes, origin, most_unpacked(bytes.size(), max_bytes));
  return name.empty() ? reader.read() : reader.read(name);
}

void write_npz(OutputFile& file, const NamedTensors& tensors) {
  if (!tensors.metadata.empty()) {
    zip_failed("metadata, for which npz has no place: " + in_quotes(tensors.metadata.begin()->first));
  }
  check_names(tensors);
  if (tensors.tensors.empty()) return file.write(kEmptyZip);
  ZipError error;
  const Source sink(zip_source_buffer_create(nullptr, 0, 0, &error.value), zip_source_free);
  if (!sink) throw std::bad_alloc();
  write_zip(sink.get(), tensors);
  copy_to(file, sink.get());
}

void save_npz(const std::filesystem::path& path, const NamedTensors& tensors) {
  OutputFile file(path, "save_npz");
  write_npz(file, tensors);
  file.commit();
}

}  // namespace attn::io
