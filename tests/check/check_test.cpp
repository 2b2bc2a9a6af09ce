// `attn check` passes; and each thing that it stands on, when broken, fails just the rows that hang on it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace {

struct Check {
  int exit_code = -1;
  nlohmann::json report;
  std::set<std::string> failed;  // "notebook: what"
};

Check check(const std::string& flags) {
  Check result;
  FILE* pipe = popen(("'" ATTN_COMMAND "' check --json " + flags).c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), n);
  result.exit_code = WEXITSTATUS(pclose(pipe));
  result.report = nlohmann::json::parse(text);
  for (const auto& row : result.report["comparisons"]) {
    if (!row["ok"]) result.failed.insert(row["notebook"].get<std::string>() + ": " + row["what"].get<std::string>());
  }
  EXPECT_EQ(result.report["failed"].get<std::size_t>(), result.failed.size());
  return result;
}

void expect_broken(const std::string& flags, const std::set<std::string>& rows) {
  const Check found = check(flags);
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.failed, rows);
}

TEST(Check, EveryPrintedNumberIsReproduced) {
  const Check found = check("");
  EXPECT_EQ(found.exit_code, 0);
  EXPECT_TRUE(found.failed.empty());
  EXPECT_GE(found.report["passed"].get<int>(), 120);
  EXPECT_EQ(found.report["passed"].get<std::size_t>(), found.report["comparisons"].size());
  std::set<std::string> notebooks;
  for (const auto& row : found.report["comparisons"]) {
    notebooks.insert(row["notebook"]);
    EXPECT_GT(row["numbers"].get<int>(), 0) << row["what"];
  }
  EXPECT_EQ(notebooks, (std::set<std::string>{"000", "001", "002", "003", "004"}));
}

TEST(Check, TheTableEndsWithTheCount) {
  FILE* pipe = popen("'" ATTN_COMMAND "' check | tail -n 1", "r");
  ASSERT_NE(pipe, nullptr);
  std::array<char, 200> line{};
  ASSERT_NE(fgets(line.data(), line.size(), pipe), nullptr);
  pclose(pipe);
  int passed = 0, failed = -1;
  ASSERT_EQ(std::sscanf(line.data(), "%d passed, %d failed", &passed, &failed), 2) << line.data();
  EXPECT_GE(passed, 120);
  EXPECT_EQ(failed, 0);
}

TEST(Check, QueryFirstBreaksTheModulesThatDrawTheKeyFirst) {
  expect_broken("--layer-order qkv",
                {"001: linear kqv: all contexts", "001: causal: context_vecs, printed without the mask",
                 "001: causal: context_vecs with the mask that the notebook left out", "003: head: W[0]",
                 "003: head: output[0]"});
}

TEST(Check, KeyFirstBreaksTheModulesThatDrawTheQueryFirst) {
  expect_broken("--layer-order kqv",
                {"000: v2: all contexts", "000: v2: weights", "000: mask: weights * tril", "000: mask: renormalised",
                 "000: mask: scores with -inf", "000: mask: softmax of the masked scores",
                 "001: two heads: context_vecs", "001: multi-head: context_vecs", "002: v2: all contexts",
                 "002: v2: weights", "002: v2: scores", "002: mask: weights * tril", "002: mask: renormalised",
                 "002: mask: scores with -inf", "002: mask: softmax of the masked scores", "002: dropout: weights",
                 "002: causal: context_vecs", "002: wrapper: context_vecs", "002: multi-head: context_vecs"});
}

TEST(Check, WithoutTheMaskEveryRowThatHidesTheFutureFails) {
  expect_broken("--no-mask", {"000: mask: tril",
                              "000: mask: weights * tril",
                              "000: mask: renormalised",
                              "000: mask: scores with -inf",
                              "000: mask: softmax of the masked scores",
                              "001: multi-head: context_vecs",
                              "001: causal: context_vecs with the mask that the notebook left out",
                              "002: mask: tril",
                              "002: mask: weights * tril",
                              "002: mask: renormalised",
                              "002: mask: triu",
                              "002: mask: triu above the diagonal",
                              "002: mask: scores with -inf",
                              "002: mask: softmax of the masked scores",
                              "002: dropout: weights",
                              "002: causal: context_vecs",
                              "002: wrapper: context_vecs",
                              "002: multi-head: context_vecs",
                              "003: C: tril(A) @ B",
                              "003: tril(A) / row sums",
                              "003: C: averages of B",
                              "003: out[0], by triangular weights",
                              "003: allclose(x_avg, out)",
                              "003: W: zeros with -inf",
                              "003: W: softmax",
                              "003: head: W[0]",
                              "003: head: output[0]"});
}

TEST(Check, TheOtherDropoutFlavourBreaksWhatThisOneDrew) {
  expect_broken("--rng native", {"002: dropout: ones", "002: dropout: weights"});
  expect_broken("--rng mkl", {"002: dropout: ones, as the book prints (flavour native)"});
}

}  // namespace
