// Looks for what can be wrong with attention weights.
#pragma once

#include <string>
#include <vector>

#include "report/html/blocks.hpp"

namespace attn::report_page {

struct Check {
  std::string name;  // "each row of weights sums to 1"
  bool holds = true;
  double value = 0;  // what was measured
  double bound = 0;  // what rounding allows there
  std::string told;  // both in words
};

// Numbers beside what they must be: of all, the one that is nearest to the bound of its rounding, or furthest past it.
struct Comparison {
  std::int64_t count = 0;
  double share = -1, value = 0, bound = 0;  // of the worst; share: of its bound

  void add(double found, double exact, double allowed);
  void add(const Comparison& other);
};

// Holds what was found in one head, or in many.
struct HeadHealth {
  Comparison sums, scores, weights, contexts;
  std::int64_t empty = 0, nan = 0, inf = 0;  // rows without keys; numbers
  double leak = 0;                           // the largest weight of a masked key
  bool masked = false;

  void add(const HeadHealth& other);
};

// Checks of layers that come one after the other.
class Health {
 public:
  void add(const Block& block);
  void add_kept(const Comparison& kept) { kept_.add(kept); }  // of numbers that the page has in 8 bits
  std::vector<Check> checks() const;

 private:
  std::string rounding_allows() const;
  Check row_sums() const;
  Check finite() const;
  Check leak() const;

  HeadHealth sum_;
  Comparison kept_;
  bool any_ = false, sinks_ = false;
  DType dtype_ = DType::f32;
};

// Rows that sum to 1, NaN and infinities, weight on masked keys, and scores, weights and contexts by float64 from the
// steps before them. The bounds follow from the dtype in which each step was recorded and from the sizes of the terms,
// so that a check which fails means a fault. A check that needs a step which the trace lacks is left out.
std::vector<Check> health(const Blocks& blocks);

}  // namespace attn::report_page
