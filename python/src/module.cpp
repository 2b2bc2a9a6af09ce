// attn._attn: the library, for the Python files beside it.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "attn/error.hpp"
#include "attn/version.hpp"
#include "bind.hpp"

namespace nb = nanobind;

namespace {

constexpr const char* kToFloat = "convert with .astype(np.float32), or .to(torch.float32)";

// The library names C++'s functions in its errors, and these are Python's in their place.
constexpr const char* kSaid[][2] = {
    {"convert with to(dtype)", kToFloat},
    {"convert it to float32", "convert it with .astype(np.float32), or .float() in PyTorch"},
    {"mask.bias of a floating dtype", "attn_mask of dtype bool, or of a floating dtype"},
    {"use Mask::boolean for a mask of true and false",
     "convert a mask of 0 and 1 with .astype(bool), or .to(torch.bool)"},
    {"convert with to(DType::boolean)", "convert with .astype(bool), or .to(torch.bool)"},
    {"mask.bias", "attn_mask"},
    {"mask.keep", "attn_mask"},
    {"mask.block_keep of dtype bool (true = allowed)", "block_mask of dtype bool (True takes part)"},
    {"mask.block_keep", "block_mask"},
    {"tq / block_query, tk / block_key", "tq / block_size, tk / block_size"},
    {"block_query and block_key", "block_size"},
    {"[attention] expected dropout in", "[attention] expected dropout_p in"},
    {"[attention]", "[scaled_dot_product_attention]"},
    {"[parse_rope_config]", "[rotary_frequencies]"},
    {"query_starts", "cu_seqlens_q"},
    {"key_starts", "cu_seqlens_k"},
    {"weight_rows", "return_weights"},
    {"add dimensions with unsqueeze(0)", "add dimensions with array[None]"},
    {"q, k and v of", "query, key and value of"},
    {"expected k and v of", "expected key and value of"},
    {"q of a floating", "query of a floating"},
    {"expected q of", "expected query of"},
    {"an output of q's dtype", "an output_dtype of query's"},
    {"expected q (", "expected query ("},
    {"expected k (", "expected key ("},
    {"found q (", "found query ("},
    {", k (", ", key ("},
    {", v (", ", value ("}};

std::string in_pythons_words(const attn::Error& error) {
  std::string text = error.what();
  for (const auto& [cpp, python] : kSaid) {
    for (std::size_t at = text.find(cpp); at != std::string::npos; at = text.find(cpp, at + std::strlen(python))) {
      text.replace(at, std::strlen(cpp), python);
    }
  }
  // Numbers of another kind, where the message has no advice of its own.
  const bool number = text.find("; found int") != std::string::npos || text.find("; found uint") != std::string::npos ||
                      text.find("; found bool") != std::string::npos;
  const std::size_t wanted = std::min(text.find("of float"), text.find("of a float"));
  if (error.kind() != attn::Error::Kind::dtype || !number || wanted > text.find("; found ")) return text;
  return text.find("; ", text.find("; found ") + 1) == std::string::npos ? text + "; " + kToFloat : text;
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
    PyErr_SetString(type, in_pythons_words(error).c_str());
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
  attn::python::bind_distributed(m);
  attn::python::bind_encoder(m);
  attn::python::bind_language_model(m);
  attn::python::bind_generation(m);
  attn::python::bind_random(m);
  attn::python::bind_recurrence(m);
  attn::python::bind_modules(m);
  attn::python::bind_rotary(m);
  attn::python::bind_pictures(m);
  attn::python::bind_steps(m);
}
