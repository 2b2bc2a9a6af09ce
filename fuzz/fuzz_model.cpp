// A model's folder: bytes up to the first zero are its config.json (none when empty), the rest is model.safetensors.
#include "attn/error.hpp"
#include "attn/pretrained.hpp"
#include "bytes.hpp"
#include "folder.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const attn::fuzz::Folder folder;
  attn::fuzz::Bytes bytes(data, size);
  folder.clear();
  if (const auto config = bytes.text(); !config.empty()) folder.write("config.json", config);
  folder.write("model.safetensors", bytes.rest());
  try {
    attn::GPT model = attn::load_gpt(folder.path());
    model.forward(attn::Tensor::zeros({1}, attn::DType::i64));
  } catch (const attn::Error&) {
  }
  return 0;
}
