// PyTorch's random streams.
#include "attn/random.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "random.hpp"

namespace attn::python {
namespace {

Shape shape_of(const std::vector<std::int64_t>& sizes) { return Shape(std::span(sizes)); }

template <class Draw>
nb::object drawn(Stream& stream, const Draw& draw) {
  Tensor result;
  {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(stream.mutex);
    result = draw(stream.generator);
  }
  return give(result, Framework::numpy);
}

}  // namespace

void bind_random(nb::module_& m) {
  using Sizes = std::vector<std::int64_t>;
  nb::class_<Stream>(m, "Stream", "One mt19937 stream, drawn as PyTorch draws.")
      .def(
          "__init__",
          [](Stream* self, std::uint64_t seed, std::string_view dropout) {
            new (self) Stream(seed, dropout_flavour(dropout));
          },
          nb::arg("seed"), nb::arg("dropout"))
      .def(
          "manual_seed",
          [](Stream& self, std::uint64_t seed) {
            const std::lock_guard lock(self.mutex);
            self.generator.manual_seed(seed);
          },
          nb::arg("seed"))
      .def_prop_ro("dropout", [](const Stream& self) { return name(self.generator.flavour()); })
      .def("next_u64",
           [](Stream& self) {
             const std::lock_guard lock(self.mutex);
             return self.generator.next_u64();
           })
      .def(
          "rand",
          [](Stream& self, const Sizes& shape) {
            return drawn(self, [&](Generator& g) { return g.rand(shape_of(shape)); });
          },
          nb::arg("shape"))
      .def(
          "randn",
          [](Stream& self, const Sizes& shape) {
            return drawn(self, [&](Generator& g) { return g.randn(shape_of(shape)); });
          },
          nb::arg("shape"))
      .def(
          "randint",
          [](Stream& self, std::int64_t low, std::int64_t high, const Sizes& shape) {
            return drawn(self, [&](Generator& g) { return g.randint(low, high, shape_of(shape)); });
          },
          nb::arg("low"), nb::arg("high"), nb::arg("shape"))
      .def(
          "dropout_keep",
          [](Stream& self, const Sizes& shape, double p) {
            return drawn(self, [&](Generator& g) { return g.dropout_keep(shape_of(shape), p); });
          },
          nb::arg("shape"), nb::arg("p"));
}

}  // namespace attn::python
