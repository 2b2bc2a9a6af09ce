// In place of npz.cpp where the build has no libzip.
#include "attn/error.hpp"
#include "attn/io.hpp"
#include "io/npy.hpp"

namespace attn::io {
namespace {

[[noreturn]] void refuse(std::string_view op) {
  throw Error(Error::Kind::file, op, "a build with libzip, for .npz", "one without", "use .npy or .safetensors");
}

}  // namespace

NamedTensors parse_npz(std::span<const std::byte>, std::string_view, std::uint64_t) { refuse("parse_npz"); }
NamedTensors parse_npz_named(Bytes, std::string_view, std::string_view, std::uint64_t) { refuse("parse_npz"); }
void save_npz(const std::filesystem::path&, const NamedTensors&) { refuse("save_npz"); }

}  // namespace attn::io
