// Whoever names some fields of a struct is not warned of the others: each has an initializer of its own.
#include "attn/attn.hpp"
#include "core/testing.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"

namespace attn::test {
namespace {

TEST(Designated, AnyFieldsOfOptionsCanBeLeftOut) {
  const auto made = std::tuple(
      RelativeBias{.max_distance = 64}, Mask{.is_causal = true}, AttentionOptions{.softcap = 1},
      AttentionResult{.output = {}}, LinearAttentionOptions{.rule = StateRule::delta}, figure::Options{.max_cells = 8},
      figure::Points{.name = "a"}, figure::SpaceOptions{.arrows = false}, figure::StepsOptions{.item = 1},
      figure::Choice{.item = 1}, figure::Series{.name = "a"}, figure::Axes{.log_y = true},
      figure::TerminalOptions{.columns = 40}, ReportOptions{.item = 1}, LiveModel{.in_bytes = true},
      LiveModel::Kept{.step = 1}, LanguageModelConfig{.width = 8}, EncoderConfig{.token_types = 1},
      GPTConfig{.width = 8}, ModuleConfig{.d_in = 8}, Edit{.layer = 1}, RopeConfig{.head_dim = 8},
      RotaryFrequencies{.attention_factor = 2}, Sampling{.top_k = 1}, GenerateOptions{.tokens = 1},
      EncodeOptions{.add_special_tokens = false}, ChatMessage{.role = "user"}, Parameter{.name = "w"},
      TrainConfig{.steps = 1}, AdamWConfig{.beta1 = 0.5}, CosineSchedule{.peak = 1}, TrainRanks{.sequence = 1},
      KVCacheConfig{.batch = 1}, StoredTensor{.name = "w"}, io::NamedTensors{.metadata = {}});
  EXPECT_EQ(std::get<0>(made).max_distance, 64);
}

}  // namespace
}  // namespace attn::test

#pragma GCC diagnostic pop
