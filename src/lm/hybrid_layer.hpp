// The layer with a state of released hybrid families.
#pragma once

#include <memory>
#include <string>

#include "attn/recurrent_modules.hpp"

namespace attn {

std::unique_ptr<RecurrentLayer> make_hybrid_layer(ModuleConfig config, const GatedDeltaConfig& sizes, Generator& rng,
                                                  const std::string& prefix, const RecurrentNames& names);

}  // namespace attn
