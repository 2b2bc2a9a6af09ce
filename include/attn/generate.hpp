// Text from a language model, a token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attn/kv_cache.hpp"
#include "attn/language_model.hpp"
#include "attn/random.hpp"

namespace attn {

// A language model that remembers the keys and values of what it has read, so that a token more costs one token's work.
// Logits are LanguageModel::forward's up to rounding: attention adds up in another order. The texts of a batch grow
// independently, and each has the logits that it has alone. A layer with a window keeps the keys that it shows, up to a
// quarter more, and a piece; long prompts are read in pieces of 512 tokens. No dropout acts. `model` must outlive it
// and keep its weights; several decoders may share it, in one thread at a time. `make` makes the layers' caches;
// without it they are KVCaches, with room for `capacity` tokens of each text at once; more fit all the same, and are
// moved once.
class Decoder {
 public:
  explicit Decoder(LanguageModel& model, std::int64_t batch = 1, DType cache = DType::f32, const MakeCache& make = {},
                   std::int64_t capacity = 0);

  // Further tokens of one text, at least one → the logits (vocab_size) that follow the last. Throws Error when they are
  // more than context_length in all, more than the length from which dynamic frequencies change with each token, or
  // outside the vocabulary, and is then as before.
  Tensor read(std::int64_t item, std::span<const std::int64_t> ids);
  // One token more of every text → logits (b, vocab_size).
  Tensor read(std::span<const std::int64_t> ids);
  // As many more of every text, ids int64 (b, t) → logits (b, vocab_size).
  Tensor read(const Tensor& ids);

  std::int64_t length(std::int64_t item = 0) const;  // tokens read
  std::size_t bytes() const;                         // of memory that the caches hold
  // Forgets a text's tokens from `length` on. Throws Error (argument) where windows have let go of keys that the rest
  // would see, unless length is 0.
  void truncate(std::int64_t item, std::int64_t length);

 private:
  Tensor embedded(const Tensor& ids, std::int64_t first, std::int64_t last) const;
  Tensor run(const Tensor& ids, const std::vector<RotaryTable>& turns, std::optional<std::int64_t> item);
  Tensor read_pieces(std::int64_t item, std::span<const std::int64_t> ids, std::int64_t serves);
  void prepare(std::int64_t item, std::int64_t length);
  void check(std::span<const std::int64_t> ids, std::int64_t longest) const;
  std::vector<RotaryTable> turns(std::int64_t first, std::int64_t tokens, std::int64_t serves) const;
  std::vector<RotaryTable> next_turns() const;

  LanguageModel* model_;
  std::vector<std::unique_ptr<DecoderCache>> caches_;  // one a layer
  std::vector<std::int64_t> length_;                   // of each item
  std::int64_t switches_at_ = 0;                       // past this length the keys in a cache turn otherwise; 0 = never
  std::vector<std::vector<std::int64_t>> texts_;       // to be read again then
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
  // Processes that write a text together set both, by distributed::over_ranks() of attn/cut_cache.hpp.
  MakeCache make_cache = {};  // of each layer; a KVCache unless given
  // Is handed what draws a token here, and returns the token that all of them take.
  std::function<std::int64_t(const std::function<std::int64_t()>&)> agree = {};
};

void require_valid(const GenerateOptions& options);  // as of a sampling
// Returns the id that sample() draws, or the one that options.agree makes of it.
std::int64_t next_token(const Tensor& logits, const GenerateOptions& options, Generator& rng,
                        std::span<const std::int64_t> text = {});

// A Continuation holds the ids that follow a prompt, and whether a stop, or `each`, ended it.
struct Continuation {
  std::vector<std::int64_t> ids = {};
  bool stopped = false;
};

// Tokens that follow each prompt, at least one id each. Each text is drawn with a Generator(seed) of its own, and is
// the one that its prompt has alone. `each`, if given, is handed a prompt's number and a token of its text as soon as
// it is drawn, and ends that text by returning false.
//
// Where positions are learned, keys cannot move up: a text longer than context_length goes on with its latest half, the
// last context_length / 2 tokens, which are read anew whenever the context is full, and a longer prompt begins so.
// Other models have no such limit of theirs, and a prompt that leaves no room for the tokens in their context is
// refused before all work. Throws Error (argument) for that, as above, and for an id outside the vocabulary.
std::vector<Continuation> generate(LanguageModel& model, std::span<const std::vector<std::int64_t>> prompts,
                                   const GenerateOptions& options, std::uint64_t seed,
                                   const std::function<bool(std::size_t, std::int64_t)>& each = {});

// generate(), a step at a time, for a caller with other work in between. `model` must outlive it and keep its weights.
class Generation {
 public:
  // Throws as generate() does.
  Generation(LanguageModel& model, std::span<const std::vector<std::int64_t>> prompts, const GenerateOptions& options,
             std::uint64_t seed);
  // Draws for every text that is not done its next token, and at times one more; the first step reads the prompts.
  // Returns whether a text is left that is not done. A step that throws, as `each` may, leaves some texts without their
  // token: the next one throws Error (argument).
  bool step(const std::function<bool(std::size_t, std::int64_t)>& each = {});
  std::vector<Continuation> texts() const;  // as far as they are written

 private:
  struct Text {
    std::vector<std::int64_t> ids;  // prompt and all
    std::size_t prompt = 0;         // the prompt's tokens
    Generator rng;
    bool done = false, stopped = false;
  };
  bool unfinished() const;
  void draw(std::size_t i, const Tensor& logits, const std::function<bool(std::size_t, std::int64_t)>& each);
  Tensor read_anew(std::size_t i, bool all);

  GenerateOptions options_;
  std::int64_t context_;
  std::vector<Text> texts_;
  std::vector<std::int64_t> next_;  // of a text that is done the last one again, which nobody reads
  Decoder decoder_;
  bool begun_ = false, whole_ = true;  // whether a step was taken, and each to its end
};

}  // namespace attn
