// The modules by name: the one list that the command, Python's modules and the report's snippets read.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "attn/modules.hpp"

namespace attn {

// ModuleUses tells what of ModuleConfig acts on a module, and what it computes with.
struct ModuleUses {
  bool weights = false;    // d_in, d_out: all but the simplest have them
  bool linear = false;     // context_length, dropout, qkv_bias, scale, layer_order: weights are Linear's
  bool mask = false;       // causal
  bool rope = false;       // rope
  bool heads = false;      // num_heads
  bool out_proj = false;   // out_proj
  bool source = false;     // keys and values come from a second input
  bool recurrent = false;  // a state takes the place of the keys and values (attn/recurrent_modules.hpp)
  bool latent = false;     // latents: keys and values are made of one vector (attn/latent_attention.hpp)
};

struct ModuleKind {
  std::string_view name;        // the command's: "multihead"
  std::string_view class_name;  // "MultiHeadAttention"
  std::string_view summary;
  ModuleUses uses;
  std::unique_ptr<Module> (*make)(const ModuleConfig& config, Generator& rng);
};

std::span<const ModuleKind> module_kinds() noexcept;
// The kind of that name, or null where there is none.
const ModuleKind* find_module_kind(std::string_view name) noexcept;
// The kind of that name. Where there is none, throws Error (argument), which lists the names.
const ModuleKind& module_kind(std::string_view name);

}  // namespace attn
