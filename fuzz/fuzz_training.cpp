// The checkpoint of attn train, which --resume reads; one that is taken takes a step.
#include <optional>

#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "folder.hpp"
#include "train/run.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const attn::fuzz::Folder folder;
  folder.write("text", "Once upon a time there was a text of some words, and then it was read again and again.");
  folder.write("model.training.safetensors", {data, size});
  try {
    std::optional<attn::tool::Text> text;
    const auto run = attn::tool::Run::resume(folder.path() / "model.training.safetensors",
                                             {(folder.path() / "text").string()}, attn::ByteTokenizer(), text);
    if (!run->done()) run->step();
  } catch (const attn::Error&) {
  }
  return 0;
}
