// Weights in and out: a state_dict with PyTorch's names, in a safetensors file, loaded by another module.
#include <attn/attn.hpp>
#include <filesystem>
#include <iostream>

int main() {
  const attn::ModuleConfig config{.d_in = 3, .d_out = 2};
  attn::Generator rng(789), other(1);
  attn::SelfAttentionV2 trained(config, rng), loaded(config, other);

  const auto path = std::filesystem::temp_directory_path() / "attn_example.safetensors";
  attn::io::NamedTensors file;
  for (const auto& [name, value] : trained.state_dict()) file.tensors.emplace_back(name, value);
  attn::io::save_safetensors(path, file);

  attn::StateDict state;
  for (const auto& [name, value] : attn::io::load(path).tensors) {
    std::cout << name << " " << value.shape().str() << "\n";
    state.emplace(name, value);
  }
  std::filesystem::remove(path);
  loaded.load_state_dict(state);

  const attn::Tensor x = attn::Tensor::of({{0.43f, 0.15f, 0.89f}, {0.55f, 0.87f, 0.66f}, {0.57f, 0.85f, 0.64f}});
  std::cout << "trained " << attn::to_string(trained.forward(x)) << "\n";
  std::cout << "loaded  " << attn::to_string(loaded.forward(x)) << "\n";
}
