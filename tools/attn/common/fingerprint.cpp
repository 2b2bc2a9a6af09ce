#include "common/fingerprint.hpp"

#include <cstdint>
#include <cstring>

#include "common/format.hpp"

namespace attn::tool {
namespace {

// Eight bytes at a time, by the odd number next to 2^64 / φ (Knuth's multiplicative hashing); the shift brings what the
// product has mixed at the top back to the bottom.
class Hash {
 public:
  void add(std::string_view bytes) {
    add(bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      add(word);
    }
  }
  void add(const Tensor& t) {
    if (!t.defined()) return;
    add(t.shape().str() + std::string(name(t.dtype())));
    const Tensor all = t.contiguous();
    add({static_cast<const char*>(all.raw()), static_cast<std::size_t>(all.numel()) * size_of(all.dtype())});
  }
  std::uint64_t value() const { return value_; }

 private:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 32;
  }

  std::uint64_t value_ = 1;
};

}  // namespace

std::string fingerprint(std::span<Parameter* const> parameters, std::string_view text) {
  Hash hash;
  hash.add(text);
  for (const Parameter* p : parameters) {
    hash.add(p->name), hash.add(p->value), hash.add(p->scales);
    if (p->blocks) hash.add(p->blocks->codes()), hash.add(p->blocks->scales());
  }
  return formatted("{:016x}", hash.value());
}

std::string fingerprint(const StateDict& tensors) {
  Hash hash;
  for (const auto& [name, tensor] : tensors) hash.add(name), hash.add(tensor);
  return formatted("{:016x}", hash.value());
}

}  // namespace attn::tool
