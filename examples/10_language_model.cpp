// A small language model learns a text, stops in the middle, and goes on from its checkpoint as if it had not.
#include <attn/attn.hpp>
#include <cstdio>
#include <filesystem>

int main() {
  std::string poem;
  for (int i = 0; i < 60; ++i) poem += "a query meets a key, and a value follows. ";
  const attn::TrainText text(attn::ByteTokenizer().encode(poem), 16);  // ids, and how many the model sees at once
  const attn::GPTConfig config{.context_length = 16, .layers = 1, .heads = 2, .width = 32};
  const auto file = std::filesystem::temp_directory_path() / "attn-example.safetensors";

  attn::Generator rng(1);
  attn::GPT model(config, rng);
  attn::Trainer trainer(model, rng, text, {.steps = 60, .batch = 8, .warmup = 5, .eval_every = 20, .lr = 0.01});
  while (trainer.steps_done() < 30) trainer.step();
  trainer.save(file);
  trainer.run([](const attn::Trainer::Step& step) {
    if (step.validation)
      std::printf("step %d  validation %.1f nats\n", static_cast<int>(step.number), *step.validation);
  });

  attn::Generator other(2);
  attn::GPT again(config, other);
  attn::Trainer resumed(again, other, text, attn::TrainCheckpoint::load(file));
  resumed.run();
  std::printf("the same losses: %s\n", resumed.losses() == trainer.losses() ? "yes" : "no");
  std::filesystem::remove(file);
}
