// Tests what must hold of experiments whatever the model: identities, and what is refused.
#include "experiment/helpers.hpp"
#include "lm/editor.hpp"

namespace attn::test {
namespace {

using Int = std::int64_t;

class Identities : public testing::TestWithParam<const char*> {
 protected:
  LanguageModel model_ = load_language_model(model_path(GetParam()));
  const LanguageModelConfig& config_ = model_.config();
  const Tensor ids_ = integers({3, 1, 4, 1, 5, 9, 2, 6, 5});
};

TEST_P(Identities, EditsThatChangeNothingKeepTheBits) {
  const Tensor plain = model_.forward(ids_);
  expect_same_bits(model_.forward(ids_), plain, "no edit");
  expect_same_bits(model_.forward(ids_, {.edits = {scale({1, 0}, 1)}}), plain, "scaled by 1");
  Trace own;
  model_.forward(ids_, {.edits = {scale({1, 0}, 1)}, .trace = &own});  // of the reference
  const Tensor traced = model_.forward(ids_, {.edits = {patch({1, 1}, own, config_)}, .trace = &own});
  Trace again;
  expect_same_bits(model_.forward(ids_, &again), traced, "patched with itself");
  expect_same_bits(again.steps().back().second, own.steps().back().second, "last step");
}

TEST_P(Identities, EditsActInEachTextOfABatch) {
  const Tensor other = integers({2, 7, 1, 8, 2, 8, 1, 8, 3});
  const Tensor both = Tensor::empty({2, 9}, DType::i64);
  both.select(0, 0).copy_from(ids_), both.select(0, 1).copy_from(other);
  const Edits edits = {without({1, 0}, By::mean), reweigh({0, 1}, Weights::previous), hide(1, 2, config_)};
  const Tensor logits = model_.forward(both, {.edits = edits});
  expect_same_bits(logits.select(0, 0), model_.forward(ids_, {.edits = edits}), "the first text");
  expect_same_bits(logits.select(0, 1), model_.forward(other, {.edits = edits}), "the second text");
  expect_error(Error::Kind::argument, {"no forward pass"}, [&] { model_.backward(logits); });
}

TEST_P(Identities, PatchingATextWithItself) {
  // The texts differ in the last token: of equal ones clean - corrupt, which shares are divided by, would be 0.
  const Tensor other = ids_.clone();
  other.data<Int>()[8] = 7;
  const Patching p = patching(model_, ids_, other, {1, 2});
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    for (Int i = 0; i < 8; ++i) {  // positions whose past is the same have the same stream
      EXPECT_EQ(p.stream.at({l, i}), 0) << l << ' ' << i;
    }
    if (l == 0) {
      EXPECT_EQ(p.stream.at({0, 8}), 1);  // the only token that differs, before all layers
    }
  }
}

TEST_P(Identities, LensOfTheLastLayerIsTheModel) {
  const Lens lens = logit_lens(model_, ids_);
  const Tensor losses = token_losses(model_.forward(ids_), ids_);
  expect_same_bits(lens.losses.select(0, std::ssize(config_.layers)), losses, "losses");
}

TEST_P(Identities, RolloutsRowsSumToOne) {
  const Tensor all = rollout(model_, ids_);
  for (Int l = 0; l < all.size(0); ++l) {
    for (Int i = 0; i < all.size(1); ++i) {
      double sum = 0;
      for (Int j = 0; j < all.size(2); ++j) sum += all.at({l, i, j});
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST_P(Identities, RolloutOfASkippedLayerIsTheLayerBefore) {
  for (const Edit& skip : {skip_layer(0), skip_attention(0)}) {
    const Tensor all = rollout(model_, ids_, {skip});
    for (Int i = 0; i < all.size(1); ++i) {
      for (Int j = 0; j < all.size(2); ++j) EXPECT_EQ(all.at({0, i, j}), i == j ? 1 : 0);
    }
  }
}

TEST_P(Identities, WithoutHeadsAndBiasThereIsNoAttention) {
  Edits off, skipped;
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    off.push_back(without_heads_of(l));
    skipped.push_back(skip_attention(l));
    for (Parameter* p : model_.blocks[static_cast<std::size_t>(l)]->attention.parameters()) {
      const bool out = p->name.ends_with("out_proj.bias") || p->name.ends_with("o_proj.bias");
      if (out) p->value.fill(0);
    }
    for (Parameter* p : model_.blocks[static_cast<std::size_t>(l)]->parameters()) {
      if (p->name.ends_with("post_attention_layernorm.bias")) p->value.fill(0);
    }
  }
  expect_same_bits(model_.forward(ids_, {.edits = off}), model_.forward(ids_, {.edits = skipped}), "no attention");
  Edits each;
  for (const Edit& edit : keep_only(std::array{HeadAt{0, 0}}, config_)) each.push_back(edit);
  each.push_back(without({0, 0}));
  expect_same_bits(model_.forward(ids_, {.edits = each}), model_.forward(ids_, {.edits = off}), "head by head");
}

// A hidden key has no weight, also where another edit sets the weights, in either order; what is left adds up to 1.
TEST_P(Identities, HiddenKeysHaveNoWeightThatIsSet) {
  const Edits by_pattern{without({0, 1}, By::uniform), reweigh({0, 1}, Weights::uniform),
                         reweigh({0, 1}, Weights::previous)};
  for (std::size_t pattern = 0; pattern < by_pattern.size(); ++pattern) {
    Tensor first;
    for (const bool hidden_first : {true, false}) {
      const Edit hides = hide(0, 3, config_);
      Trace steps;
      model_.forward(ids_,
                     {.edits = hidden_first ? Edits{hides, by_pattern[pattern]} : Edits{by_pattern[pattern], hides},
                      .trace = &steps});
      const Tensor weights =
          steps[editing::step_name(config_, Edit::Of::attention, 0, "weights")].select(0, 0).select(0, 1).clone();
      for (Int i = 0; i < ids_.numel(); ++i) {
        EXPECT_EQ(weights.at({i, 3}), 0) << pattern << ' ' << i;
        double sum = 0;
        for (Int j = 0; j < ids_.numel(); ++j) sum += weights.at({i, j});
        EXPECT_NEAR(sum, pattern == 2 && i == 4 ? 0 : 1, 1e-6) << pattern << ' ' << i;
      }
      if (first.defined()) expect_same_bits(weights, first, "in the other order");
      first = weights;
    }
  }
  const EffectOptions options{.by = By::uniform, .edits = {hide(0, 3, config_)}};
  const Effects effects = head_effects(model_, ids_, options);
  const Tensor logits = model_.forward(ids_, {.edits = {options.edits[0], without({0, 1}, By::uniform)}});
  EXPECT_NEAR(effects.after.at({0, 1}), mean_of(token_losses(logits, ids_)), 1e-12);
}

// A key hidden from one head has no weight there where an edit sets the weights of all heads, and its weight in others.
TEST_P(Identities, KeysHiddenFromOneHeadStayInTheOthers) {
  const auto weights = [&](const Edits& edits) {
    Trace steps;
    model_.forward(ids_, {.edits = edits, .trace = &steps});
    return steps[editing::step_name(config_, Edit::Of::attention, 0, "weights")].select(0, 0).clone();
  };
  const Tensor all = weights({without_heads_of(0, By::uniform)});
  const Tensor one = weights({without_heads_of(0, By::uniform), hide({0, 1}, 3, config_)});
  const Tensor alone = weights({without({0, 1}, By::uniform), hide({0, 1}, 3, config_)});
  expect_same_bits(one.select(0, 0), all.select(0, 0), "another head");
  expect_same_bits(one.select(0, 1), alone.select(0, 1), "the head");
  EXPECT_EQ(one.at({1, 5, 3}), 0);
  EXPECT_GT(one.at({0, 5, 3}), 0);
}

TEST_P(Identities, EffectsAreThoseOfEachPassAlone) {
  for (const By by : {By::zero, By::mean, By::uniform}) {
    const EffectOptions options{.by = by, .tokens = TokenPair{3, 4}, .edits = {scale({0, 1}, 0.5)}};
    const Effects effects = head_effects(model_, ids_, options);
    for (Int l = 0; l < std::ssize(config_.layers); ++l) {
      for (Int h = 0; h < config_.heads; ++h) {
        const Tensor logits = model_.forward(ids_, {.edits = {options.edits[0], without({l, h}, by)}});
        const double alone = logits.at({8, 3}) - logits.at({8, 4});
        EXPECT_EQ(effects.after.at({l, h}), alone) << l << ' ' << h;
      }
    }
  }
}

// An edit changes a layer's inputs once, though passes begin there.
TEST_P(Identities, ChangedInputsOfALayerAreChangedOnce) {
  const Edits by_name = {scale_step(editing::step_name(config_, Edit::Of::block, 1, "inputs"), 0.5)};
  Edits by_layer = by_name;
  by_layer[0].of = Edit::Of::block, by_layer[0].layer = 1, by_layer[0].step = "inputs";
  for (const Edits& edits : {by_name, by_layer}) {
    const Effects effects = head_effects(model_, ids_, {.tokens = TokenPair{3, 4}, .edits = edits});
    for (const HeadAt at : {HeadAt{0, 1}, HeadAt{1, 0}}) {
      const Tensor logits = model_.forward(ids_, {.edits = {edits[0], without(at)}});
      EXPECT_EQ(effects.after.at({at.layer, at.head}), logits.at({8, 3}) - logits.at({8, 4})) << at.layer;
    }
  }
}

TEST_P(Identities, PatchesBesideEditsAreThoseOfEachPassAlone) {
  const Tensor other = ids_.clone();
  other.data<Int>()[7] = 3;
  const Edits edits = {scale({0, 1}, 0.5), skip_feed_forward(1)};
  const Patching p = patching(model_, ids_, other, {1, 2}, edits);
  const auto difference = [](const Tensor& logits) { return logits.at({8, 1}) - logits.at({8, 2}); };
  EXPECT_EQ(p.clean, difference(model_.forward(ids_, {.edits = edits})));
  EXPECT_EQ(p.corrupt, difference(model_.forward(other, {.edits = edits})));
  Trace clean;
  model_.forward(ids_, {.edits = edits, .trace = &clean});
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    for (Int h = 0; h < config_.heads; ++h) {
      Edits all = edits;
      all.push_back(patch({l, h}, clean, config_));
      const double share = (difference(model_.forward(other, {.edits = all})) - p.corrupt) / (p.clean - p.corrupt);
      EXPECT_NEAR(p.heads.at({l, h}), share, 1e-4) << l << ' ' << h;
    }
  }
  const Tensor none = patching(model_, ids_, other, {1, 2}, {without_heads_of(1)}).heads.select(0, 1);
  for (Int h = 0; h < config_.heads; ++h) EXPECT_EQ(none.at({h}), 0) << "a head that is off in both";
}

TEST_P(Identities, MeansOfOtherTextsTakeAHeadsPlace) {
  const Contexts own = mean_contexts(model_, std::array{ids_});
  const Effects by_own = head_effects(model_, ids_, {.contexts = own}),
                by_mean = head_effects(model_, ids_, {.by = By::mean});
  expect_close(by_own.after, by_mean.after, "means of the text itself");
  const Tensor estimates = head_effects(model_, ids_, {.by = By::mean, .exact = 0}).estimates;
  expect_close(head_effects(model_, ids_, {.contexts = own, .exact = 0}).estimates, estimates, "estimates");
  const Tensor other = Tensor::full({3}, 7, DType::i64);
  const Contexts both = mean_contexts(model_, std::array{ids_, other}),
                 theirs = mean_contexts(model_, std::array{other});
  for (Int j = 0; j < both[1].size(1); ++j) {  // by tokens, of which the texts have 9 and 3
    EXPECT_NEAR(both[1].at({0, j}), 0.75 * own[1].at({0, j}) + 0.25 * theirs[1].at({0, j}), 1e-6);
  }
  Edits layer, heads;
  for (Int h = 0; h < config_.heads; ++h) heads.push_back(without({1, h}, theirs[1].select(0, h)));
  layer.push_back(without_heads_of(1, theirs[1]));
  expect_same_bits(model_.forward(ids_, {.edits = layer}), model_.forward(ids_, {.edits = heads}), "a layer's heads");
  const double off = mean_of(token_losses(model_.forward(ids_, {.edits = {heads[1]}}), ids_));
  EXPECT_EQ(head_effects(model_, ids_, {.contexts = theirs}).after.at({1, 1}), off);
  EXPECT_EQ(std::ssize(keep_only(std::array{HeadAt{0, 0}}, config_, theirs)),
            std::ssize(config_.layers) * config_.heads - 1);
  EXPECT_THROW(mean_contexts(model_, {}), Error);
  EXPECT_THROW(head_effects(model_, ids_, {.contexts = {theirs[0]}}), Error);
}

TEST_P(Identities, LargestEstimatesAreMadeExact) {
  const Effects all = head_effects(model_, ids_), some = head_effects(model_, ids_, {.exact = 3});
  EXPECT_FALSE(all.estimates.defined());
  EXPECT_EQ(some.before, all.before);
  double least = HUGE_VAL, error = 0, most = 0;  // of the exact ones' estimates, their errors, and of the others
  Int exact = 0;
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    for (Int h = 0; h < config_.heads; ++h) {
      const double after = some.after.at({l, h}), size = std::fabs(some.estimates.at({l, h}) - some.before);
      if (std::isnan(after)) {
        most = std::max(most, size);
        continue;
      }
      EXPECT_EQ(after, all.after.at({l, h})) << l << ' ' << h;
      least = std::min(least, size), error += std::fabs(some.estimates.at({l, h}) - after) / 3, ++exact;
    }
  }
  EXPECT_EQ(exact, 3);
  EXPECT_GE(least, most);
  EXPECT_NEAR(some.error, error, 1e-15);
  EXPECT_EQ(values(head_effects(model_, ids_, {.exact = 10'000}).after), values(all.after));
}

// Scaling a head's part by 1 - ε changes the measure by ε times the estimate of switching it off, but for ε².
TEST_P(Identities, EstimatesAreEffectsOfSmallChanges) {
  const EffectOptions options{.tokens = TokenPair{3, 4}, .exact = 0};
  const Effects effects = head_effects(model_, ids_, options);
  constexpr double kSmall = 1.0 / 64;
  for (Int l = 0; l < std::ssize(config_.layers); ++l) {
    for (Int h = 0; h < config_.heads; ++h) {
      const auto scaled = [&](double factor) {
        const Tensor logits = model_.forward(ids_, {.edits = {scale({l, h}, factor)}});
        return logits.at({8, 3}) - logits.at({8, 4});
      };
      const double slope = (scaled(1 - kSmall) - scaled(1 + kSmall)) / (2 * kSmall);
      EXPECT_NEAR(effects.estimates.at({l, h}) - effects.before, slope, 2e-3) << l << ' ' << h;
    }
  }
}

TEST_P(Identities, EstimatesLeaveTheModelAsItWas) {
  for (Parameter* p : model_.parameters()) p->grad = Tensor::ones(p->value.shape());
  int told = 0;
  model_.blocks[0]->attention.on_backward = [&](auto&&...) { ++told; };
  head_effects(model_, ids_, {.exact = 0});
  EXPECT_EQ(told, 0);
  for (Parameter* p : model_.parameters()) {
    EXPECT_TRUE(p->requires_grad) << p->name;
    EXPECT_EQ(values(p->grad), values(Tensor::ones(p->value.shape()))) << p->name;
  }
  model_.forward(ids_);
  model_.backward(Tensor::ones({9, config_.vocab_size}));
  EXPECT_EQ(told, 1);
}

TEST_P(Identities, ChangesBeginBehindTheEdit) {
  const Int last = std::ssize(config_.layers) - 1;
  const Tensor changes = head_changes(model_, ids_, {without({last, 1})});
  for (Int l = 0; l <= last; ++l) {
    for (Int h = 0; h < config_.heads; ++h) EXPECT_EQ(changes.at({l, h}), l == last && h == 1 ? 1 : 0);
  }
  EXPECT_GT(head_changes(model_, ids_, {without({0, 0})}).at({last, 0}), 0);
}

TEST_P(Identities, AModelDiffersFromItselfByItsEditsAlone) {
  const Comparison same = compare(model_, model_, ids_);
  expect_same_bits(same.losses, same.other_losses, "losses");
  expect_same_bits(same.next, same.other_next, "next tokens");
  for (const double x : values(same.heads)) EXPECT_EQ(x, 0);
  // Switching a head off changes the others as much as an output projection that gives nothing of it.
  LanguageModel other = load_language_model(model_path(GetParam()));
  Tensor& o = [&]() -> Tensor& {
    for (Parameter* p : other.blocks[0]->attention.parameters()) {
      if (p->name.ends_with("o_proj.weight") || p->name.ends_with("out_proj.weight") ||
          p->name.ends_with("c_proj.weight"))
        return p->value;
    }
    throw std::out_of_range("the output projection");
  }();
  const Int d = config_.head_dim;
  o.slice(1, d, 2 * d).fill(0);  // (width, heads · head_dim): the second head's columns
  const Tensor off = head_changes(model_, ids_, {without({0, 1})});
  const Comparison both = compare(model_, other, ids_);
  for (Int l = 1; l < off.size(0); ++l) {
    for (Int h = 0; h < off.size(1); ++h) EXPECT_NEAR(both.heads.at({l, h}), off.at({l, h}), 1e-5);
  }
  for (Int h = 0; h < off.size(1); ++h) EXPECT_EQ(both.heads.at({0, h}), 0);
}

TEST_P(Identities, WeightsThatAreReplacedAreFollowed) {
  Trace steps;
  model_.forward(ids_,
                 {.edits = {reweigh({1, 1}, Weights::previous), reweigh({1, 0}, Weights::none)}, .trace = &steps});
  const std::string prefix = config_.family == "gpt2" ? "h.1.attn." : "model.layers.1.self_attn.";
  const Tensor values_of_head = steps[prefix + "values"].select(0, 0).select(0, 1);
  const Tensor context = steps[prefix + "context"].select(0, 0);
  expect_same_bits(context.select(0, 1).slice(0, 1, 9), values_of_head.slice(0, 0, 8), "the token before");
  for (const double x : values(context.select(0, 0))) EXPECT_EQ(x, 0);
}

TEST_P(Identities, OnlyWhatChangesNothingIsOverwritten) {
  const auto step = [&](const char* name, std::optional<Int> head = {}) {
    return scale_step(editing::step_name(config_, Edit::Of::attention, 0, name), 2, head);
  };
  const Edit off = without({0, 0}), mean = without({0, 0}, By::mean), layer = without_heads_of(0);
  // Gates are made of the inputs, too, and heads of queries may be others than those of contexts.
  for (const Edits& edits : {Edits{step("inputs"), layer}, Edits{step("queries", 0), off},
                             Edits{step("values", 0), off}, Edits{off, scale({0, 1}, 2)}, Edits{off, scale({1, 0}, 2)},
                             Edits{mean, scale({0, 0}, 2)}, Edits{step("values"), reweigh({0, 0}, Weights::uniform)}}) {
    EXPECT_NO_THROW(refuse_overwritten(edits, config_)) << edits.front().step << ' ' << edits.back().what;
  }
  for (const Edits& edits :
       {Edits{scale({0, 0}, 2), off}, Edits{off, scale({0, 0}, 2)}, Edits{off, off}, Edits{step("weights", 0), off},
        Edits{step("values"), layer}, Edits{step("queries"), skip_attention(0)}, Edits{skip_layer(0), mean},
        Edits{step("scores", 0), reweigh({0, 0}, Weights::uniform)}}) {
    expect_error(Error::Kind::argument, {"edits that all change something"},
                 [&] { refuse_overwritten(edits, config_); });
  }
}

TEST_P(Identities, WhatIsNotThereIsRefused) {
  const std::string prefix = config_.family == "gpt2" ? "h.1.attn." : "model.layers.1.self_attn.";
  const auto refused = [&](const Edits& edits, const char* says, Error::Kind kind = Error::Kind::argument) {
    expect_error(kind, {says}, [&] { model_.forward(ids_, {.edits = edits}); });
  };
  refused({scale_step(prefix + "contexts", 2)}, ("did you mean " + prefix + "context?").c_str());
  refused({scale_step(prefix + "alibi", 2)}, "a step that this pass takes");
  refused({{.step = prefix + "values", .from = prefix + "context"}}, "a step that this pass takes");
  refused({scale_step(prefix + "context", 2, config_.heads)}, "a head of");
  refused({scale_step(prefix + "merged", 2, 0)}, "which has none");
  refused({without({std::ssize(config_.layers), 0})}, "a layer from 0 to");
  refused({without({0, -1})}, "a head of");
  refused({hide({0, 0}, 9, config_)}, "a token from 0 to 8");
  refused({replace_step(prefix + "context", Tensor::zeros({3}), 0)}, "attn.context sizes of 1", Error::Kind::shape);
  Trace edits(
      {.watches = [](const std::string&) { return false; }, .edit = [](const auto&, const Tensor& x) { return x; }});
  expect_error(Error::Kind::argument, {"a trace that records the pass"}, [&] {
    model_.forward(ids_, {.edits = {scale({0, 0}, 2)}, .trace = &edits});
  });
  for (const double factor : {kNan, kInf, -kInf, 1e39}) {
    expect_error(Error::Kind::argument, {"float32's range"}, [&] { scale({0, 0}, factor); });
    expect_error(Error::Kind::argument, {"float32's range"}, [&] { scale_step(prefix + "context", factor); });
  }
  EXPECT_THROW(keep_only(std::array{HeadAt{0, 99}}, config_), Error);
  EXPECT_THROW(token_losses(model_.forward(ids_), ids_.slice(0, 0, 2)), Error);
  EXPECT_THROW(patching(model_, ids_, ids_.slice(0, 0, 2), {1, 2}), Error);
  EXPECT_THROW(attribution(model_, ids_, -1), Error);
  EXPECT_THROW(head_scores(model_, ids_.slice(0, 0, 8)), Error);
  EXPECT_THROW(head_effects(model_, ids_, {.exact = -1}), Error);
  EXPECT_THROW(head_effects(model_, ids_, {.edits = {scale({0, 0}, 2)}, .exact = 1}), Error);
  EXPECT_THROW(head_effects(model_, ids_.slice(0, 0, 1), {.exact = 0}), Error);
}

TEST(Losses, AreRefusedWhereIdsOrLogitsDoNotFit) {
  const Tensor logits = Tensor::zeros({3, 4});
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 40}) {
    expect_error(Error::Kind::argument, {"[0, 4)", std::to_string(id)}, [&] {
      token_losses(logits, integers({0, 1, id}));
    });
  }
  expect_error(Error::Kind::dtype, {"int64"}, [&] { token_losses(logits, Tensor::zeros({3})); });
  const Tensor spread = integers({3, 9, 2, 9, 1, 9}, {3, 2}).select(1, 0);
  EXPECT_EQ(values(token_losses(logits, spread)), values(token_losses(logits, integers({3, 2, 1}))));
  for (const Tensor& row : {Tensor{}, logits, Tensor::zeros({0})}) {
    expect_error(Error::Kind::shape, {"logits (vocab_size)", row.shape().str()}, [&] { log_probabilities(row); });
  }
}

TEST(Estimates, AreRefusedWhereThereAreNone) {
  const auto says = [](LanguageModel& model) -> std::string {
    try {
      head_effects(model, Tensor::full({4}, 2, DType::i64), {.exact = 1});
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  LanguageModel bytes = load_language_model(model_path("llama"));
  store_matrices(bytes, DType::i8);
  EXPECT_NE(says(bytes).find("in fewer bits"), std::string::npos);
  LanguageModelConfig config = load_language_model(model_path("llama")).config();
  config.layers.back().mixer = Mixer::gated_delta;
  LanguageModel recurrent(config);
  EXPECT_NE(says(recurrent).find("keeps a state"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Families, Identities, testing::Values("gpt2", "llama", "gemma2"));

}  // namespace
}  // namespace attn::test
