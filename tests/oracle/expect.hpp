// Compares what a call found with the oracle's numbers.
#pragma once

#include <gtest/gtest.h>

#include "oracle/convert.hpp"

namespace attn::test {

inline void expect_truth(const oracle::Problem& p, const AttentionResult& found) {
  const oracle::Result want = oracle::attention(p);
  EXPECT_EQ(oracle::difference(found.output, want.output, p.roundoff, "output"), "");
  EXPECT_EQ(oracle::difference(found.lse, want.lse, p.roundoff, "lse"), "");
}

// Compares gradients; those of bias, sinks and a table only where they are there.
inline void expect_truth(const oracle::Problem& p, const Tensor& d_output, const AttentionGradient& found) {
  const oracle::Gradient want = oracle::gradient(p, oracle::values(d_output));
  const auto expect = [&](const Tensor& t, const oracle::Numbers& numbers, const char* what) {
    EXPECT_EQ(oracle::difference(t, numbers, p.roundoff, what), "");
  };
  expect(found.q, want.q, "dq"), expect(found.k, want.k, "dk"), expect(found.v, want.v, "dv");
  if (found.bias.defined()) expect(found.bias, want.bias, "dbias");
  if (found.sinks.defined()) expect(found.sinks, want.sinks, "dsinks");
  if (found.relative_bias.defined()) expect(found.relative_bias, want.relative, "drelative");
}

}  // namespace attn::test
