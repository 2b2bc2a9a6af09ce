// Checks the configs of recurrent modules, and finds their sizes.
#pragma once

#include "attn/recurrent_modules.hpp"

namespace attn {

inline constexpr const char* kRecurrentOp = "recurrent module";

// Returns the config with no 0 that stands for another number. Throws Error (argument) for what does not fit.
ModuleConfig checked_recurrent(RecurrentLayer::Kind kind, ModuleConfig config, std::int64_t convolution);
// Does the same where d_out says nothing of the heads.
ModuleConfig checked_recurrent(const ModuleConfig& config, const GatedDeltaConfig& sizes);
// Returns the sizes of a checked config.
GatedDeltaConfig sizes_of(const ModuleConfig& config, std::int64_t convolution);

}  // namespace attn
