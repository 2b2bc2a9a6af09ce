// The plan: which family takes a problem on which instruction set, and why; how it is cut.
#include <gmock/gmock.h>

#include <array>
#include <sstream>
#include <vector>

#include "attention/element.hpp"
#include "attn/error.hpp"
#include "kernels/explain.hpp"
#include "kernels/units.hpp"

namespace attn::kernels {
namespace {

using testing::HasSubstr;

Problem sized(std::int64_t tq, std::int64_t tk, std::int64_t d) {
  Problem p{};
  p.batch = 1, p.hq = p.hkv = 8, p.tq = tq, p.tk = tk, p.d = p.dv = d;
  return p;
}

class Plans : public Units {
 protected:
  bool has_parts() const { return kernels_.bf16_forward && kernels_.bf16_forward->most_parts == 3; }
};
INSTANTIATE_TEST_SUITE_P(Kernels, Plans, testing::ValuesIn(unit_names()),
                         [](const auto& param) { return param.param; });

TEST_P(Plans, FamilyFollowsElementAndPrecision) {
  struct Want {
    Element element;
    Precision precision;
    int parts;  // where the instruction set has so many
  };
  for (const Want& want : {Want{Element::f32, Precision::highest, 3}, Want{Element::f32, Precision::high, 2},
                           Want{Element::f32, Precision::medium, 1}, Want{Element::bf16, Precision::highest, 1},
                           Want{Element::f16, Precision::medium, 0}}) {
    Problem p = sized(512, 4096, 128);
    p.element = want.element, p.precision = want.precision;
    const int most = kernels_.bf16_forward ? kernels_.bf16_forward->most_parts : 0;
    const int parts = want.parts <= most ? want.parts : 0;
    const ForwardPlan forward = plan(p, kernels_, 1);
    const BackwardPlan backward = plan(p, {}, kernels_, 1);
    EXPECT_EQ(forward.parts, parts);
    EXPECT_EQ(forward.family, parts > 0 ? Family::bf16_tiles : Family::float_tiles);
    EXPECT_EQ(backward.parts, parts);
    Product product{};
    product.m = product.n = product.k = 64;
    product.a_row = product.b_column = 64, product.a_depth = product.b_depth = 1;
    product.a_element = product.b_element = want.element, product.precision = want.precision;
    EXPECT_EQ(plan(product, kernels_, 1).parts, parts);
  }
}

// Six products of parts, from these sizes on and not before; each refusal names its reason.
TEST_P(Plans, Float32AtHighestPrecisionIsSplitWhereItIsWorthIt) {
  struct Want {
    std::int64_t tq, tk, d, window;
    bool split;
    const char* reason;
  };
  for (const Want& want : {Want{128, 128, 32, 0, true, "three parts"}, Want{127, 128, 32, 0, false, "128 queries"},
                           Want{128, 127, 32, 0, false, "128 keys"}, Want{128, 128, 31, 0, false, "depth"},
                           Want{128, 128, 47, 0, false, "depth"}, Want{128, 128, 48, 0, true, "three parts"},
                           Want{512, 512, 64, 255, false, "window"}, Want{512, 512, 64, 256, true, "three parts"}}) {
    Problem p = sized(want.tq, want.tk, want.d);
    p.window = want.window;
    const ForwardPlan found = plan(p, kernels_, 1);
    EXPECT_EQ(found.parts, has_parts() && want.split ? 3 : 0) << want.tq << " " << want.tk << " " << want.d;
    if (has_parts()) {
      EXPECT_THAT(found.reason, HasSubstr(want.reason));
    }
    EXPECT_EQ(plan(p, {}, kernels_, 1).parts, found.parts) << "the plans of the two passes differ";
  }
}

// Neither the batch nor the number of heads changes what decides the bits. One head's keys are cut into most chunks.
TEST_P(Plans, BatchAndHeadsDoNotDecideTheFamily) {
  for (const auto& [tq, tk, heads] : std::vector<std::array<std::int64_t, 3>>{
           {1, 600, 8}, {4, 600, 8}, {5, 600, 8}, {127, 600, 8}, {128, 600, 8}, {600, 600, 8}, {600, 8192, 1}}) {
    Problem p = sized(tq, tk, 64);
    p.hq = p.hkv = heads;
    const ForwardPlan one = plan(p, kernels_, 1);
    const BackwardPlan back = plan(p, {}, kernels_, 1);
    p.batch = 50;
    const ForwardPlan many = plan(p, kernels_, 1);
    const BackwardPlan backs = plan(p, {}, kernels_, 1);
    EXPECT_EQ(one.family, many.family);
    EXPECT_EQ(one.parts, many.parts);
    EXPECT_EQ(one.block_keys, many.block_keys);
    EXPECT_EQ(one.chunk_keys, many.chunk_keys);
    EXPECT_EQ(back.chunk, backs.chunk);
    EXPECT_EQ(back.step, backs.step);
    EXPECT_EQ(back.parts, backs.parts);
  }
}

// The threads do not decide bits either; they change how finely work is cut.
TEST_P(Plans, ThreadsDoNotDecideBits) {
  for (const std::int64_t tq : {2, 128, 600, 5000}) {
    Problem p = sized(tq, 3000, 64);
    const ForwardPlan one = plan(p, kernels_, 1);
    const BackwardPlan back = plan(p, {}, kernels_, 1);
    const ForwardPlan many = plan(p, kernels_, 96);
    const BackwardPlan backs = plan(p, {}, kernels_, 96);
    EXPECT_EQ(one.family, many.family);
    EXPECT_EQ(one.parts, many.parts);
    EXPECT_EQ(one.block_keys, many.block_keys);
    EXPECT_EQ(one.chunk_keys, many.chunk_keys);
    EXPECT_EQ(back.parts, backs.parts);
    EXPECT_EQ(back.chunk, backs.chunk);
    // A step that is a task of its own shares a sum of dq with the others of its chunk.
    EXPECT_EQ(explain(p, backs).cut.find("sums of dq over " + std::to_string(backs.chunk)) != std::string::npos,
              backs.steps_apart);
    if (tq == 5000) {
      EXPECT_GT(many.tasks[1], one.tasks[1]);
      EXPECT_TRUE(backs.steps_apart);
      EXPECT_GT(backs.key_tasks, back.key_tasks);
    }
  }
}

TEST_P(Plans, FewQueriesDecodeUnlessTilesAreNeeded) {
  Problem p = sized(4, 5000, 64);
  const ForwardPlan decode = plan(p, kernels_, 1);
  EXPECT_EQ(decode.family, Family::float_decode);
  EXPECT_EQ(decode.chunks, (5000 + decode.chunk_keys - 1) / decode.chunk_keys);
  EXPECT_FALSE(plan(sized(5, 5000, 64), kernels_, 1).decodes());
  const bool block = true;
  p.blocks.keep.data = &block;
  EXPECT_FALSE(plan(p, kernels_, 1).decodes());
  p.blocks.keep.data = nullptr;
  p.score.forward = [](const ScoreTile*, void*) {};
  EXPECT_FALSE(plan(p, kernels_, 1).decodes());
}

TEST_P(Plans, FewRowsAreSplitWhereManyRowsAre) {
  for (const std::int64_t k : {1, 63, 64, 1000}) {
    FewRows few{};
    few.m = 1, few.n = 300, few.k = k;
    Product many{};
    many.m = 100, many.n = 300, many.k = k, many.a_row = many.b_column = k, many.a_depth = many.b_depth = 1;
    EXPECT_EQ(plan(few, kernels_, 1).parts, plan(many, kernels_, 1).parts) << k;
  }
}

// A copy of rows that lie along their depth would not pay for few columns. But rows that lie whole pages apart are in
// one set of L1, which keeps eight lines.
TEST_P(Plans, RowsOfFewColumnsAreMultipliedWhereTheyLie) {
  const bool high_strips = kernels_.product->strip > 8;
  const auto copies = [&](std::int64_t n, std::int64_t row, std::int64_t depth_step, Element element) {
    Product p{};  // of a depth that no unit multiplies in parts
    p.m = 100, p.n = n, p.k = p.b_column = 32, p.a_row = row, p.a_depth = depth_step, p.b_depth = 1;
    p.a_element = element, p.b_element = Element::f32, p.precision = Precision::highest;
    return plan(p, kernels_, 1).copies_rows;
  };
  EXPECT_FALSE(copies(1, 64, 1, Element::f32));
  EXPECT_FALSE(copies(128, 1000, 1, Element::f32));
  EXPECT_TRUE(copies(129, 64, 1, Element::f32));
  EXPECT_TRUE(copies(64, 1, 100, Element::f32)) << "columns that lie along";
  EXPECT_TRUE(copies(64, 64, 1, Element::bf16));
  EXPECT_EQ(copies(64, 1024, 1, Element::f32), high_strips);
}

TEST_P(Plans, WordsFitAScreen) {
  std::vector<Explanation> all;
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{512}, std::int64_t{1} << 20}) {
    Problem p = sized(n, 2 * n, 128);
    p.dv = 96;
    all.push_back(explain(p, plan(p, kernels_, 1))), all.push_back(explain(p, plan(p, {}, kernels_, 1)));
    FewRows few{};
    few.m = 1, few.n = n, few.k = n;
    all.push_back(explain(few, plan(few, kernels_, 1)));
  }
  for (const Explanation& e : all) {
    std::istringstream lines(text(e));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    EXPECT_EQ(e.isa, kernels_.isa);
    EXPECT_FALSE(e.reason.empty());
  }
}

TEST(PlanText, TellsAProblem) {
  const Kernels& scalar = *targets().front().kernels;
  EXPECT_EQ(text(explain(sized(512, 4096, 128), plan(sized(512, 4096, 128), scalar, 1))),
            "forward on scalar: multiply-adds of float32\n"
            "  this instruction set multiplies float32 alone\n"
            "  512 queries, 4096 keys, depth 128; 128 keys a block; 32 tasks\n");
  EXPECT_EQ(text(explain(sized(1, 1000, 64), plan(sized(1, 1000, 64), scalar, 1))),
            "decode on scalar: multiply-adds of float32\n"
            "  four queries of a head at most\n"
            "  1 query, 1000 keys, depth 64; 512 keys a task; 24 tasks\n");
}

// The names by which a unit is asked for, and which the tests are run with, once for each.
TEST(Units, EachIsWhatItsNameSays) {
#if defined(__x86_64__)
  std::vector<std::string> documented{"scalar", "avx2", "avx512", "avx512bf16", "amx"};
#if defined(ATTN_WITHOUT_AMX)
  documented.pop_back();
#endif
#elif defined(__aarch64__)
  const std::vector<std::string> documented{"scalar", "neon"};
#else
  const std::vector<std::string> documented{"scalar"};
#endif
  std::vector<std::string> names;
  for (const Target& target : targets()) {
    names.emplace_back(target.isa);
    EXPECT_EQ(target.kernels->isa, target.isa);
  }
  EXPECT_EQ(names, documented);
}

TEST(Elements, ADtypeThatNoKernelReadsIsAnError) {
  EXPECT_EQ(element(DType::f32), Element::f32);
  EXPECT_EQ(element(DType::bf16), Element::bf16);
  EXPECT_EQ(element(DType::f16), Element::f16);
  EXPECT_EQ(element(DType::i8), Element::i8);
  for (const DType dtype : {DType::f64, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    EXPECT_THROW(element(dtype), Error) << name(dtype);
  }
}

}  // namespace
}  // namespace attn::kernels
