// Experiments on models whose layers keep a state or attend, each kind with heads of its own number.
#include "experiment/helpers.hpp"
#include "experiment/measures.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

class States : public testing::TestWithParam<const char*> {
 protected:
  void each_head(const std::function<void(Int layer, Int head, bool there)>& look) const {
    for (Int l = 0; l < std::ssize(config_.layers); ++l) {
      for (Int h = 0; h < config_.most_heads(); ++h) look(l, h, h < config_.heads_of(l));
    }
  }

  LanguageModel model_ = load_language_model(model_path(GetParam()));
  const LanguageModelConfig& config_ = model_.config();
  const Tensor ids_ = integers({3, 1, 4, 1, 5, 9, 2, 6, 5});
};

TEST_P(States, EffectsAreThoseOfEachPassAlone) {
  for (const By by : {By::zero, By::mean, By::uniform}) {
    const Effects effects = head_effects(model_, ids_, {.by = by});
    Int heads = 0;
    each_head([&](Int l, Int h, bool there) {
      const double after = effects.after.at({l, h});
      EXPECT_EQ(std::isfinite(after), there) << l << ' ' << h;
      if (!there) return;
      const Tensor logits = model_.forward(ids_, {.edits = {without({l, h}, by)}});
      EXPECT_EQ(after, mean_of(token_losses(logits, ids_))) << l << ' ' << h;
      ++heads;
    });
    // As many exact ones as there are heads need no estimate; one fewer does, which layers with a state do not give.
    EXPECT_FALSE(head_effects(model_, ids_, {.by = by, .exact = heads}).estimates.defined());
    EXPECT_THROW(head_effects(model_, ids_, {.by = by, .exact = heads - 1}), Error);
  }
}

TEST_P(States, TablesHaveNaNWhereALayerHasFewerHeads) {
  const Tensor twice = integers({3, 1, 4, 3, 1, 4}), other = ids_.clone();
  other.data<Int>()[2] = 7;
  const HeadScores scores = head_scores(model_, twice);
  const Tensor changes = head_changes(model_, ids_, {without({1, 0})});
  const Tensor patched = patching(model_, ids_, other, {1, 2}).heads;
  const Tensor same = compare(model_, model_, ids_).heads;
  each_head([&](Int l, Int h, bool there) {
    for (const Tensor& table : {scores.previous, scores.duplicate, scores.induction, changes, patched, same}) {
      EXPECT_EQ(std::isfinite(table.at({l, h})), there) << l << ' ' << h;
    }
    if (!there) return;
    EXPECT_EQ(same.at({l, h}), 0);
    EXPECT_TRUE(l != 1 || changes.at({l, h}) == (h == 0)) << l << ' ' << h;
  });
}

TEST_P(States, AllHeadsOffIsNoAttention) {
  Edits off, skipped, each = keep_only(std::array{HeadAt{0, 0}}, config_);
  Int heads = 0;
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    off.push_back(without_heads_of(l)), skipped.push_back(skip_attention(l));
    heads += config_.heads_of(l);
    for (Parameter* p : model_.blocks[static_cast<std::size_t>(l)]->parameters()) {
      if (p->name.ends_with("o_proj.bias")) p->value.fill(0);
    }
  }
  EXPECT_EQ(std::ssize(each), heads - 1);
  each.push_back(without({0, 0}));
  const Tensor nothing = model_.forward(ids_, {.edits = skipped});
  expect_same_bits(model_.forward(ids_, {.edits = off}), nothing, "layer by layer");
  expect_same_bits(model_.forward(ids_, {.edits = each}), nothing, "head by head");
}

// olmo_hybrid has as many layers and heads that attend as qwen3_5_text, and other states.
TEST(StatesOfTwoModels, AreComparedWhereTheyAreAlike) {
  LanguageModel one = load_language_model(model_path("qwen3_5_text")),
                other = load_language_model(model_path("olmo_hybrid"));
  EXPECT_EQ(experiment::heads_in_words(one.config()), "3 layers of 6, 4 and 6 heads");
  EXPECT_EQ(experiment::heads_in_words(other.config()), "3 layers of 4 heads");
  EXPECT_TRUE(experiment::heads_alike(one.config(), one.config()));
  EXPECT_FALSE(experiment::heads_alike(one.config(), other.config()));
  expect_error(Error::Kind::argument, {"3 layers of 6, 4 and 6 heads", "3 layers of 4 heads"}, [&] {
    compare(one, other, integers({3, 1, 4}));
  });
  LanguageModelConfig wider = one.config();
  ++wider.gated_delta->value_dim;
  EXPECT_FALSE(experiment::heads_alike(one.config(), wider));
}

// Each head's share of a logit: all shares add up to it, and a head that is off has none.
TEST_P(States, AttributionsAddUpToTheLogit) {
  const Attribution found = attribution(model_, ids_, 3, 4);
  EXPECT_NEAR(found.sum, found.logit, 1e-5 * std::max(1.0, std::fabs(found.logit)));
  each_head([&](Int l, Int h, bool there) {
    EXPECT_EQ(std::isfinite(found.heads.at({l, h})), there) << l << ' ' << h;
    EXPECT_TRUE(!there || found.heads.at({l, h}) != 0) << l << ' ' << h;
  });
  const Int last = std::ssize(config_.layers) - 1;
  const Attribution off = attribution(model_, ids_, 3, 4, {}, {without({last, 1})});
  EXPECT_EQ(off.heads.at({last, 1}), 0);
  EXPECT_NEAR(off.sum, off.logit, 1e-5 * std::max(1.0, std::fabs(off.logit)));
}

TEST_P(States, AHeadThatALayerLacksIsRefused) {
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    const Int heads = config_.heads_of(l);
    const std::string last = "from 0 to " + std::to_string(heads - 1);
    expect_error(Error::Kind::argument, {"a head of", last}, [&] {
      model_.forward(ids_, {.edits = {without({l, heads})}});
    });
    expect_error(Error::Kind::argument, {std::to_string(heads) + " heads"}, [&] {
      keep_only(std::array{HeadAt{l, heads}}, config_);
    });
  }
}

// The contexts of other texts hold what each layer's own heads give, in its own size.
TEST_P(States, OtherTextsTakeAHeadsPlace) {
  const Contexts means = mean_contexts(model_, std::array{ids_}), own = text_contexts(model_, ids_);
  const Effects by_own = head_effects(model_, ids_, {.contexts = means}),
                by_mean = head_effects(model_, ids_, {.by = By::mean});
  const double unchanged = head_effects(model_, ids_, {.contexts = own}).before;
  Edits all;
  each_head([&](Int l, Int h, bool there) {
    if (!there) return;
    EXPECT_NEAR(by_own.after.at({l, h}), by_mean.after.at({l, h}), 1e-5) << l << ' ' << h;
    EXPECT_EQ(head_effects(model_, ids_, {.contexts = own}).after.at({l, h}), unchanged) << l << ' ' << h;
    if (l != 0 || h != 0) all.push_back(without({l, h}, means[static_cast<std::size_t>(l)].select(0, h)));
  });
  const std::array first{HeadAt{0, 0}};
  expect_same_bits(model_.forward(ids_, {.edits = keep_only(first, config_, means)}),
                   model_.forward(ids_, {.edits = all}), "");
  expect_same_bits(model_.forward(ids_, {.edits = {without_heads_of(1, own[1])}}), model_.forward(ids_), "its own");
  expect_error(Error::Kind::shape, {experiment::heads_in_words(config_), "1 layers"},
               [&] { head_effects(model_, ids_, {.contexts = {means[0]}}); });
}

// A state holds every key that it has read, so that none can be hidden from it.
TEST_P(States, AKeyIsHiddenFromSoftmaxAlone) {
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    if (config_.layers[static_cast<std::size_t>(l)].mixer == Mixer::softmax) {
      model_.forward(ids_, {.edits = {hide(l, 1, config_)}});
    } else {
      expect_error(Error::Kind::argument, {"a state in layer " + std::to_string(l)}, [&] { hide(l, 1, config_); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, States, testing::Values("olmo_hybrid", "qwen3_5_text", "minicpm3"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace attn::test
