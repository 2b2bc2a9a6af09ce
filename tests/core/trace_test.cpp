#include "attn/trace.hpp"

#include "core/testing.hpp"

namespace attn::test {
namespace {

TEST(Trace, KeepsStepsInTheirOrder) {
  Trace trace;
  trace.record("scores", Tensor::of({1}));
  trace.record("weights", Tensor::of({2}));
  ASSERT_EQ(trace.steps().size(), 2u);
  EXPECT_EQ(trace.steps()[0].first, "scores");
  EXPECT_EQ(trace.steps()[1].first, "weights");
  EXPECT_EQ(trace["weights"].item(), 2);
  EXPECT_TRUE(trace.contains("scores"));
  EXPECT_FALSE(trace.contains("score"));
}

TEST(Trace, NothingAltersWhatWasRecorded) {
  Trace trace;
  const Tensor whole = Tensor::of({{1, 2}, {3, 4}}), row = whole.select(0, 1);
  trace.record("scores", whole);
  trace.record("weights", row);
  row.fill(0);
  EXPECT_EQ(values(trace["scores"]), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(values(trace["weights"]), (std::vector<double>{3, 4}));
  EXPECT_TRUE(trace["weights"].is_contiguous());
}

TEST(Trace, AnUnknownStepListsTheKnownOnes) {
  Trace trace;
  trace.record("scores", Tensor::of({1}));
  trace.record("weights", Tensor::of({2}));
  expect_error(Error::Kind::argument, {"scores, weights", "found masked"}, [&] { (void)trace["masked"]; });
}

TEST(Trace, RefusesWhatHoldsNothing) {
  Trace trace;
  expect_error(Error::Kind::argument, {"a tensor for queries"}, [&] { trace.record("queries", {}); });
  Trace editor({.watches = {}, .edit = [](const std::string&, const Tensor&) { return Tensor{}; }});
  expect_error(Error::Kind::argument, {"a tensor for keys"}, [&] { editor.pass("keys", Tensor::ones({1})); });
}

TEST(Trace, ScopesPrefixAndEnd) {
  Trace trace;
  {
    const Trace::Scope outer(&trace, "heads");
    {
      const Trace::Scope inner(&trace, "0");
      trace.record("keys", Tensor::of({1}));
    }
    trace.record("keys", Tensor::of({2}));
  }
  trace.record("keys", Tensor::of({3}));
  EXPECT_EQ(trace["heads.0.keys"].item(), 1);
  EXPECT_EQ(trace["heads.keys"].item(), 2);
  EXPECT_EQ(trace["keys"].item(), 3);
  const Trace::Scope none(nullptr, "nothing");
}

}  // namespace
}  // namespace attn::test
