// DLPack's C exchange API (DLPack 1.3; PyTorch from 2.10 on): tensors taken and made by one function call each, where
// capsules take microseconds.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "attn/tensor.hpp"

namespace attn::python {

// Objects of `type` are exchanged from now on, by the functions in its capsule; false for a version not known here.
bool use_exchange(nanobind::handle type, nanobind::handle capsule);
bool exchanges(nanobind::handle object) noexcept;

// The memory of such an object, valid as long as that is. Throws nanobind::python_error.
nanobind::dlpack::dltensor borrow(nanobind::handle object);
// Such an object on the tensor's memory; null where none are exchanged.
nanobind::object exchanged(const Tensor& tensor, nanobind::dlpack::dtype dtype);

}  // namespace attn::python
