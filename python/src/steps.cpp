// The chapter's steps one by one, tensors as text, and words as vectors: for notebooks and tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "arrays.hpp"
#include "attn/print.hpp"
#include "attn/reference.hpp"
#include "attn/words.hpp"
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

namespace ref = reference;

// f(tensors…) on arrays, without the GIL.
template <class F, class... Handles>
nb::object apply(const char* op, const F& f, Handles... handles) {
  const auto call = [&](const auto&... arrays) {
    return give(without_gil([&] { return f(arrays.tensor...); }), Framework::numpy);
  };
  return call(read(handles, op, "an operand")...);
}

void bind_one(nb::module_& m, const char* name, Tensor (*f)(const Tensor&), const char* doc) {
  m.def(
      name, [name, f](nb::handle x) { return apply(name, f, x); }, nb::arg("x"), doc);
}

void bind_two(nb::module_& m, const char* name, Tensor (*f)(const Tensor&, const Tensor&), const char* doc) {
  m.def(
      name, [name, f](nb::handle a, nb::handle b) { return apply(name, f, a, b); }, nb::arg("a"), nb::arg("b"), doc);
}

}  // namespace

void bind_steps(nb::module_& m) {
  bind_two(m, "matmul", ref::matmul, "a (…, m, k) · b (…, k, n).");
  bind_two(m, "scores_by_loop", ref::scores_by_loop, "Scores of queries and keys, a product at a time.");
  bind_two(m, "scores", ref::scores, "Scores of queries (…, tq, d) and keys (…, tk, d): (…, tq, tk).");
  bind_two(m, "mask_fill", ref::mask_fill, "Scores, -inf where the boolean mask is False.");
  bind_two(m, "mask_zero", ref::mask_zero, "Weights, 0 where the boolean mask is False.");
  bind_two(m, "mask_renormalise", ref::mask_renormalise, "Weights, 0 where the mask is False; rows sum to 1 again.");
  bind_two(m, "weighted_sum", ref::weighted_sum, "Weights (…, tq, tk) · values (…, tk, dv).");
  bind_one(m, "normalise_by_sum", ref::normalise_by_sum, "x / Σx over the last dimension.");
  bind_one(m, "softmax_naive", ref::softmax_naive, "exp(x) / Σ exp(x): overflows where x is large.");
  bind_one(
      m, "softmax", [](const Tensor& x) { return ref::softmax(x); },
      "exp(x - max) / Σ over the last dimension; a row of -inf gives zeros.");
  m.def(
      "dropout",
      [](nb::handle weights, nb::handle keep, double p) {
        return apply(
            "dropout", [p](const Tensor& w, const Tensor& k) { return ref::dropout(w, k, p); }, weights, keep);
      },
      nb::arg("weights"), nb::arg("keep"), nb::arg("p"), "weights · keep / (1 - p).");
  m.def(
      "to_string", [](nb::handle x) { return to_string(read(x, "to_string", "x").tensor); }, nb::arg("x"),
      "The array as print(tensor) shows it in PyTorch.");
  m.attr("WORD_SIZE") = kWordSize;
  m.def(
      "split_words", [](nb::handle text) { return split_words(plain<std::string>(text, "split_words", "text")); },
      nb::arg("text").none());
  m.def(
      "embed_words",
      [](nb::handle words, nb::handle d_in) {
        const auto texts = plain<std::vector<std::string>>(words, "embed_words", "text as a string, or words");
        return give(embed_words(texts, plain<std::int64_t>(d_in, "embed_words", "d_in")), Framework::numpy);
      },
      nb::arg("words").none(), nb::arg("d_in").none());
}

}  // namespace attn::python
