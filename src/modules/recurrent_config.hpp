// What recurrent modules can be.
#pragma once

#include "attn/recurrent_modules.hpp"

namespace attn {

inline constexpr const char* kRecurrentOp = "recurrent module";

// With no 0 that stands for another number. Throws Error (argument) for what does not fit.
ModuleConfig checked_recurrent(RecurrentLayer::Kind kind, ModuleConfig config, std::int64_t convolution);
// The same where d_out says nothing of the heads.
ModuleConfig checked_recurrent(const ModuleConfig& config, const GatedDeltaConfig& sizes);
// Of a checked one.
GatedDeltaConfig sizes_of(const ModuleConfig& config, std::int64_t convolution);

}  // namespace attn
