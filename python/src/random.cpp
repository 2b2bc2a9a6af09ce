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
#include "values.hpp"

namespace attn::python {
namespace {

Shape shape_of(nb::handle sizes, const char* op) {
  return Shape(std::span<const std::int64_t>(plain<std::vector<std::int64_t>>(sizes, op, "sizes")));
}

template <class Draw>
nb::object drawn(Stream& stream, const Draw& draw) {
  const Tensor result = without_gil([&] {
    const std::lock_guard lock(stream.mutex);
    return draw(stream.generator);
  });
  return give(result, Framework::numpy);
}

nb::object rand(Stream& self, nb::handle shape) {
  return drawn(self, [sizes = shape_of(shape, "rand")](Generator& g) { return g.rand(sizes); });
}

nb::object randn(Stream& self, nb::handle shape) {
  return drawn(self, [sizes = shape_of(shape, "randn")](Generator& g) { return g.randn(sizes); });
}

}  // namespace

void bind_random(nb::module_& m) {
  nb::class_<Stream>(m, "Stream", "One mt19937 stream, drawn as PyTorch draws.")
      .def(
          "__init__",
          [](Stream* self, std::uint64_t seed, nb::handle dropout) {
            new (self) Stream(seed, dropout_flavour(plain<std::string_view>(dropout, "Generator", "dropout")));
          },
          nb::arg("seed"), nb::arg("dropout").none())
      .def(
          "manual_seed",
          [](Stream& self, std::uint64_t seed) {
            const std::lock_guard lock(self.mutex);
            self.generator.manual_seed(seed);
          },
          nb::arg("seed"))
      .def("state",
           [](Stream& self) {
             const std::lock_guard lock(self.mutex);
             return give(self.generator.state(), Framework::numpy);
           })
      .def(
          "set_state",
          [](Stream& self, nb::handle state) {
            const Array from = read(state, "Generator", "a state");
            const std::lock_guard lock(self.mutex);
            self.generator.set_state(from.tensor);
          },
          nb::arg("state"))
      .def_prop_ro("dropout", [](const Stream& self) { return name(self.generator.flavour()); })
      .def("next_u64",
           [](Stream& self) {
             const std::lock_guard lock(self.mutex);
             return self.generator.next_u64();
           })
      .def("rand", &rand, nb::arg("shape").none())
      .def("randn", &randn, nb::arg("shape").none())
      .def(
          "randint",
          [](Stream& self, nb::handle low, nb::handle high, nb::handle shape) {
            const auto from = plain<std::int64_t>(low, "randint", "low"),
                       to = plain<std::int64_t>(high, "randint", "high");
            return drawn(self,
                         [&, sizes = shape_of(shape, "randint")](Generator& g) { return g.randint(from, to, sizes); });
          },
          nb::arg("low").none(), nb::arg("high").none(), nb::arg("shape").none())
      .def(
          "dropout_keep",
          [](Stream& self, nb::handle shape, nb::handle p) {
            const auto share = plain<double>(p, "dropout_keep", "p");
            return drawn(self, [&, sizes = shape_of(shape, "dropout_keep")](Generator& g) {
              return g.dropout_keep(sizes, share);
            });
          },
          nb::arg("shape").none(), nb::arg("p").none());
}

}  // namespace attn::python
