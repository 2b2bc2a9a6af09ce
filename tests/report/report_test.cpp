// The page as text: what it holds, what it refuses, and that nothing but its own script may run. How it behaves is
// tested in a browser (tests/report/browser).
#include "attn/report.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "attn/error.hpp"
#include "attn/language_model.hpp"
#include "attn/rotary.hpp"
#include "core/testing.hpp"
#include "report/html/encode.hpp"
#include "report/html/json.hpp"
#include "report/html/scores.hpp"
#include "report/utf8.hpp"

namespace attn::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Trace six_words() {
  Trace steps;
  Generator rng(123);
  MultiHeadAttention module({.d_in = 3, .d_out = 4, .num_heads = 2}, rng);
  module.AttentionLayer::forward(Generator(7).rand({6, 3}), &steps);
  return steps;
}

Trace weights_only(const Shape& shape) {
  Trace steps;
  steps.record("weights", Tensor::full(shape, 1.0 / static_cast<double>(std::max<std::int64_t>(shape.back(), 1))));
  return steps;
}

std::string message_of(const Trace& trace, const ReportOptions& options = {}) {
  try {
    report(trace, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Report, IsTheSameForTheSameTrace) {
  const std::string page = report(six_words());
  EXPECT_EQ(page, report(six_words()));
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, testing::EndsWith("</html>\n"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST(Report, AllowsNoNetworkAndNoScriptButItsOwn) {
  const std::string page = report(six_words());
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe-inline")));
  EXPECT_FALSE(std::regex_search(page.substr(0, page.find("<style>")), std::regex("(src|href)=")));
}

// PyTorch's code is there where its lines are all of the module, this library's in any case.
TEST(Report, CodeToTakeAwayIsAllOfTheModule) {
  const auto page = [](const std::function<void(ModuleConfig&)>& change) {
    ModuleConfig config{.d_in = 3, .d_out = 4, .num_heads = 2};
    change(config);
    Generator rng(123);
    MultiHeadAttention module(config, rng);
    Trace steps;
    module.AttentionLayer::forward(Generator(7).rand({6, 3}), &steps);
    return report(steps, {.module = "multihead", .config = config, .parameters = module.state_dict()});
  };
  EXPECT_THAT(page([](ModuleConfig&) {}),
              AllOf(HasSubstr("import torch"), HasSubstr("attn::MultiHeadAttention module(")));
  const auto without_torch = [](const std::string& field) {
    return AllOf(HasSubstr("attn::MultiHeadAttention module("), HasSubstr(field), Not(HasSubstr("import torch")));
  };
  EXPECT_THAT(page([](ModuleConfig& c) { c.kv_heads = 1; }), without_torch(".kv_heads = 1"));
  EXPECT_THAT(page([](ModuleConfig& c) { c.head_dim = 3; }), without_torch(".head_dim = 3"));
  EXPECT_THAT(page([](ModuleConfig& c) { c.window = 2; }), without_torch(".window = 2"));
  EXPECT_THAT(page([](ModuleConfig& c) { c.out_bias = false; }), without_torch(".out_bias = false"));
  EXPECT_THAT(page([](ModuleConfig& c) { c.softcap = 5; }), without_torch(".softcap = 5"));
}

nlohmann::json data_of(const std::string& page) {
  const std::string_view begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

// What the page knows of the call, without a browser: each option by itself beside the others.
TEST(Report, ItsDataTellWhatTheyAreOf) {
  ReportOptions options;
  options.tokens = {"a", "b", "c", "d", "e", "f"}, options.key_tokens = {"g", "h", "i", "j", "k", "l"};
  options.title = "six", options.unit = "letter", options.module = "multihead", options.command = "attn report";
  options.notes = {"one", "two"}, options.seed = 123, options.training = true, options.random_weights = true;
  options.config = {.d_in = 3, .d_out = 4, .context_length = 8, .dropout = 0.5, .num_heads = 2, .kv_heads = 1};
  options.config->window = 3, options.config->softcap = 5, options.config->scale = 0.25, options.config->head_dim = 4;
  options.config->rope = rotary_frequencies({.head_dim = 4});
  options.config->latents = {.query = 1, .latent = 2, .plain = 3, .rotary = 4, .value = 5};
  const nlohmann::json data = data_of(report(six_words(), options)), config = data["config"];
  EXPECT_EQ(data["tokens"], nlohmann::json(options.tokens));
  EXPECT_EQ(data["keyTokens"], nlohmann::json(options.key_tokens));
  EXPECT_EQ(data["notes"], nlohmann::json(options.notes));
  const auto expect_members = [](const nlohmann::json& found, const nlohmann::json& expected) {
    for (const auto& [name, value] : expected.items()) EXPECT_EQ(found.at(name), value) << name;
  };
  const nlohmann::json latents{{"query", 1}, {"latent", 2}, {"plain", 3}, {"rotary", 4}, {"value", 5}};
  expect_members(data, {{"title", "six"}, {"unit", "letter"}, {"module", "multihead"}});
  expect_members(data, {{"seed", 123}, {"training", true}});
  EXPECT_THAT(data["randomWeights"].get<std::string>(), HasSubstr("drawn with seed 123."));
  const std::vector<std::vector<std::string>> facts{{"module", "multihead"},
                                                    {"command", "attn report"},
                                                    {"seed", "123"},
                                                    {"dropout flavour", "mkl"},
                                                    {"mode", "training, dropout 0.5"}};
  for (const auto& fact : facts) EXPECT_THAT(data["facts"], Contains(nlohmann::json(fact)));
  expect_members(config, {{"d_in", 3}, {"d_out", 4}, {"context_length", 8}, {"dropout", 0.5}, {"num_heads", 2}});
  expect_members(config, {{"kv_heads", 1}, {"window", 3}, {"softcap", 5}, {"scale", 0.25}, {"head_dim", 4}});
  expect_members(config, {{"causal", true}, {"qkv_bias", false}, {"out_proj", true}, {"latents", latents}});
  EXPECT_EQ(config["rope"]["invFreq"].size(), 2u);
  const nlohmann::json bare = data_of(report(six_words()));
  EXPECT_FALSE(bare.contains("keyTokens"));
  EXPECT_EQ(bare["tokens"], (nlohmann::json{"1", "2", "3", "4", "5", "6"}));
  for (const char* name : {"config", "kind", "seed"}) EXPECT_TRUE(bare[name].is_null()) << name;
}

TEST(Report, TokensStayText) {
  const std::string evil = "</script><script>alert(1)</script>";
  const std::string page =
      report(weights_only({1, 2, 2}), {.tokens = {evil, "\"&<>\x01\xff"}, .command = evil, .notes = {evil}});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e\\u003cscript\\u003ealert(1)"));
  EXPECT_THAT(page, HasSubstr("\\u0022\\u0026\\u003c\\u003e\\u0001\\u005cxFF"));
}

TEST(Report, WantsWeightsThatFit) {
  EXPECT_THAT(message_of(Trace()), HasSubstr("a trace with the step \"weights\"; found an empty one"));
  EXPECT_THAT(message_of(weights_only({5})), HasSubstr("weights (heads, queries, keys); found (5,)"));
  EXPECT_THAT(message_of(weights_only({1, 3, 3}), {.tokens = {"a", "b"}}),
              HasSubstr("3 tokens, one for each row; found 2"));
  EXPECT_THAT(message_of(weights_only({2, 1, 3, 3}), {.item = 2}), HasSubstr("item from 0 to 1; found 2"));
  Trace odd = weights_only({2, 3, 3});
  odd.record("queries", Tensor::zeros({2, 4, 5}));
  EXPECT_THAT(message_of(odd), HasSubstr("queries that fit the weights (2, 3, 3)"));
  Trace layers;
  layers.record("a.weights", Tensor::ones({1, 2, 2}));
  layers.record("b.weights", Tensor::ones({1, 3, 3}));
  EXPECT_THAT(message_of(layers), HasSubstr("layers of one shape (1, 2, 2)"));
}

TEST(Report, TakesEveryShapeOfWeights) {
  for (const Shape& shape :
       {Shape{0, 0}, Shape{1, 1}, Shape{3, 4, 7}, Shape{2, 3, 4, 4}, Shape{1, 200, 130}, Shape{0, 2, 2}}) {
    SCOPED_TRACE(shape.str());
    if (shape.numel() == 0 && shape[0] == 0 && shape.size() == 3) continue;
    EXPECT_THAT(report(weights_only(shape)), HasSubstr("\"blocks\":["));
  }
}

TEST(Report, ChecksWhatItShows) {
  EXPECT_THAT(report(six_words()), Not(HasSubstr("\"holds\":false")));
  Trace leaking = weights_only({1, 2, 2});
  leaking.record("masked", Tensor::of({{1, -INFINITY}, {1, 1}}).unsqueeze(0));
  EXPECT_THAT(report(leaking), HasSubstr("{\"name\":\"masked keys have no weight\",\"holds\":false,\"value\":0.5"));
  Trace nan;
  nan.record("weights", Tensor::of({{NAN, 1}, {0.5, 0.6f}}));
  EXPECT_THAT(report(nan), HasSubstr("{\"name\":\"each row of weights sums to 1\",\"holds\":false"));
  EXPECT_THAT(report(nan), HasSubstr("{\"name\":\"every value is a number\",\"holds\":false,\"value\":1"));
  Trace one_nan;  // the other rows are well
  one_nan.record("weights", Tensor::of({{NAN, 1}, {0.5, 0.5}}));
  EXPECT_THAT(report(one_nan),
              HasSubstr("{\"name\":\"each row of weights sums to 1\",\"holds\":false,\"value\":\"inf\""));
  Trace wrong;
  wrong.record("scaled", Tensor::of({{0, 1}, {2, 3}}));
  wrong.record("weights", Tensor::of({{0.5, 0.5}, {0.5, 0.5}}));
  EXPECT_THAT(report(wrong), HasSubstr("{\"name\":\"float64 gives the same weights\",\"holds\":false,\"value\":0.231"));
}

TEST(Json, HasWordsForWhatIsNoNumber) {
  report_page::Json json;
  json.array().number(-INFINITY).number(INFINITY).number(NAN).number(-0.5).end();
  EXPECT_EQ(json.str(), "[\"-inf\",\"inf\",\"nan\",-0.5]");
}

// Scores that are changed on their way are no error of the weights: each alone, and all together.
TEST(Report, ChecksFollowEveryStepOfTheScores) {
  std::mt19937 rng(5);
  const std::int64_t t = 6;
  Tensor q = Tensor::empty({1, 2, t, 4}), bias = Tensor::empty({t, t});
  std::normal_distribution<float> normal(0, 3);
  for (Tensor* x : {&q, &bias}) {
    for (std::int64_t i = 0; i < x->numel(); ++i) x->data<float>()[i] = normal(rng);
  }
  const ScoreFunction half = ScoreFunction::elementwise([](auto score, auto...) { return score / 2; });
  const Tensor slopes = Tensor::of({0.5f, 1}), table = Tensor::of({{0.5f, 1}, {2, 0}, {-1, 3}, {1, -2}});
  const std::pair<const char*, AttentionOptions> cases[] = {
      {"capped", {.softcap = 1}},
      {"scored", {.score_function = half}},
      {"biased", {.mask = Mask::additive(bias)}},
      {"relative", {.relative_bias = {table}}},
      {"alibi", {.alibi_slopes = slopes}},
      {"masked", {.mask = Mask::causal(), .softcap = 1}},
      {"masked",
       {.mask = Mask::causal() & Mask::additive(bias), .softcap = 1, .score_function = half, .alibi_slopes = slopes}}};
  for (const auto& [step, options] : cases) {
    SCOPED_TRACE(step);
    Trace trace;
    attention(q, q, q, options, &trace);
    const std::string page = report(trace);
    EXPECT_THAT(page, HasSubstr("\"name\":\"" + std::string(step) + "\""));
    EXPECT_THAT(page, HasSubstr("{\"name\":\"float64 gives the same weights\",\"holds\":true"));
    EXPECT_THAT(page, Not(HasSubstr("\"holds\":false")));
  }
}

TEST(Report, Base64IsRfc4648) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [text, wanted] : vectors) {
    EXPECT_EQ(report_page::base64(std::as_bytes(std::span(text.data(), text.size()))), wanted);
  }
}

TEST(Report, NamesBytesThatAreNoUtf8) {
  EXPECT_EQ(valid_utf8("ä€😀"), "ä€😀");
  EXPECT_EQ(valid_utf8("a\xC0\xAF"), "a\\xC0\\xAF");                    // overlong
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), "\\xED\\xA0\\x80");             // a surrogate
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80x"), "\\xF4\\x90\\x80\\x80x");  // past the last code point
  EXPECT_EQ(valid_utf8("\xE2\x82"), "\\xE2\\x82");                      // cut off
  EXPECT_EQ(valid_utf8(std::string("\0", 1)), std::string("\0", 1));
}

TEST(Report, HeadScores) {
  const auto uniform = report_page::head_scores(Tensor::full({4, 4}, 0.25));
  EXPECT_NEAR(uniform.entropy, std::log(4.0), 1e-12);
  EXPECT_NEAR(uniform.distance, 1.25, 1e-12);
  EXPECT_NEAR(uniform.first, 0.25, 1e-12);
  EXPECT_NEAR(uniform.previous, 0.25, 1e-12);
  EXPECT_NEAR(uniform.diagonal, 0.25, 1e-12);
  const auto own = report_page::head_scores(Tensor::of({{1, 0, 0}, {0, 1, 0}, {0, 0, 0}}));  // the last row sees no key
  EXPECT_EQ(own.entropy, 0);
  EXPECT_EQ(own.first, 0.5);
  EXPECT_EQ(own.diagonal, 1);
  const auto before = report_page::head_scores(Tensor::of({{1, 0, 0}, {1, 0, 0}, {0, 0.5f, 0.5f}}));
  EXPECT_EQ(before.previous, 0.75);
}

// Weights (1, 2n, 2n) of a head whose every query looks at one key.
Tensor looking_at(std::int64_t n, const std::function<std::int64_t(std::int64_t)>& key) {
  Tensor weights = Tensor::zeros({1, 2 * n, 2 * n});
  for (std::int64_t i = 0; i < 2 * n; ++i) weights.set({0, i, std::clamp<std::int64_t>(key(i), 0, i)}, 1);
  return weights;
}

TEST(Report, HeadKinds) {
  const std::vector<std::int64_t> ids{7, 3, 9, 3, 5};
  const std::int64_t n = 5;
  const auto kinds = [&](const std::function<std::int64_t(std::int64_t)>& key) {
    const auto k = report_page::head_kinds(looking_at(n, key).select(0, 0), ids);
    return std::vector<double>{k.first, k.previous, k.same, k.induction};
  };
  using Kinds = std::vector<double>;
  EXPECT_EQ(kinds([](std::int64_t) { return 0; }), (Kinds{1, 0, 0, 0}));
  EXPECT_EQ(kinds([](std::int64_t i) { return i - 1; }), (Kinds{0, 1, 0, 0}));
  EXPECT_EQ(kinds([](std::int64_t i) { return i; }), (Kinds{0, 0, 0, 0}));           // itself is no kind
  EXPECT_EQ(kinds([&](std::int64_t i) { return i - n; }), (Kinds{0.2, 0, 0.8, 0}));  // key 0 is the first
  EXPECT_EQ(kinds([&](std::int64_t i) { return i - n + 1; }), (Kinds{0, 0, 0, 1}));
  EXPECT_EQ(kinds([&](std::int64_t i) { return i - n + 2; }), (Kinds{0, 0, 0.2, 0}));       // 3, and the next 3
  EXPECT_EQ(kinds([&](std::int64_t i) { return i == 8 ? 2 : i; }), (Kinds{0, 0, 0, 0.2}));  // after the first 3
}

// Induction heads come first, then the others in their order; of one kind the strongest, and only heads that have it as
// their name.
TEST(Report, TheStrongestHeadThatHasAName) {
  using report_page::HeadKinds, report_page::strongest_head;
  using Heads = std::vector<std::vector<HeadKinds>>;
  using Place = std::pair<std::int64_t, std::int64_t>;
  const HeadKinds none{.first = 0.3, .previous = 0.39}, sink{.first = 0.9}, before{.previous = 0.7}, own{.same = 0.8};
  const HeadKinds weak{.induction = 0.4}, strong{.first = 0.1, .induction = 0.6},
      hidden{.first = 0.5, .induction = 0.45};
  const Heads heads{{none, sink, hidden}, {before, weak}, {own, strong, before}};
  EXPECT_EQ(strongest_head(heads, {}), Place(2, 1));
  EXPECT_EQ(strongest_head(heads, 1), Place(1, 1));
  EXPECT_EQ(strongest_head(heads, 0), Place(0, 1));
  EXPECT_EQ(strongest_head({{own, sink}, {before}}, {}), Place(1, 0));
  EXPECT_EQ(strongest_head({{sink}, {own}}, {}), Place(1, 0));
  EXPECT_FALSE(strongest_head({{none}}, {}));
  EXPECT_FALSE(strongest_head({}, {}));
  for (const std::int64_t layer : {-1, 3}) EXPECT_FALSE(strongest_head(heads, layer));
}

TEST(Report, NamesHeadsOfATextReadTwice) {
  Trace once, twice, more;
  for (const char* layer : {"layers.0", "layers.1"}) {
    const Trace::Scope first(&once, layer), second(&twice, layer), third(&more, layer);
    once.record("weights", Tensor::full({2, 3, 3}, 1.0 / 3));
    const std::vector<Tensor> heads{looking_at(2, [](std::int64_t) { return 0; }).select(0, 0),
                                    looking_at(2, [](std::int64_t i) { return i - 1; }).select(0, 0)};
    twice.record("weights", stack(heads));
    more.record("weights", Tensor::full({1, 4, 4}, 0.25));
  }
  const std::string page = report(once, {.repeated = twice, .repeated_ids = {4, 6}});
  EXPECT_THAT(page, HasSubstr("\"repeated\":2,\"named\":0.4"));
  EXPECT_THAT(page, HasSubstr("\"unit\":\"token\""));
  EXPECT_THAT(page, HasSubstr("\"start\":{\"layer\":0,\"head\":1}"));  // it looks at the previous token
  EXPECT_THAT(report(once, {.unit = "byte", .layer = 1, .repeated = twice, .repeated_ids = {4, 6}}),
              testing::AllOf(HasSubstr("\"start\":{\"layer\":1,\"head\":1}"), HasSubstr("\"unit\":\"byte\"")));
  EXPECT_THAT(report(once, {.head = 0, .repeated = twice, .repeated_ids = {4, 6}}),
              HasSubstr("\"start\":{\"layer\":0,\"head\":0}"));
  EXPECT_THAT(page, HasSubstr("\"kinds\":[{\"first\":1,\"previous\":0,\"same\":0,\"induction\":0},"
                              "{\"first\":0,\"previous\":1,\"same\":0,\"induction\":0}]"));
  EXPECT_THAT(report(once), Not(HasSubstr("\"kinds\":")));
  const std::string expected = "repeated weights of the same layers and heads";
  EXPECT_THAT(message_of(once, {.repeated = twice, .repeated_ids = {4, 6, 8}}), HasSubstr(expected));
  EXPECT_THAT(message_of(once, {.repeated = twice, .repeated_ids = {4}}), HasSubstr(expected));
  EXPECT_THAT(message_of(once, {.repeated = more, .repeated_ids = {4, 6}}), HasSubstr(expected));
  EXPECT_THAT(message_of(once, {.repeated_ids = {4, 6}}), HasSubstr("a trace with the step"));
}

// Two heads share a key head: the page keeps it once, and its checks compare each head with its own keys.
TEST(Report, HeadsShareKeys) {
  Generator rng(5);
  MultiHeadAttention module({.d_in = 8, .d_out = 8, .num_heads = 4, .kv_heads = 2}, rng);
  for (Parameter* p : module.parameters()) p->value = rng.randn(p->value.shape());
  Trace steps;
  module.forward(rng.randn({6, 8}), rotary_table(rotary_frequencies({.head_dim = 2}, 6), 6), &steps);
  EXPECT_EQ(steps["keys"].size(0), 2);
  const std::string page = report(steps);
  EXPECT_THAT(page, HasSubstr("\"name\":\"float64 gives the same weights\",\"holds\":true"));
  const Tensor keys = steps["keys"];
  EXPECT_TRUE(identical(report_page::of_head(keys, 1, 4), keys.select(0, 0)));
  EXPECT_TRUE(identical(report_page::of_head(keys, 2, 4), keys.select(0, 1)));
  Trace odd = weights_only({4, 6, 6});
  odd.record("keys", Tensor::zeros({3, 6, 2}));
  EXPECT_THAT(message_of(odd), HasSubstr("keys that fit the weights (4, 6, 6)"));
}

// A text's own part of a step, or the whole of one that all texts share, also where it has as many rows as there are
// texts.
TEST(Report, ShowsTheTextThatIsAskedFor) {
  Trace trace;
  const Tensor scores = Tensor::of({{1, 2}, {3, 4}}), weights = Generator(3).rand({2, 1, 2, 2});
  trace.record("scores", scores);
  trace.record("weights", weights);
  for (const std::int64_t item : {0, 1}) {
    const auto block = report_page::arrange(trace, item).blocks.front();
    EXPECT_TRUE(identical(block.weights(), weights.select(0, item)));
    EXPECT_TRUE(identical(*block.find("scores"), scores.unsqueeze(0)));
  }
}

// Keys are masked as recorded, each head by itself. With weights alone, the future is masked where all of it is 0.
TEST(Report, KnowsWhatIsMasked) {
  const auto block = [](const Trace& trace) { return report_page::arrange(trace, 0).blocks.front(); };
  Trace recorded;
  recorded.record("masked", Tensor::of({{1, -INFINITY}, {1, 1}, {1, 1}, {-INFINITY, -INFINITY}}).view({2, 2, 2}));
  recorded.record("weights", Tensor::of({{1, 0}, {0.5f, 0.5f}, {0.5f, 0.5f}, {0, 0}}).view({2, 2, 2}));
  const Tensor keep = block(recorded).keep(), any = block(recorded).keep_in_any_head();
  const bool kept[] = {true, false, true, true, true, true, false, false}, somewhere[] = {true, true, true, true};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(keep.data<bool>()[i], kept[i]) << i;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(any.data<bool>()[i], somewhere[i]) << i;

  Trace causal;
  causal.record("weights", Tensor::of({{1, 0}, {0.5f, 0.5f}}));
  EXPECT_FALSE(block(causal).keep().data<bool>()[1]);
  EXPECT_THAT(report(causal), HasSubstr("\"causal\":true"));
  causal = Trace();
  causal.record("scores", Tensor::of({{900, -900}, {0, 0}}));  // no mask, but a weight that is 0 in float32
  causal.record("weights", Tensor::of({{1, 0}, {0.5f, 0.5f}}));
  EXPECT_FALSE(block(causal).keep().defined());
}

TEST(Report, OpensWhereItIsTold) {
  const Trace two = weights_only({2, 3, 3});
  EXPECT_THAT(report(two, {.head = 1}), HasSubstr("\"start\":{\"layer\":0,\"head\":1}"));
  EXPECT_THAT(message_of(two, {.head = 2}), HasSubstr("head from 0 to 1; found 2"));
  EXPECT_THAT(message_of(two, {.layer = -1}), HasSubstr("layer from 0 to 0; found -1"));
}

}  // namespace
}  // namespace attn::test
