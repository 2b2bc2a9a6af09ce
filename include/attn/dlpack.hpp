// Tensors to and from other frameworks without a copy, by the DLPack protocol
// (https://dmlc.github.io/dlpack). Include <dlpack/dlpack.h> for the struct itself.
#pragma once

#include "attn/tensor.hpp"

struct DLManagedTensor;

namespace attn {

// Shares the tensor's storage; the receiver calls the deleter once.
DLManagedTensor* to_dlpack(const Tensor& tensor);
// Takes ownership of `managed` (CPU memory only): its deleter is called when the last view is gone.
// When it throws (device, dtype, rank) the caller still owns `managed`.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace attn
