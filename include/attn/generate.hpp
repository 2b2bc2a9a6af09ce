// Text from a language model, a token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attn/gpt.hpp"
#include "attn/kv_cache.hpp"
#include "attn/language_model.hpp"
#include "attn/random.hpp"

namespace attn {

// Keeps a GPT's matrices (embeddings, projections, head) in `dtype`: float32, bfloat16 or int8. In bfloat16 they take
// half the memory, and a Decoder half the time; in int8 they take a quarter of the memory. An int8 matrix has a float32
// scale for each row: a 127th of the row's largest magnitude, and at least 2^-126. No number is off by more than half
// of its scale. Sums stay in float32. Such a model decodes; in bfloat16 it can be saved, too. forward() and training
// want float32. Throws Error (dtype) for another dtype, and (argument) for a matrix with NaN or infinities in int8, or
// one that is in int8 already.
void store_matrices(GPT& model, DType dtype);

// A GPT that remembers the keys and values of what it has read, so that a token more costs one token's work. Logits are
// GPT::forward's up to rounding: attention adds up in another order. No dropout acts. `model` must outlive it and keep
// its weights. `make` makes the layers' caches; without it they are KVCaches.
class Decoder {
 public:
  explicit Decoder(GPT& model, std::int64_t batch = 1, DType cache = DType::f32, const MakeCache& make = {});

  // Reads ids int64 (b, t), t >= 1 → the logits (b, vocab_size) that follow the last one. Throws Error (shape) when
  // that makes more than context_length tokens, and is then as before.
  Tensor read(const Tensor& ids);
  Tensor read(std::span<const std::int64_t> ids);  // batch 1: → (vocab_size)

  std::int64_t length() const noexcept { return length_; }  // tokens read
  void truncate(std::int64_t length);                       // forgets the later ones

 private:
  Tensor embed(const Tensor& ids) const;

  GPT* model_;
  std::int64_t batch_, length_ = 0;
  std::vector<std::unique_ptr<DecoderCache>> caches_;  // one a layer
};

// How a token is drawn, in this order: logits of tokens in the text already are divided by the repetition penalty where
// above 0, and multiplied by it below (Keskar et al. 2019); logits / temperature; only the top_k largest; of these only
// the largest whose probabilities add up to top_p (Holtzman et al. 2020, nucleus sampling), the one that reaches it
// included; only those at least min_p times as likely as the likeliest (Nguyen et al. 2024). Temperature 0 takes the
// largest. Of equal logits the lower ids come first, also where top_k cuts (transformers keeps all equal ones there).
struct Sampling {
  double temperature = 1;         // >= 0
  std::int64_t top_k = 0;         // 0: all
  double top_p = 1;               // in (0, 1]
  double min_p = 0;               // in [0, 1]
  double repetition_penalty = 1;  // > 0; 1: none
};

// Throws Error (argument) for what is out of range; candidates() and generate() do so before all else.
void require_valid(const Sampling& sampling);

struct Candidate {
  std::int64_t id = 0;
  double probability = 0;
};

// The tokens that may be drawn, and how likely each is. logits (vocab_size) float32; `text`: the ids before, for the
// repetition penalty. Throws Error: (argument) for a sampling out of range, (data) when a logit is NaN or none is above
// -inf.
std::vector<Candidate> candidates(const Tensor& logits, const Sampling& sampling,
                                  std::span<const std::int64_t> text = {});
// One of them. Draws one 53-bit number of rng, none at temperature 0.
std::int64_t sample(const Tensor& logits, const Sampling& sampling, Generator& rng,
                    std::span<const std::int64_t> text = {});

struct GenerateOptions {
  std::int64_t tokens = 100;  // at most so many
  Sampling sampling = {};
  std::vector<std::int64_t> stops = {};  // ids that end the text; they are not part of the result
  DType cache = DType::f32;              // of keys and values: f32, bf16, f16 or i8
  // What processes that write a text together do otherwise: distributed::over_ranks() of attn/cut_cache.hpp sets both.
  MakeCache make_cache = {};  // of each layer; a KVCache unless given
  // Is handed what draws a token here, and returns the token that all of them take.
  std::function<std::int64_t(const std::function<std::int64_t()>&)> agree = {};
};

void require_valid(const GenerateOptions& options);  // as of a sampling
// What sample() draws, or what options.agree makes of it.
std::int64_t next_token(const Tensor& logits, const GenerateOptions& options, Generator& rng,
                        std::span<const std::int64_t> text = {});

// Tokens that follow `prompt`, at least one id. `each`, if given, is handed every token as soon as it is drawn, and
// ends the text by returning false. A text longer than context_length goes on with its latest half: the last
// context_length / 2 tokens are read anew, whenever the context is full. (Positions are learned, so that keys cannot
// move up.) A longer prompt begins so. Throws Error as above, and (argument) for an id outside the vocabulary.
std::vector<std::int64_t> generate(GPT& model, std::span<const std::int64_t> prompt, const GenerateOptions& options,
                                   Generator& rng, const std::function<bool(std::int64_t)>& each = {});

// What follows a prompt, and whether a stop, or `each`, ended it.
struct Continuation {
  std::vector<std::int64_t> ids;
  bool stopped = false;
};

// The same by a language model, of several prompts at once; each text is drawn with a Generator(seed) of its own, and
// is the one that its prompt has alone. `each` is handed a prompt's number and a token of its text, and ends that text
// by returning false. Throws Error as above, and (argument) before all work for a prompt that leaves no room for the
// tokens in the model's context.
std::vector<Continuation> generate(LanguageModel& model, std::span<const std::vector<std::int64_t>> prompts,
                                   const GenerateOptions& options, std::uint64_t seed,
                                   const std::function<bool(std::size_t, std::int64_t)>& each = {});

}  // namespace attn
