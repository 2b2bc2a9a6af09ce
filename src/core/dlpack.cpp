#include "attn/dlpack.hpp"

#include <dlpack/dlpack.h>

#include <array>
#include <memory>
#include <string>

#include "attn/error.hpp"

namespace attn {
namespace {

// A later DLPack calls it kDLBool; 0.6 has no name for it.
constexpr std::uint8_t kBool = 6;

struct Code {
  DType dtype;
  std::uint8_t code, bits;
};
constexpr std::array<Code, 9> kCodes{{{DType::f64, kDLFloat, 64},
                                      {DType::f32, kDLFloat, 32},
                                      {DType::f16, kDLFloat, 16},
                                      {DType::bf16, kDLBfloat, 16},
                                      {DType::i64, kDLInt, 64},
                                      {DType::i32, kDLInt, 32},
                                      {DType::i8, kDLInt, 8},
                                      {DType::u8, kDLUInt, 8},
                                      {DType::boolean, kBool, 8}}};

// A DLManagedTensor that we hand out points to this.
struct Export {
  Tensor tensor;
  Shape shape, strides;
  DLManagedTensor managed{};
};

// This keeps a DLManagedTensor that we were given alive.
struct Import {
  DLManagedTensor* managed = nullptr;

  Import() = default;
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;
  ~Import() {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  }
};

[[noreturn]] void fail(Error::Kind kind, std::string_view expected, std::string_view found,
                       std::string_view hint = {}) {
  throw Error(kind, "from_dlpack", expected, found, hint);
}

DType dtype_from(const DLDataType& type) {
  for (const Code& code : kCodes) {
    if (type.lanes == 1 && type.code == code.code && type.bits == code.bits) return code.dtype;
  }
  fail(Error::Kind::dtype, "one lane of float64, float32, float16, bfloat16, int64, int32, int8, uint8 or bool",
       "type code " + std::to_string(type.code) + ", " + std::to_string(type.bits) + " bits, " +
           std::to_string(type.lanes) + " lanes");
}

Shape shape_from(const DLTensor& source) {
  if (source.ndim < 0 || source.ndim > static_cast<int>(Shape::max_rank)) {
    fail(Error::Kind::shape, "0 to 8 dimensions", std::to_string(source.ndim));
  }
  const auto rank = static_cast<std::size_t>(source.ndim);
  if (rank != 0 && source.shape == nullptr) fail(Error::Kind::shape, "a shape", "a null pointer");
  return Shape(std::span<const std::int64_t>(source.shape, rank));
}

// Strides whose farthest element lies less than 2^63 bytes away, so that no address computed later overflows.
Shape strides_from(const DLTensor& source, const Shape& shape, DType dtype) {
  auto reach = static_cast<std::int64_t>(size_of(dtype));
  Shape strides = shape;
  std::int64_t step = 1;
  bool overflow = false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const std::int64_t stride = source.strides != nullptr ? source.strides[i] : step;
    strides[i] = stride;
    const std::int64_t last = shape[i] > 0 ? shape[i] - 1 : 0;
    std::int64_t distance = 0;
    overflow = overflow || __builtin_mul_overflow(last, stride, &distance) ||
               __builtin_mul_overflow(distance, static_cast<std::int64_t>(size_of(dtype)), &distance) ||
               distance == INT64_MIN || __builtin_add_overflow(reach, distance < 0 ? -distance : distance, &reach) ||
               __builtin_mul_overflow(step, last + 1, &step);
  }
  if (overflow) fail(Error::Kind::shape, "a tensor of fewer than 2^63 bytes", "shape " + shape.str());
  return strides;
}

// Tensors without elements may come without memory; a Tensor needs an address to be defined.
void* address_of(const DLTensor& source, std::int64_t numel, DType dtype) {
  alignas(64) static std::byte nothing[64];
  if (numel == 0) return nothing;
  if (source.data == nullptr) fail(Error::Kind::argument, "data", "a null pointer");
  std::byte* const first = static_cast<std::byte*>(source.data) + source.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(first) % size_of(dtype) != 0) {
    fail(Error::Kind::argument, "elements aligned to their size", "an address between", "export a copy");
  }
  return first;
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& tensor) {
  if (!tensor.defined()) {
    throw Error(Error::Kind::argument, "to_dlpack", "a tensor with elements", "an undefined tensor");
  }
  auto holder = std::make_unique<Export>(Export{tensor, tensor.shape(), tensor.strides()});
  const Code& code = kCodes[static_cast<std::size_t>(tensor.dtype())];
  DLTensor& out = holder->managed.dl_tensor;
  out.data = tensor.raw();
  out.device = {kDLCPU, 0};
  out.ndim = static_cast<int>(tensor.rank());
  out.dtype = {code.code, code.bits, 1};
  out.shape = holder->shape.begin();
  out.strides = holder->strides.begin();
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Export*>(self->manager_ctx); };
  return &holder.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) fail(Error::Kind::argument, "a DLManagedTensor", "a null pointer");
  const DLTensor& source = managed->dl_tensor;
  if (source.device.device_type != kDLCPU) {
    fail(Error::Kind::argument, "memory of the CPU", "device type " + std::to_string(source.device.device_type),
         "copy the tensor to the CPU first");
  }
  const DType dtype = dtype_from(source.dtype);
  const Shape shape = shape_from(source);
  const std::int64_t numel = shape.numel();
  const Shape strides = strides_from(source, shape, dtype);
  const auto owner = std::make_shared<Import>();
  Tensor view = Tensor::from_blob(address_of(source, numel, dtype), shape, strides, dtype, owner);
  owner->managed = managed;  // last, as nothing throws any more
  return view;
}

}  // namespace attn
