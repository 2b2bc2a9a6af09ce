#include "exchange.hpp"

#include <memory>

namespace attn::python {
namespace {

namespace nb = nanobind;

struct Version {
  std::uint32_t major, minor;
};

// DLManagedTensorVersioned
struct Managed {
  Version version{1, 0};
  void* context = nullptr;
  void (*deleter)(Managed*) = nullptr;
  std::uint64_t flags = 0;
  nb::dlpack::dltensor tensor;
};

// DLPackExchangeAPI
struct Exchange {
  Version version;
  Exchange* previous;
  void* allocate;
  int (*take)(void* object, Managed** tensor);
  int (*make)(Managed* tensor, void** object);
  int (*borrow)(void* object, nb::dlpack::dltensor* tensor);
  void* stream;
};

// Both live as long as the interpreter. The holder of the GIL reads and writes them.
const Exchange* exchange = nullptr;
PyTypeObject* exchanged_type = nullptr;

// A tensor together with what tells of it; deleted by whom it was given to.
struct Exported {
  explicit Exported(const Tensor& t) : tensor(t), shape(t.shape()), strides(t.strides()) {}

  Tensor tensor;
  Shape shape, strides;
  Managed managed;
};

}  // namespace

bool use_exchange(nb::handle type, nb::handle capsule) {
  const auto* found = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (found == nullptr) throw nb::python_error();
  if (found->version.major != 1 || found->borrow == nullptr) return false;
  exchange = found;
  exchanged_type = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
  return true;
}

bool exchanges(nb::handle object) noexcept {
  return exchange != nullptr && PyType_IsSubtype(Py_TYPE(object.ptr()), exchanged_type) != 0;
}

nb::dlpack::dltensor borrow(nb::handle object) {
  nb::dlpack::dltensor tensor;
  if (exchange->borrow(object.ptr(), &tensor) != 0) throw nb::python_error();
  return tensor;
}

nb::object exchanged(const Tensor& tensor, nb::dlpack::dtype dtype) {
  if (exchange == nullptr) return {};
  auto exported = std::make_unique<Exported>(tensor);
  Managed& managed = exported->managed;
  managed.context = exported.get();
  managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->context); };
  managed.tensor.data = exported->tensor.raw();
  managed.tensor.device = {nb::device::cpu::value, 0};
  managed.tensor.ndim = static_cast<std::int32_t>(tensor.rank());
  managed.tensor.dtype = dtype;
  managed.tensor.shape = exported->shape.begin();
  managed.tensor.strides = exported->strides.begin();
  void* object = nullptr;
  if (exchange->make(&managed, &object) != 0) throw nb::python_error();
  exported.release();  // the object's now
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace attn::python
