// Python's arrays as tensors, and back, without a copy: the buffer protocol and DLPack, by nanobind.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "attn/tensor.hpp"

namespace attn::python {

namespace nb = nanobind;

// Who calls, and gets the result.
enum class Framework { numpy, torch, dlpack };

// A view of a Python array, for as long as this lives. The holder of the GIL makes and destroys it.
struct Array {
  nb::object object;         // what is exchanged
  nb::ndarray<nb::ro> keep;  // what is not
  Tensor tensor;             // undefined for None
};

// NumPy, PyTorch, JAX, anything with __dlpack__ or the buffer protocol; NumPy's bfloat16 of ml_dtypes. `op` and
// `what` name it in errors: Error (dtype) for what is no array or has no dtype of ours, (argument) for another
// device's memory or elements not aligned to their size. From torch: its tensors though they require a gradient.
Array read(nb::handle object, const char* op, const char* what, Framework from = Framework::dlpack);
// The same, and undefined for None.
Array read_optional(nb::handle object, const char* op, const char* what, Framework from = Framework::dlpack);

// The tensor's memory as the framework's array; None for an undefined one. dlpack: an object with __dlpack__.
nb::object give(const Tensor& tensor, Framework framework);

}  // namespace attn::python
