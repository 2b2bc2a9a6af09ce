// Attention of a sequence that is cut among ranks, which a Python object connects: torch.distributed's groups, mpi4py's
// communicators, or whatever has the same methods (attn/_ranks.py).
#include "attn/distributed.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "bind.hpp"
#include "options.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

namespace dist = attn::distributed;

constexpr const char* kOp = "distributed attention";

// Python's send() and receive() give an object with wait(), and with cancel() for one that is given up.
class UnderWay : public dist::Request::State {
 public:
  explicit UnderWay(nb::object request) : request_(std::move(request)) {}
  UnderWay(const UnderWay&) = delete;

  ~UnderWay() override {
    const nb::gil_scoped_acquire held;
    try {
      if (request_ && nb::hasattr(request_, "cancel")) request_.attr("cancel")();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a message that is given up");
    }
    request_.reset();
  }

  void wait() override {
    const nb::gil_scoped_acquire held;
    request_.attr("wait")();
    request_.reset();
  }

 private:
  nb::object request_;
};

// The caller has released the GIL; each call takes it for as long as Python runs.
class PythonTransport : public dist::Transport {
 public:
  explicit PythonTransport(nb::handle ranks)
      : ranks_(nb::borrow(ranks)),
        progress_(nb::getattr(ranks, "progress", nb::none())),
        rank_(plain<int>(ranks.attr("rank"), kOp, "the group's rank")),
        size_(plain<int>(ranks.attr("size"), kOp, "the group's size")) {}
  PythonTransport(const PythonTransport&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  dist::Request send(int to, dist::Bytes message, int tag) override {
    return start("send", to, const_cast<std::byte*>(message.data()), message.size(), tag);
  }
  dist::Request receive(int from, dist::Room message, int tag) override {
    return start("receive", from, message.data(), message.size(), tag);
  }

  void progress() override {
    if (progress_.is_none()) return;
    const nb::gil_scoped_acquire held;
    progress_();
  }

 private:
  // Both ranks know of an empty message.
  dist::Request start(const char* method, int other, std::byte* data, std::size_t size, int tag) {
    if (size == 0) return {};
    const nb::gil_scoped_acquire held;
    constexpr int kWrite = 0x200;  // PyBUF_WRITE, which the stable ABI leaves out
    const nb::object view =
        nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(data), static_cast<Py_ssize_t>(size), kWrite));
    if (!view) throw nb::python_error();
    return dist::Request(std::make_unique<UnderWay>(ranks_.attr(method)(other, view, tag)));
  }

  nb::object ranks_, progress_;
  int rank_, size_;
};

using Runs = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;

dist::Layout layout_of(const Runs& runs) {
  if (runs.empty()) return {};
  std::vector<std::vector<dist::Run>> all;
  for (const auto& own : runs) {
    auto& to = all.emplace_back();
    for (const auto& [first, last] : own) to.push_back({first, last});
  }
  return dist::Layout(std::move(all));
}

Runs runs_of(const dist::Layout& layout) {
  Runs runs;
  for (int r = 0; r < layout.ranks(); ++r) {
    auto& own = runs.emplace_back();
    for (const dist::Run& run : layout.runs(r)) own.emplace_back(run.first, run.last);
  }
  return runs;
}

// All ranks are told of what one of them cannot read; it throws its own error.
template <class Read>
auto read_or_refuse(PythonTransport& transport, Read&& read_all) {
  try {
    return read_all();
  } catch (const std::exception& error) {  // of Python's, too
    const std::string why = error.what();
    const nb::gil_scoped_release released;
    try {
      dist::refuse(transport, why);
    } catch (const Error&) {  // its own
    }
    throw;
  }
}

// One rank gives this; where it cannot be read, all of them are told.
struct Given {
  Inputs in;
  dist::Options options;
};

Given given(const nb::tuple& inputs, const Options& options, const std::string& scheme, const Runs& queries,
            const Runs& keys, Framework with) {
  Given all{take_inputs(inputs, options, kOp, with), {}};
  all.options.attention = all.in.options.options;
  all.options.scheme = dist::parse_scheme(scheme);
  all.options.queries = layout_of(queries), all.options.keys = layout_of(keys);
  return all;
}

nb::tuple forward(nb::handle ranks, const nb::tuple& inputs, const Options& options, const std::string& scheme,
                  const Runs& queries, const Runs& keys, bool decodes, bool followed, int framework) {
  const auto with = static_cast<Framework>(framework);
  PythonTransport transport(ranks);
  const Given all = read_or_refuse(transport, [&] {
    Given read_all = given(inputs, options, scheme, queries, keys, with);
    read_all.options.with_gradient = followed;
    return read_all;
  });
  const auto call = decodes ? dist::decode : dist::attention;
  const AttentionResult result =
      without_gil([&] { return call(transport, all.in.q.tensor, all.in.k.tensor, all.in.v.tensor, all.options); });
  all.in.options.check_score_function();
  return nb::make_tuple(give(result.output, with), give(result.lse, with));
}

nb::tuple backward(nb::handle ranks, nb::handle d_output, const nb::tuple& inputs, nb::handle output, nb::handle lse,
                   const Options& options, const std::string& scheme, const Runs& queries, const Runs& keys,
                   int framework) {
  const auto with = static_cast<Framework>(framework);
  PythonTransport transport(ranks);
  Array d, out, sums;
  const Given all = read_or_refuse(transport, [&] {
    Given read_all = given(inputs, options, scheme, queries, keys, with);
    read_all.options.attention.output_dtype.reset();  // gradients are of the inputs' dtype
    d = read(d_output, kOp, "the output's gradient", with);
    out = read(output, kOp, "output", with), sums = read(lse, kOp, "lse", with);
    return read_all;
  });
  const AttentionResult results{out.tensor, sums.tensor};
  const auto grad = without_gil([&] {
    return dist::attention_backward(transport, d.tensor, all.in.q.tensor, all.in.k.tensor, all.in.v.tensor, all.options,
                                    results);
  });
  all.in.options.check_score_function();
  return give_gradients(grad, with);
}

nb::tuple estimate(const Runs& queries, const Runs& keys, const std::vector<std::int64_t>& sizes, nb::handle dtype,
                   const Options& options, const std::string& scheme, double bytes_per_second, double latency,
                   double flops_per_second) {
  const auto element = optional_dtype(dtype, "estimate", "dtype");
  const dist::Problem problem{sizes.at(0),        sizes.at(1),    sizes.at(2),
                              sizes.at(3),        sizes.at(4),    element.value_or(DType::f32),
                              layout_of(queries), layout_of(keys)};
  dist::Options o;
  o.attention = options.options, o.scheme = dist::parse_scheme(scheme);
  o.costs = {bytes_per_second, latency, flops_per_second};
  const dist::Estimate e = dist::estimate(problem, o);
  return nb::make_tuple(std::string(dist::name(e.scheme)), e.seconds, e.bytes, e.messages, e.flops, e.reason);
}

}  // namespace

void bind_distributed(nb::module_& m) {
  m.def("distributed_forward", &forward, nb::arg("ranks"), nb::arg("inputs"), nb::arg("options"), nb::arg("scheme"),
        nb::arg("queries"), nb::arg("keys"), nb::arg("decodes"), nb::arg("followed"), nb::arg("framework"),
        "(output, lse) of this rank's rows; no runs are no layout; followed: whether a backward pass is.");
  m.def("distributed_backward", &backward, nb::arg("ranks"), nb::arg("d_output"), nb::arg("inputs"), nb::arg("output"),
        nb::arg("lse"), nb::arg("options"), nb::arg("scheme"), nb::arg("queries"), nb::arg("keys"),
        nb::arg("framework"), "As backward's, of this rank's rows.");
  m.def(
      "distributed_refuse",
      [](nb::handle ranks, const std::string& why) {
        PythonTransport transport(ranks);
        const nb::gil_scoped_release released;
        dist::refuse(transport, why);
      },
      nb::arg("ranks"), nb::arg("why"), "Takes part in the others' call by an error, which all of them raise.");
  m.def("distributed_estimate", &estimate, nb::arg("queries"), nb::arg("keys"), nb::arg("sizes"), nb::arg("dtype"),
        nb::arg("options"), nb::arg("scheme"), nb::arg("bytes_per_second"), nb::arg("latency"),
        nb::arg("flops_per_second"), "(scheme, seconds, bytes, messages, flops, reason) of the forward pass.");
  m.def(
      "even_layout", [](std::int64_t tokens, int ranks) { return runs_of(dist::Layout::even(tokens, ranks)); },
      nb::arg("tokens"), nb::arg("ranks"));
  m.def(
      "zigzag_layout", [](std::int64_t tokens, int ranks) { return runs_of(dist::Layout::zigzag(tokens, ranks)); },
      nb::arg("tokens"), nb::arg("ranks"));
  m.def(
      "checked_layout", [](const Runs& runs) { return runs_of(dist::Layout(layout_of(runs))); }, nb::arg("runs"),
      "The same runs without empty ones; an error unless they hold every position once.");
}

}  // namespace attn::python
