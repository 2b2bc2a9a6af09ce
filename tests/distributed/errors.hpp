// Squared errors against the definition in float64, of one process and of ranks.
#pragma once

#include "core/testing.hpp"
#include "oracle/expect.hpp"

namespace attn::test {

struct Errors {
  double one = 0, ranks = 0;

  void add(const Tensor& of_one, const Tensor& of_ranks, const oracle::Numbers& numbers) {
    const std::vector<double> a = values(of_one), b = values(of_ranks);
    for (std::size_t i = 0; i < a.size(); ++i) {
      one += (a[i] - numbers[i].value) * (a[i] - numbers[i].value);
      ranks += (b[i] - numbers[i].value) * (b[i] - numbers[i].value);
    }
  }
};

}  // namespace attn::test
