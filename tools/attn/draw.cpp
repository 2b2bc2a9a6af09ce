// attn draw: the random numbers of the notebooks, and dropout on them.
#include <unistd.h>

#include <memory>

#include "attn/io.hpp"
#include "attn/random.hpp"
#include "attn/reference.hpp"
#include "common/drawn.hpp"
#include "common/inputs.hpp"
#include "common/outputs.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "io/writers.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct DrawFlags {
  std::string what, tensor, output, rng = "mkl";
  std::uint64_t seed = 123, max_bytes = 0;
  double dropout = 0;
};

constexpr const char* kDrawNotes =
    "The numbers are those of PyTorch after torch.manual_seed(SEED). With --dropout, kept elements are divided by 1 "
    "- P, as torch.nn.Dropout does in train mode.";

constexpr const char* kDrawExamples =
    "attn draw randn:4,8,2 --seed 1337\n"
    "attn draw randint:0,10:3,2 --seed 42\n"
    "attn draw ones:6,6 --dropout 0.5\n"
    "attn run causal --seed 789 --save-steps steps.safetensors\n"
    "attn draw steps.safetensors --tensor weights --dropout 0.5\n"
    "attn draw rand:6,3 --output x.npy";

Tensor source(const DrawFlags& flags, Generator& rng) {
  require_drawn_or_there(flags.what, "WHAT");
  if (is_drawn(flags.what)) {
    if (flags.tensor.empty()) return drawn(flags.what, "WHAT", rng);
    refuse("--tensor", "a file of several tensors", flags.what);
  }
  return io::load_tensor(flags.what, flags.tensor, flags.max_bytes);
}

void draw(const Verb& verb, const DrawFlags& flags) {
  if (!(flags.dropout >= 0 && flags.dropout <= 1)) {
    refuse("--dropout", "a number from 0 to 1", default_text(flags.dropout));
  }
  if (verb.given("--seed") && flags.dropout == 0 && !is_random(flags.what)) {
    refuse("--seed", "numbers or dropout that are drawn", flags.what, "leave it out, or add --dropout");
  }
  Outputs outputs;
  outputs.declare("--output", flags.output, {".npy", ".npz", ".safetensors", ".csv"});
  Generator rng(flags.seed, dropout_flavour(flags.rng));
  Tensor numbers = source(flags, rng);
  if (flags.dropout > 0) {
    numbers = numbers.to(DType::f32);
    numbers = reference::dropout(numbers, rng.dropout_keep(numbers.shape(), flags.dropout), flags.dropout);
  }
  if (flags.output.empty()) return write_stdout(labelled(numbers, {}) + "\n");
  outputs.save({{"--output", [&](io::OutputFile& to) { io::write_tensor(to, flags.output, numbers); }}}, [&] {
    if (!outputs.to_stdout()) write_stdout(fitted("wrote " + escaped(flags.output) + "\n", STDOUT_FILENO));
  });
}

}  // namespace

void define_draw(Verb& verb, int&) {
  const auto flags = std::make_shared<DrawFlags>();
  verb.add_option("WHAT FILE", flags->what,
                  "The numbers:\n"
                  "rand:SIZES               uniform in [0, 1)\n"
                  "randn:SIZES              normal: mean 0, variance 1\n"
                  "randint:LOW,HIGH:SIZES   whole numbers below HIGH\n"
                  "ones:SIZES               ones, for --dropout\n"
                  "FILE                     a tensor, for --dropout")
      .offers({"rand:", "randn:", "randint:", "ones:"})
      .required();
  verb.add_option("--seed N", flags->seed, "The seed, as torch.manual_seed takes it: its low 32 bits count.");
  const Option& dropout =
      verb.add_option("--dropout P", flags->dropout, "The probability, from 0 to 1, that an element is dropped.");
  verb.add_option(
          "--rng NAME", flags->rng,
          "Draw dropout as PyTorch does on one kind of machine: mkl for Linux wheels on Intel processors, native "
          "for macOS and Arm.")
      .one_of({"mkl", "native"})
      .needs(dropout);
  verb.add_option("--tensor NAME", flags->tensor, "The tensor to take from a FILE that holds several.");
  verb.add_option("--output FILE", flags->output,
                  "Save the numbers as .npy, .npz, .safetensors or .csv; - writes .npy to standard output.");
  add_limit_flag(verb, flags->max_bytes);
  verb.notes(kDrawNotes);
  verb.examples(kDrawExamples);
  verb.callback([&verb, flags] { draw(verb, *flags); });
}

}  // namespace attn::tool
