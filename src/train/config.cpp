#include "train/config.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "attn/error.hpp"

namespace attn {

std::string number(double x, int digits) {
  if (std::isnan(x)) return "nan";
  std::array<char, 32> text{};
  char *const begin = text.data(), *const end = begin + text.size();
  return {begin, (digits == 0 ? std::to_chars(begin, end, x)
                              : std::to_chars(begin, end, x, std::chars_format::general, digits))
                     .ptr};
}

void check_config(const TrainConfig& c, const TrainRanks& ranks, std::int64_t context, const SettingName& called) {
  const auto require = [&](bool holds, std::string_view member, const std::string& expected, auto found) {
    if (holds) return;
    throw Error(Error::Kind::argument, called(member), expected, number(static_cast<double>(found)));
  };
  require(c.steps >= 1, "TrainConfig::steps", "at least 1", c.steps);
  require(c.batch >= 1, "TrainConfig::batch", "at least 1", c.batch);
  require(c.eval_every >= 1, "TrainConfig::eval_every", "at least 1", c.eval_every);
  require(c.warmup >= 0, "TrainConfig::warmup", "at least 0", c.warmup);
  require(c.lr > 0 && c.lr < 1e3, "TrainConfig::lr", "a number above 0 and below 1000", c.lr);
  require(c.min_lr >= 0 && c.min_lr <= c.lr, "TrainConfig::min_lr", "a number from 0 to " + called("TrainConfig::lr"),
          c.min_lr);
  require(c.clip >= 0, "TrainConfig::clip", "a number of at least 0", c.clip);
  const AdamWConfig& adamw = c.optimizer;
  require(adamw.beta2 >= 0 && adamw.beta2 < 1, "AdamWConfig::beta2", "a number from 0 to below 1", adamw.beta2);
  require(adamw.weight_decay >= 0 && std::isfinite(adamw.weight_decay), "AdamWConfig::weight_decay",
          "a number of at least 0", adamw.weight_decay);
  require(ranks.sequence >= 1 && ranks.size() % ranks.sequence == 0, "TrainRanks::sequence",
          "a divisor of the " + std::to_string(ranks.size()) + " ranks", ranks.sequence);
  require(c.batch % ranks.data() == 0, "TrainConfig::batch",
          "a multiple of the " + std::to_string(ranks.data()) + " ranks that share it", c.batch);
  require(ranks.sequence <= context, "TrainRanks::sequence",
          "sequence of at most the " + std::to_string(context) + " tokens of a text", ranks.sequence);
}

}  // namespace attn
