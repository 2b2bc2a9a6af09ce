// A GGUF file: its tensors, and the tokenizer that its metadata may hold.
#include "attn/gguf.hpp"
#include "attn/tokenizer.hpp"
#include "fuzz.hpp"

namespace {

void tokenize(const attn::io::Gguf& file) {
  try {
    const auto tokenizer = attn::BPETokenizer::parse(file);
    tokenizer.decode(tokenizer.encode("Your journey's 1024 <s> gr\u00f6\u00dfer \xff"));
  } catch (const attn::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return attn::fuzz::run(data, size, [](auto bytes) {
    const attn::io::Gguf file = attn::io::Gguf::parse(bytes, "fuzz");
    tokenize(file);
    attn::io::NamedTensors tensors;
    for (const attn::io::GgufTensor& tensor : file.tensors()) {
      tensors.tensors.emplace_back("", file.load(tensor));
      if (tensor.shape.size() != 2) continue;
      if (const auto blocks = file.load_blocks(tensor, 0, tensor.shape[0])) blocks->read(0, tensor.shape[0]);
    }
    return tensors;
  });
}
