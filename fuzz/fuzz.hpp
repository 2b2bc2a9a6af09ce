// Helpers of the fuzzers that parse their bytes, and then touch what came out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "attn/error.hpp"
#include "attn/io.hpp"

namespace attn::fuzz {

// Reads every element through the strides, so that a sanitizer sees a tensor that reaches past its storage.
inline void touch(const Tensor& tensor) { static_cast<void>(tensor.to(DType::f64).clone()); }
inline void touch(const io::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors.tensors) touch(tensor);
}

// Error is the one exception that hostile bytes may cause; any other, std::bad_alloc too, ends the fuzzer.
template <class Parse>
int run(const std::uint8_t* data, std::size_t size, Parse parse) {
  try {
    touch(parse(std::as_bytes(std::span(data, size))));
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace attn::fuzz
