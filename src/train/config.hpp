// Settings of a training run that make none, and numbers in what is said of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "attn/train.hpp"

namespace attn {

// Returns what a user knows a setting by, for its name in C++: "TrainConfig::min_lr", "TrainRanks::sequence".
using SettingName = std::function<std::string(std::string_view)>;

// Throws Error (argument) for settings that make no run on texts of that many tokens.
void check_config(
    const TrainConfig& config, const TrainRanks& ranks, std::int64_t context,
    const SettingName& called = [](std::string_view member) { return std::string(member); });

// The shortest text that is read back as this number, or one of so many digits; "nan" of either sign.
std::string number(double x, int digits = 0);

}  // namespace attn
