// The checkpoint of attn train, which --resume reads; one that is taken takes a step.
#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "folder.hpp"
#include "train/training.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const attn::fuzz::Folder folder;
  folder.write("text", "Once upon a time there was a text of some words, and then it was read again and again.");
  folder.write("model.training.safetensors", {data, size});
  try {
    const auto from = attn::TrainCheckpoint::load(folder.path() / "model.training.safetensors");
    attn::tool::Training training(from, {(folder.path() / "text").string()}, attn::ByteTokenizer());
    if (!training.trainer.done()) training.trainer.step();
  } catch (const attn::Error&) {
  }
  return 0;
}
