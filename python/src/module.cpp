// attn._attn: the library, for the Python files beside it.
#include <nanobind/nanobind.h>

#include "attn/error.hpp"
#include "attn/version.hpp"
#include "bind.hpp"

namespace nb = nanobind;

namespace {

// The library's message, by kind: TypeError for a dtype, OSError for a file, else ValueError.
void translate(const std::exception_ptr& caught, void*) {
  try {
    std::rethrow_exception(caught);
  } catch (const attn::Error& error) {
    using Kind = attn::Error::Kind;
    PyObject* type = error.kind() == Kind::dtype  ? PyExc_TypeError
                     : error.kind() == Kind::file ? PyExc_OSError
                                                  : PyExc_ValueError;
    PyErr_SetString(type, error.what());
  }
}

}  // namespace

NB_MODULE(_attn, m) {
  m.attr("__version__") = ATTN_VERSION;
  nb::register_exception_translator(translate);
  attn::python::bind_options(m);
  attn::python::bind_attention(m);
  attn::python::bind_cache(m);
  attn::python::bind_random(m);
  attn::python::bind_modules(m);
  attn::python::bind_steps(m);
}
