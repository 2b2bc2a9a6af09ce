// Tests what the frequencies refuse, and what a config may be; golden/ compares their values with transformers'.
#include "attn/rotary.hpp"
#include "core/testing.hpp"

namespace attn::test {
namespace {

using Kind = Error::Kind;

TEST(Frequencies, AreThePapers) {
  const auto f = rotary_frequencies({.head_dim = 8});
  ASSERT_EQ(f.inv_freq.size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(f.inv_freq[static_cast<std::size_t>(i)], std::pow(10000, -2.0 * i / 8), 1e-7);
  }
  EXPECT_EQ(f.attention_factor, 1);
  EXPECT_EQ(rotary_frequencies({.head_dim = 10, .partial_rotary_factor = 0.4}).inv_freq.size(), 2U);
}

void refuses(const RopeConfig& config, const std::string& text, std::int64_t length = 0) {
  expect_error(Kind::argument, {text}, [&] { rotary_frequencies(config, length); });
}

TEST(Frequencies, RefuseNumbersThatGiveNone) {
  refuses({}, "head_dim from 2");
  refuses({.head_dim = 7}, "an even rotary_dim");
  refuses({.head_dim = std::int64_t{1} << 40}, "head_dim from 2 to 2^20");
  refuses({.head_dim = 8, .partial_rotary_factor = kNan}, "partial_rotary_factor from 2");
  refuses({.head_dim = 8, .partial_rotary_factor = 1.5}, "to head_dim = 8; found 12");
  refuses({.head_dim = 8, .theta = kNan}, "theta above 0; found nan");
  refuses({.head_dim = 8, .theta = -1}, "theta above 0");
  refuses({.head_dim = 8, .theta = 1e-300},
          "frequencies and attention factor are finite; found a frequency of inf by theta = 1e-300");
  refuses({.head_dim = 8}, "length of at least 0", -1);
  refuses({.type = RopeType::linear, .head_dim = 8}, "a factor; found none");
  refuses({.type = RopeType::linear, .head_dim = 8, .factor = 0}, "factor above 0");
  refuses({.type = RopeType::dynamic, .head_dim = 8, .factor = 2}, "max_position_embeddings of at least 1");
  refuses({.type = RopeType::dynamic, .head_dim = 2, .max_position_embeddings = 9, .factor = 2}, "at least 4");
  refuses({.type = RopeType::yarn, .head_dim = 8, .factor = 2}, "original_max_position_embeddings of at least 1");
  refuses({.type = RopeType::yarn, .head_dim = 8, .theta = 1, .original_max_position_embeddings = 9, .factor = 2},
          "theta other than 1");
  RopeConfig llama{.type = RopeType::llama3, .head_dim = 8, .original_max_position_embeddings = 9, .factor = 2};
  llama.low_freq_factor = llama.high_freq_factor;
  refuses(llama, "high_freq_factor above low_freq_factor");
  RopeConfig longrope{.type = RopeType::longrope, .head_dim = 8, .original_max_position_embeddings = 9, .factor = 2};
  longrope.short_factor = {1, 1, 1, 1}, longrope.long_factor = {1, 1, 1};
  refuses(longrope, "4 numbers in short_factor and long_factor; found 3");
  longrope.long_factor = {1, 0, 1, 1};
  refuses(longrope, "a factor of each pair above 0", 10);
  EXPECT_NO_THROW(rotary_frequencies(longrope));
  longrope.original_max_position_embeddings = 1;
  refuses(longrope, "attention factor are finite; found an attention factor of inf");
}

void config_fails(const std::string& json, const std::string& text, const std::string& layer = {}) {
  expect_error(Kind::data, {text}, [&] { parse_rope_config(json, layer); });
}

TEST(RopeConfig, RefusesWhatIsNone) {
  config_fails("", "expected JSON");
  config_fails("[]", "expected an object; found array");
  config_fails("{}", "head_dim to be there");
  config_fails(R"({"head_dim": 0})", "head_dim to be an integer from 1");
  config_fails(R"({"head_dim": -8})", "head_dim to be an integer from 1");
  config_fails(R"({"head_dim": 8, "rope_theta": "x"})", "rope_theta to be a number");
  config_fails(R"({"head_dim": 8, "rope_theta": NaN})", "expected JSON");
  config_fails(R"({"head_dim": 8, "rope_theta": 1e999})", "expected JSON");
  config_fails(R"({"head_dim": 8, "rope_scaling": 3})", "rope_scaling to be an object");
  config_fails(R"({"head_dim": 8, "rope_scaling": {"type": "mrope"}})", "llama3 or longrope; found \"mrope\"");
  config_fails(R"({"head_dim": 8, "rope_parameters": {"rope_type": 1}})", "rope_type to be a string");
  config_fails(R"({"head_dim": 8, "rope_parameters": {"rope_type": "longrope", "long_factor": ["1"]}})",
               "a list of numbers");
  const std::string nested = R"({"head_dim": 8, "rope_parameters": {"full": {"rope_type": "default"}, "none": null}})";
  config_fails(nested, "a layer type among: full");
  config_fails(nested, "a layer type among: full", "none");
  EXPECT_EQ(parse_rope_config(nested, "full").theta, 10000);
}

TEST(RopeConfig, TakesTheFamilysOwnBaseWhereTheFileHasNone) {
  EXPECT_EQ(parse_rope_config(R"({"head_dim": 8})", {}, 5e5).theta, 5e5);
  EXPECT_EQ(parse_rope_config(R"({"head_dim": 8, "rope_theta": 1e6})", {}, 5e5).theta, 1e6);
}

}  // namespace
}  // namespace attn::test
