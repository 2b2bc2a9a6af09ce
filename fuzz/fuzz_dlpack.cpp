// A capsule from bytes. Its fields are arbitrary; whether they stay within its memory is the producer's promise, so
// elements are read only where they do.
#include <dlpack/dlpack.h>

#include <array>
#include <cstdlib>

#include "attn/dlpack.hpp"
#include "bytes.hpp"
#include "fuzz.hpp"

namespace attn::fuzz {
namespace {

__extension__ using Wide = __int128;

struct Capsule {
  std::array<std::int64_t, 10> shape{}, strides{};
  alignas(64) std::array<std::byte, 4096> memory{};
  DLManagedTensor managed{};
  bool deleted = false;
};

std::int64_t size_or_stride(Bytes& bytes) {
  const std::uint8_t kind = bytes.byte();
  if (kind < 200) return kind % 8;
  if (kind < 240) return -(kind % 8);
  return static_cast<std::int64_t>(bytes.word());
}

void fill(Bytes& bytes, Capsule& c) {
  DLTensor& t = c.managed.dl_tensor;
  t.ndim = static_cast<int>(static_cast<std::int8_t>(bytes.byte())) % 11;
  const std::uint8_t flags = bytes.byte();
  t.data = (flags & 1) != 0 && (flags & 2) != 0 ? nullptr : c.memory.data() + c.memory.size() / 2;
  t.byte_offset = static_cast<std::uint64_t>((flags & 4) != 0 ? bytes.number(0, 2000) : 0);
  t.device = {(flags & 56) == 56 ? kDLCUDA : kDLCPU, 0};
  constexpr std::uint8_t bits[] = {8, 16, 32, 64, 1};
  t.dtype = {static_cast<std::uint8_t>(bytes.byte() % 8), bits[bytes.byte() % 5],
             static_cast<std::uint16_t>((flags & 192) == 192 ? bytes.byte() : 1)};
  for (int i = 0; i < t.ndim; ++i) {
    c.shape[static_cast<std::size_t>(i)] = size_or_stride(bytes);
    c.strides[static_cast<std::size_t>(i)] = size_or_stride(bytes);
  }
  t.shape = c.shape.data();
  t.strides = bytes.yes() ? c.strides.data() : nullptr;
  c.managed.manager_ctx = &c;
  c.managed.deleter = [](DLManagedTensor* self) { static_cast<Capsule*>(self->manager_ctx)->deleted = true; };
}

// Every element within the memory, by the capsule's own fields.
bool stays_inside(const Capsule& c) {
  const DLTensor& t = c.managed.dl_tensor;
  const Wide element = t.dtype.bits / 8;
  Wide low = static_cast<Wide>(c.memory.size() / 2) + static_cast<Wide>(t.byte_offset), high = low + element,
       step = element;
  for (int i = t.ndim - 1; i >= 0; --i) {
    const auto n = static_cast<std::size_t>(i);
    if (c.shape[n] == 0) return true;
    const Wide reach = (static_cast<Wide>(c.shape[n]) - 1) * (t.strides ? c.strides[n] * element : step);
    reach < 0 ? low += reach : high += reach;
    step *= c.shape[n];
  }
  return low >= 0 && high <= static_cast<Wide>(c.memory.size());
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn::fuzz;
  Bytes bytes(data, size);
  Capsule capsule;
  fill(bytes, capsule);
  bool taken = false;
  try {
    const attn::Tensor tensor = attn::from_dlpack(&capsule.managed);
    taken = true;
    if (stays_inside(capsule) && tensor.numel() < 100000) {
      touch(tensor);
      DLManagedTensor* again = attn::to_dlpack(tensor);
      again->deleter(again);
    }
  } catch (const attn::Error&) {
  }
  if (taken != capsule.deleted) std::abort();  // ours to give back when it was taken, the caller's when not
  return 0;
}
