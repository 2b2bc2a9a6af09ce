#include "lm/hybrid_layer.hpp"

namespace attn {

std::unique_ptr<RecurrentLayer> make_hybrid_layer(ModuleConfig config, const GatedDeltaConfig& sizes, Generator& rng,
                                                  const std::string& prefix, const RecurrentNames& names) {
  config.out_bias = false;
  return std::make_unique<RecurrentLayer>(config, sizes, rng, prefix, names);
}

}  // namespace attn
