// attn._attn: the library, for the Python files beside it.
#include <nanobind/nanobind.h>

#include <cstring>
#include <string>

#include "attn/error.hpp"
#include "attn/version.hpp"
#include "bind.hpp"

namespace nb = nanobind;

namespace {

// What the library says of C++'s functions, said of Python's.
std::string in_pythons_words(std::string text) {
  constexpr const char* said[][2] = {
      {"convert with to(dtype)", "convert with .astype(np.float32), or .to(torch.float32)"},
      {"convert it to float32", "convert it with .astype(np.float32), or .float() in PyTorch"}};
  for (const auto& [cpp, python] : said) {
    if (const std::size_t at = text.find(cpp); at != std::string::npos) text.replace(at, std::strlen(cpp), python);
  }
  return text;
}

// The library's message, by kind: TypeError for a dtype, OSError for a file, else ValueError.
void translate(const std::exception_ptr& caught, void*) {
  try {
    std::rethrow_exception(caught);
  } catch (const attn::Error& error) {
    using Kind = attn::Error::Kind;
    PyObject* type = error.kind() == Kind::dtype  ? PyExc_TypeError
                     : error.kind() == Kind::file ? PyExc_OSError
                                                  : PyExc_ValueError;
    PyErr_SetString(type, in_pythons_words(error.what()).c_str());
  }
}

}  // namespace

NB_MODULE(_attn, m) {
  m.attr("__version__") = ATTN_VERSION;
  nb::register_exception_translator(translate);
  m.def("set_leak_warnings", &nb::set_leak_warnings, nb::arg("on"), "Whether objects alive at the end are told of.");
  attn::python::bind_options(m);
  attn::python::bind_attention(m);
  attn::python::bind_cache(m);
  attn::python::bind_random(m);
  attn::python::bind_modules(m);
  attn::python::bind_rotary(m);
  attn::python::bind_pictures(m);
  attn::python::bind_steps(m);
}
