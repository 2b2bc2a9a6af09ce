// Python's plain values, with errors in Python's words where nanobind would tell a C++ signature.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/error.hpp"

namespace attn::python {

namespace nb = nanobind;

template <class T>
constexpr std::string_view kind_of() {
  if constexpr (std::same_as<T, bool>) return "True or False";
  if constexpr (std::integral<T>) return "an integer";
  if constexpr (std::floating_point<T>) return "a number";
  if constexpr (std::same_as<T, std::string_view> || std::same_as<T, std::string>) return "a string";
  if constexpr (std::same_as<T, std::vector<std::string>>) return "a sequence of strings";
  return "a sequence of integers";
}

inline std::string type_of(nb::handle object) { return nb::str(nb::type_name(object.type())).c_str(); }

// "float", or of a list of what does not fit "list with float".
template <class T>
std::string found_of(nb::handle object) {
  if constexpr (requires { typename T::allocator_type; } && !std::same_as<T, std::string>) {
    if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
      for (const nb::handle item : object) {
        typename T::value_type value{};
        if (!nb::try_cast(item, value)) return type_of(object) + " with " + found_of<typename T::value_type>(item);
      }
    }
  }
  if (std::same_as<T, bool> && type_of(object) == "bool") return "numpy.bool; convert it with bool()";
  if (std::integral<T> && !std::same_as<T, bool> && type_of(object) == "int") return "an int of more than 64 bits";
  if (std::floating_point<T> && type_of(object) == "int") return "an int past the range of numbers";
  return type_of(object);
}

// A text's bytes. Halves of characters are Python's UnicodeEncodeError, which says where they came from.
inline std::string text_in(nb::handle text, const char* op, const char* what = "text") {
  if (!nb::isinstance<nb::str>(text)) throw Error(Error::Kind::dtype, op, "text as a string", type_of(text));
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) {
    const nb::python_error error;
    const std::string reason = std::string("[") + op + "] expected " + what + " of whole characters; found half of one";
    error.value().attr("reason") = nb::str(reason.c_str());
    throw error;
  }
  return {bytes, static_cast<std::size_t>(size)};
}

// Raises UnicodeEncodeError for strings, alone or in a list, that are none only for half a character.
template <class T>
void require_whole_characters(nb::handle object, const char* op, const char* what) {
  if constexpr (std::same_as<T, std::string>) {
    if (nb::isinstance<nb::str>(object)) text_in(object, op, what);
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object)) return;
    for (const nb::handle item : object) require_whole_characters<std::string>(item, op, what);
  }
}

// Throws Error (dtype) for what is no T: "[op] expected what as a number; found str".
template <class T>
T plain(nb::handle object, const char* op, const char* what) {
  T result{};
  // A tensor would be taken as its number, and its gradient would be lost.
  const bool followed = std::floating_point<T> && !PyFloat_Check(object.ptr()) &&
                        nb::hasattr(object, "requires_grad") && nb::cast<bool>(object.attr("requires_grad"));
  const bool is_flag = !std::same_as<T, bool> && PyBool_Check(object.ptr());  // which counts as 0 or 1 elsewhere
  if (!followed && !is_flag && nb::try_cast(object, result)) return result;
  PyErr_Clear();
  require_whole_characters<T>(object, op, what);
  throw Error(Error::Kind::dtype, op, std::string(what).append(" as ").append(kind_of<T>()), found_of<T>(object));
}

template <class T>
std::optional<T> optional_plain(nb::handle object, const char* op, const char* what) {
  if (object.is_none()) return std::nullopt;
  return plain<T>(object, op, what);
}

}  // namespace attn::python
