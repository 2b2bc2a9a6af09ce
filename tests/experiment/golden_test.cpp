// Experiments beside the same by hooks in transformers (make_golden.py).
#include "experiment/helpers.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

class Experiments : public testing::TestWithParam<const char*> {
 protected:
  Tensor golden(const std::string& name) const { return *golden_.find(std::string(GetParam()) + "." + name); }
  TokenPair pair() const {
    const Tensor two = golden("pair");
    return {two.data<Int>()[0], two.data<Int>()[1]};
  }
  Int layers() const { return std::ssize(model_.config().layers); }

  const io::NamedTensors golden_ = io::load(std::filesystem::path(ATTN_TEST_DATA) / "golden.safetensors");
  LanguageModel model_ = load_language_model(model_path(GetParam()));
  const Tensor ids_ = golden("ids"), other_ = golden("other");
};

TEST_P(Experiments, HeadsSwitchedOff) {
  for (const auto& [name, by] : {std::pair{"zero", By::zero}, {"mean", By::mean}, {"uniform", By::uniform}}) {
    const Effects effects = head_effects(model_, ids_, {.by = by});
    EXPECT_NEAR(effects.before, golden("before").item(), 1e-5);
    expect_close(effects.after, golden(name), name);
  }
}

TEST_P(Experiments, EstimatesAreAutograds) {
  for (const auto& [name, by] : {std::pair{"zero", By::zero}, {"mean", By::mean}, {"uniform", By::uniform}}) {
    const Effects effects = head_effects(model_, ids_, {.by = by, .exact = 0});
    EXPECT_NEAR(effects.before, golden("before").item(), 1e-5);
    expect_close(effects.estimates, golden(std::string("estimated_") + name), name);
  }
  const Effects pair = head_effects(model_, ids_, {.tokens = TokenPair{7, 11}, .exact = 0});
  expect_close(pair.estimates, golden("estimated_pair"), "pair");
}

TEST_P(Experiments, EditsOfOnePass) {
  Trace other;
  model_.forward(other_, &other);
  const Int last = layers() - 1;
  expect_close(model_.forward(ids_, {.edits = {patch({0, 1}, other, model_.config())}}), golden("patched"), "patched");
  expect_close(model_.forward(ids_, {.edits = {skip_layer(last)}}), golden("skipped"), "skipped");
  expect_close(model_.forward(ids_, {.edits = {skip_feed_forward(last)}}), golden("thoughtless"), "feed-forward");
  Edits hidden;
  for (Int l = 0; l < layers(); ++l) hidden.push_back(hide(l, 2, model_.config()));
  expect_close(model_.forward(ids_, {.edits = hidden}), golden("hidden"), "hidden");
}

TEST_P(Experiments, Lens) { expect_close(logit_lens(model_, ids_).losses, golden("lens"), "losses"); }

TEST_P(Experiments, Patching) {
  const attn::Patching found = patching(model_, ids_, other_, pair());
  expect_close(found.stream, golden("stream"), "stream");
  expect_close(found.heads, golden("heads"), "heads");
}

TEST_P(Experiments, Rollout) { expect_close(rollout(model_, ids_), golden("rollout"), "rollout"); }

TEST_P(Experiments, Scores) {
  const HeadScores scores = head_scores(model_, golden("twice"));
  expect_close(scores.previous, golden("previous"), "previous");
  expect_close(scores.duplicate, golden("duplicate"), "duplicate");
  expect_close(scores.induction, golden("induction"), "induction");
}

TEST_P(Experiments, Attribution) {
  const attn::Attribution found = attribution(model_, ids_, pair().a, pair().b);
  expect_close(found.heads, golden("parts"), "heads");
  EXPECT_NEAR(found.sum, found.logit, 1e-5 * std::max(1.0, std::fabs(found.logit)));
}

INSTANTIATE_TEST_SUITE_P(Families, Experiments, testing::Values("gpt2", "llama", "gemma2", "granite"));

TEST(Experiments, OfAnEncoder) {
  const io::NamedTensors golden = io::load(std::filesystem::path(ATTN_TEST_DATA) / "golden.safetensors");
  Encoder encoder = load_encoder(model_path("bert"));
  const Tensor ids = *golden.find("bert.ids");
  expect_close(encoder.forward(ids, {.edits = {without({1, 2})}}), *golden.find("bert.hidden"), "hidden");
  expect_close(rollout(encoder, ids), *golden.find("bert.rollout"), "rollout");
  const Contexts means = mean_contexts(encoder, std::array{ids});
  expect_close(encoder.forward(ids, {.edits = {without({1, 2}, means[1].select(0, 2))}}),
               encoder.forward(ids, {.edits = {without({1, 2}, By::mean)}}), "means of the text itself");
  const Tensor changes = head_changes(encoder, ids, {without({1, 2})});
  for (std::int64_t h = 0; h < changes.size(1); ++h) {
    EXPECT_EQ(changes.at({0, h}), 0) << h;
    EXPECT_EQ(changes.at({1, h}), h == 2 ? 1 : 0) << h;
  }
}

}  // namespace
}  // namespace attn::test
