// The key-value cache; Python's cache.py gives it its signatures.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/kv_cache.hpp"
#include "bind.hpp"
#include "options.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "KVCache";

DType stored_dtype(std::string_view wanted) {
  if (const auto found = dtype_named(wanted)) return *found;  // whose cache says whether it stores that
  throw Error(Error::Kind::dtype, kOp, "storage in float32, bfloat16, float16 or int8", std::string(wanted));
}

// A cache that threads may share: any number read it, or one changes it. Nobody waits for the GIL while holding it.
class Cache {
 public:
  explicit Cache(KVCache&& cache) : cache_(std::move(cache)) {}

  template <class Work>
  auto read(const Work& work) {
    const nb::gil_scoped_release released;
    const std::shared_lock lock(mutex_);
    return work(std::as_const(cache_));
  }

  template <class Work>
  void change(const Work& work) {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    work(cache_);
  }

 private:
  KVCache cache_;
  std::shared_mutex mutex_;
};

void append(Cache& self, nb::handle key, nb::handle value, nb::handle to, int framework) {
  const auto item = optional_plain<std::int64_t>(to, kOp, "item");
  const auto from = static_cast<Framework>(framework);
  const Array k = read(key, kOp, "key", from), v = read(value, kOp, "value", from);
  self.change(
      [&](KVCache& cache) { item ? cache.append(*item, k.tensor, v.tensor) : cache.append(k.tensor, v.tensor); });
}

nb::tuple attend(Cache& self, nb::handle query, nb::handle attn_mask, nb::handle sinks, nb::handle relative_bias,
                 const Options& options, nb::handle return_lse, nb::handle return_weights, int framework) {
  const auto with = static_cast<Framework>(framework);
  const Array q = read(query, kOp, "query", with);
  const bool lse = plain<bool>(return_lse, kOp, "return_lse");
  Options o = with_inputs(options, attn_mask, sinks, relative_bias, with);
  o.take_return_weights(return_weights, with);
  const AttentionResult result = self.read([&](const KVCache& cache) { return attention(q.tensor, cache, o.options); });
  o.check_score_function();
  return nb::make_tuple(give(result.output, with), lse ? give(result.lse, with) : nb::none(),
                        give(result.weights, with));
}

}  // namespace

void bind_cache(nb::module_& m) {
  nb::class_<Cache>(m, "Cache", "Keys and values of the tokens so far.")
      .def(
          "__init__",
          [](Cache* self, nb::handle batch, nb::handle kv_heads, nb::handle head_dim, nb::handle value_dim,
             std::string_view dtype, nb::handle page_size, nb::handle capacity) {
            const auto integer = [](nb::handle value, const char* what) {
              return plain<std::int64_t>(value, kOp, what);
            };
            new (self)
                Cache(KVCache({integer(batch, "batch"), integer(kv_heads, "kv_heads"), integer(head_dim, "head_dim"),
                               integer(value_dim, "value_dim"), stored_dtype(dtype), integer(page_size, "page_size"),
                               integer(capacity, "capacity")}));
          },
          nb::arg("batch").none(), nb::arg("kv_heads").none(), nb::arg("head_dim").none(), nb::arg("value_dim").none(),
          nb::arg("dtype"), nb::arg("page_size").none(), nb::arg("capacity").none())
      .def("append", &append, nb::arg("key").none(), nb::arg("value").none(), nb::arg("item").none(),
           nb::arg("framework"))
      .def("attend", &attend, nb::arg("query").none(), nb::arg("attn_mask").none(), nb::arg("sinks").none(),
           nb::arg("relative_bias").none(), nb::arg("options"), nb::arg("return_lse").none(),
           nb::arg("return_weights").none(), nb::arg("framework"))
      .def(
          "truncate",
          [](Cache& self, nb::handle length, nb::handle item) {
            const auto kept = plain<std::int64_t>(length, kOp, "length");
            const auto of = optional_plain<std::int64_t>(item, kOp, "item");
            self.change([&](KVCache& cache) { of ? cache.truncate(*of, kept) : cache.truncate(kept); });
          },
          nb::arg("length").none(), nb::arg("item").none())
      .def("lengths",
           [](Cache& self) {
             return give(self.read([](const KVCache& cache) { return cache.lengths(); }), Framework::numpy);
           })
      .def(
          "rows",
          [](Cache& self, nb::handle item) {
            const auto of = plain<std::int64_t>(item, kOp, "item");
            const auto [k, v] =
                self.read([&](const KVCache& cache) { return std::pair(cache.keys(of), cache.values(of)); });
            return nb::make_tuple(give(k, Framework::numpy), give(v, Framework::numpy));
          },
          nb::arg("item").none())
      .def("nbytes", [](Cache& self) { return self.read([](const KVCache& cache) { return cache.bytes(); }); })
      .def(
          "clone", [](Cache& self) { return new Cache(self.read([](const KVCache& cache) { return cache.clone(); })); },
          nb::rv_policy::take_ownership);
}

}  // namespace attn::python
