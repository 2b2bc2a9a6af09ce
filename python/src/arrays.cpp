#include "arrays.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "attn/error.hpp"
#include "exchange.hpp"

namespace attn::python {
namespace {

using Kind = Error::Kind;

struct Code {
  DType dtype;
  nb::dlpack::dtype code;
};

constexpr Code code_of(DType dtype, nb::dlpack::dtype_code code, std::uint8_t bits) {
  return {dtype, {static_cast<std::uint8_t>(code), bits, 1}};
}

constexpr std::array<Code, 9> kCodes{
    code_of(DType::f64, nb::dlpack::dtype_code::Float, 64),  code_of(DType::f32, nb::dlpack::dtype_code::Float, 32),
    code_of(DType::f16, nb::dlpack::dtype_code::Float, 16),  code_of(DType::bf16, nb::dlpack::dtype_code::Bfloat, 16),
    code_of(DType::i64, nb::dlpack::dtype_code::Int, 64),    code_of(DType::i32, nb::dlpack::dtype_code::Int, 32),
    code_of(DType::i8, nb::dlpack::dtype_code::Int, 8),      code_of(DType::u8, nb::dlpack::dtype_code::UInt, 8),
    code_of(DType::boolean, nb::dlpack::dtype_code::Bool, 8)};

std::string text(nb::handle object) { return nb::str(object).c_str(); }

// Leaves out PyTorch's list of C++ functions after an error, whose lines may end in an escape.
std::string first_line(nb::handle error) {
  const std::string all = text(error);
  return all.substr(0, std::min(all.find('\n'), all.find("\\u000a")));
}

std::string described(nb::handle object) {
  std::string found = text(nb::type_name(object.type()));
  if (nb::hasattr(object, "dtype")) found += " of dtype " + text(object.attr("dtype"));
  return found;
}

// Returns what the array itself says against handing its memory out.
std::string reason(nb::handle object) {
  try {
    if (nb::hasattr(object, "__dlpack__")) object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    return first_line(error.value());
  }
  return {};
}

bool is_ndarray(nb::handle object) { return text(nb::type_name(object.type())) == "numpy.ndarray"; }

bool is_ml_bfloat16(nb::handle object) {
  return nb::hasattr(object, "dtype") && nb::hasattr(object, "view") && text(object.attr("dtype")) == "bfloat16";
}

std::string dtype_name(nb::dlpack::dtype dtype) {
  constexpr std::array<const char*, 7> kNames{"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string lanes = dtype.lanes == 1 ? "" : " in " + std::to_string(dtype.lanes) + " lanes";
  return (dtype.code < kNames.size() ? kNames[dtype.code] : "unknown") + std::to_string(dtype.bits) + lanes;
}

DType dtype_of_array(const nb::dlpack::dltensor& array, const char* op, const char* what) {
  for (const Code& code : kCodes) {
    if (array.dtype == code.code) return code.dtype;
  }
  constexpr const char* known =
      " of a dtype that attn reads: float64, float32, float16, bfloat16, int64, int32, int8, uint8 or bool";
  throw Error(Kind::dtype, op, what + std::string(known), dtype_name(array.dtype),
              "convert with .astype(dtype), or .to(dtype)");
}

nb::dlpack::dltensor told_by(const nb::ndarray<nb::ro>& array) {
  nb::dlpack::dltensor result;
  result.data = const_cast<void*>(array.data_handle());
  result.device = {array.device_type(), array.device_id()};
  result.ndim = static_cast<std::int32_t>(array.ndim());
  result.dtype = array.dtype();
  result.shape = const_cast<std::int64_t*>(array.shape_ptr());
  result.strides = const_cast<std::int64_t*>(array.stride_ptr());
  result.byte_offset = array.byte_offset();
  return result;
}

// All bits that some byte has, of dimensions `dim` and following.
std::uint8_t bits_of(const std::uint8_t* bytes, const Shape& shape, const Shape& strides, std::size_t dim) {
  if (dim == shape.size()) return *bytes;
  std::uint8_t result = 0;
  if (dim + 1 == shape.size() && strides[dim] == 1) {
    for (std::int64_t i = 0; i < shape[dim]; ++i) result |= bytes[i];
    return result;
  }
  for (std::int64_t i = 0; i < shape[dim]; ++i) result |= bits_of(bytes + i * strides[dim], shape, strides, dim + 1);
  return result;
}

// Every byte but 0 is true to NumPy and PyTorch; the library reads booleans, which are 0 or 1. A copy if others are
// there.
Tensor truth(const Tensor& array) {
  if (array.dtype() != DType::boolean) return array;
  Shape shape = array.shape();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (array.stride(static_cast<std::int64_t>(i)) == 0) shape[i] = 1;  // expanded: the same bytes again
  }
  const Tensor bytes = Tensor::from_blob(array.raw(), shape, array.strides(), DType::u8);
  if (bits_of(bytes.data<std::uint8_t>(), shape, array.strides(), 0) <= 1) return array;
  const Tensor all = bytes.contiguous();
  Tensor result = Tensor::empty(shape, DType::boolean);
  std::transform(all.data<std::uint8_t>(), all.data<std::uint8_t>() + all.numel(), result.data<bool>(),
                 [](std::uint8_t byte) { return byte != 0; });
  return result.expand(array.shape());
}

Tensor view(const nb::dlpack::dltensor& array, DType dtype, const char* op, const char* what) {
  if (array.device.device_type != nb::device::cpu::value) {
    throw Error(Kind::argument, op, std::string(what) + " in the CPU's memory",
                "device type " + std::to_string(array.device.device_type) + " of DLPack",
                "copy it to the CPU first, for instance with .cpu()");
  }
  const auto rank = static_cast<std::size_t>(array.ndim);
  if (rank > Shape::max_rank) {
    throw Error(Kind::shape, op, std::string(what) + " of at most 8 dimensions", std::to_string(rank));
  }
  const Shape shape{std::span<const std::int64_t>(array.shape, rank)};
  const Shape strides{std::span<const std::int64_t>(array.strides, rank)};
  // Without elements there may be no memory; a Tensor needs an address to be defined.
  alignas(64) static std::byte nothing[64];
  auto* data = static_cast<std::byte*>(array.data) + array.byte_offset;
  if (shape.numel() == 0) return Tensor::from_blob(nothing, shape, shape.contiguous_strides(), dtype);
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0) {
    throw Error(Kind::argument, op, std::string(what) + " with elements aligned to their size",
                "an address between two elements", "pass a copy");
  }
  return truth(Tensor::from_blob(data, shape, strides, dtype));
}

// A tensor of PyTorch; its negation is a bit that DLPack does not know of.
Array read_exchanged(nb::handle object, const char* op, const char* what) {
  Array result;
  try {
    const bool negated = nb::cast<bool>(object.attr("is_neg")());
    result.object = negated ? object.attr("resolve_neg")() : nb::borrow(object);
    const nb::dlpack::dltensor array = borrow(result.object);
    result.tensor = view(array, dtype_of_array(array, op, what), op, what);
  } catch (nb::python_error& error) {
    throw Error(Kind::argument, op, std::string(what) + " as a dense tensor in the CPU's memory",
                text(object.attr("layout")) + " on " + text(object.attr("device")), first_line(error.value()));
  }
  return result;
}

// A tensor of PyTorch may say what its memory does not: that its numbers are negated, or that it is a rule without any.
nb::object with_its_own_numbers(nb::handle object, const char* op, const char* what) {
  if (object.is_none()) return nb::borrow(object);
  if (text(nb::type_name(object.type())) == "torch.nn.attention.bias.CausalBias") {
    throw Error(Kind::dtype, op, std::string(what) + " that holds its numbers", "torch.nn.attention.bias.CausalBias",
                "use is_causal and causal_alignment in its place");
  }
  const bool negated = nb::hasattr(object, "is_neg") && nb::cast<bool>(object.attr("is_neg")());
  return negated ? nb::object(object.attr("resolve_neg")()) : nb::borrow(object);
}

// An object that is read in its place: of a class with __dlpack__ its capsule, which is taken once; of one that has
// only a buffer, such as those of ctypes, a memoryview, which always has strides.
nb::object handed_out(nb::object object) {
  if (nb::hasattr(object, "__array_interface__") || nb::hasattr(object, "is_neg")) return object;  // NumPy's, PyTorch's
  if (!nb::hasattr(object, "__dlpack__")) {
    if (PyObject_CheckBuffer(object.ptr()) == 0) return object;
    PyObject* const memory = PyMemoryView_FromObject(object.ptr());
    if (memory == nullptr) throw nb::python_error();
    return nb::steal(memory);
  }
  try {
    nb::object capsule = object.attr("__dlpack__")();
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) return capsule;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // KeyboardInterrupt
  }
  return object;
}

}  // namespace

Array read(nb::handle given, const char* op, const char* what, Framework from) {
  if (from == Framework::torch && exchanges(given)) return read_exchanged(given, op, what);
  nb::object object = with_its_own_numbers(given, op, what);
  Array result;
  if (!is_ndarray(object) && nb::hasattr(object, "harden_mask")) {
    throw Error(Kind::dtype, op, std::string(what) + " without a mask of its own", "numpy.ma.MaskedArray",
                "pass its .data or .filled(0); attention takes a mask as attn_mask");
  }
  object = handed_out(object);
  if (!object.is_none() && nb::try_cast(object, result.keep, false)) {
    const nb::dlpack::dltensor array = told_by(result.keep);
    result.tensor = view(array, dtype_of_array(array, op, what), op, what);
    return result;
  }
  PyErr_Clear();
  if (is_ml_bfloat16(object) && nb::try_cast(object.attr("view")("uint16"), result.keep, false)) {
    result.tensor = view(told_by(result.keep), DType::bf16, op, what);
    return result;
  }
  throw Error(Kind::dtype, op, std::string(what) + " as an array of NumPy, PyTorch or JAX", described(given),
              reason(given));
}

Array read_optional(nb::handle object, const char* op, const char* what, Framework from) {
  return object.is_none() ? Array{} : read(object, op, what, from);
}

namespace {

template <class... Kind>
nb::object export_as(const Tensor& tensor, DType dtype) {
  std::vector<std::size_t> shape;
  for (const std::int64_t size : tensor.shape()) shape.push_back(static_cast<std::size_t>(size));
  const nb::capsule owner(new Tensor(tensor), [](void* self) noexcept { delete static_cast<Tensor*>(self); });
  const nb::ndarray<Kind...> array(tensor.raw(), shape.size(), shape.data(), owner, tensor.strides().begin(),
                                   kCodes[static_cast<std::size_t>(dtype)].code, nb::device::cpu::value, 0);
  return nb::cast(array);
}

}  // namespace

nb::object give(const Tensor& tensor, Framework framework) {
  if (!tensor.defined()) return nb::none();
  // A bare capsule: from_dlpack asks an object with __dlpack__ five questions first.
  if (framework == Framework::torch) {
    if (nb::object object = exchanged(tensor, kCodes[static_cast<std::size_t>(tensor.dtype())].code)) return object;
    return nb::module_::import_("torch.utils.dlpack").attr("from_dlpack")(export_as<>(tensor, tensor.dtype()));
  }
  if (framework == Framework::dlpack) return export_as<nb::array_api>(tensor, tensor.dtype());
  if (tensor.dtype() != DType::bf16) return export_as<nb::numpy>(tensor, tensor.dtype());
  // NumPy's name for it comes with ml_dtypes.
  const nb::object bits = export_as<nb::numpy>(tensor, DType::f16);
  return bits.attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
}

}  // namespace attn::python
