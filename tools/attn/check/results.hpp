// Where a notebook's computed values go, and how they meet the printed ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "check/check.hpp"

namespace attn::check {

class Results {
 public:
  explicit Results(const Recipe& recipe) : recipe_(recipe) {}

  void add(std::string what, const Tensor& value) { values_.emplace_back(std::move(what), value); }
  void add(std::string what, double value) { add(std::move(what), Tensor::full({}, value, DType::f64)); }
  void add_shape(std::string what, const Tensor& tensor);  // what tensor.shape prints
  const std::vector<std::pair<std::string, Tensor>>& values() const { return values_; }

  LayerOrder order(LayerOrder notebooks) const { return recipe_.layer_order.value_or(notebooks); }
  DropoutFlavour flavour(DropoutFlavour notebooks) const { return recipe_.rng.value_or(notebooks); }
  bool masked() const { return recipe_.mask; }
  // tril(ones), or all ones under a recipe without masks.
  Tensor tril(std::int64_t tokens) const {
    return recipe_.mask ? tril_ones(tokens, tokens) : Tensor::ones({tokens, tokens});
  }
  Tensor keep(std::int64_t tokens) const { return tril(tokens).to(DType::boolean); }

 private:
  Recipe recipe_;
  std::vector<std::pair<std::string, Tensor>> values_;
};

void notebook_000(Results& out);
void notebook_001(Results& out);
void notebook_002(Results& out);
void notebook_003(Results& out);
void notebook_004(Results& out);

}  // namespace attn::check
