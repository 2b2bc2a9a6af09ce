// Every number that the five notebooks print, computed by the library and compared with the printed digits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attn/modules.hpp"

namespace attn::check {

// These are set as the notebooks do; change one to see which printed numbers hang on it.
struct Recipe {
  std::optional<LayerOrder> layer_order;  // of every module, instead of each notebook's own
  std::optional<DropoutFlavour> rng;      // of every dropout, instead of each notebook's own
  bool mask = true;                       // false: no causal mask anywhere
};

struct Comparison {
  std::string notebook;         // "002"
  std::string what;             // "causal: context_vecs"
  std::size_t numbers = 0;      // how many were compared
  double worst_difference = 0;  // largest |computed - printed|
  bool ok = false;              // every number rounds to the printed digits
  std::string detail;           // of the first that does not
};

std::vector<Comparison> run(const Recipe& recipe);

}  // namespace attn::check
