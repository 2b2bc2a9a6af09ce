// attn demo: chapter 3 of the book in one screen after the other, on its six words or on others.
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>

#include "attn/attn.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "common/words.hpp"
#include "core/escape.hpp"
#include "report/figure/text.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

namespace ref = reference;

constexpr std::uint64_t kSeed = 123, kSeedV2 = 789;        // the notebooks'
constexpr std::size_t kMostWords = 16, kLongestWord = 16;  // whose tables one can still read

class Demo {
 public:
  // Shows the six words, or a text. Throws Error (argument) for one of too few or too many words.
  Demo(const Style& style, const std::optional<std::string>& text) : style_(style) {
    if (!text) return;
    words_ = words_in(*text, "attn demo");
    if (words_.empty() || words_.size() > kMostWords) {
      refuse("attn demo", formatted("a text of 1 to {} words", kMostWords), std::to_string(words_.size()),
             "attn report --text TEXT takes longer ones");
    }
    x_ = embed_words(words_, x_.size(1));
    for (std::string& word : words_) word = figure::shortened(escaped(word), kLongestWord);
    title_ = escaped(*text);
    second_ = std::min<std::int64_t>(x_.size(0), 2) - 1;
  }

  std::string text() {
    // In a braced list the parts are made from left to right; later ones build on earlier ones.
    const std::vector<std::string> parts{opening(), simplified(), one_by_one(), trainable(),     linear(),
                                         causal(),  dropout(),    batch(),      several_heads(), closing()};
    return joined(parts, "");
  }

 private:
  std::string heading(std::string_view title) {
    return "\n" + style_.heading(formatted("{}  {}", ++section_, title)) + "\n";
  }
  std::string say(std::string_view text) const { return style_.faint(text) + "\n"; }
  // A tensor with its name before it, its rows named by the words where it has one for each.
  std::string show(std::string_view name, const Tensor& tensor, bool by_word = false) const {
    const auto labels = by_word ? std::span<const std::string>(words_) : std::span<const std::string>();
    return formatted("{}\n{}\n", style_.strong(name), labelled(tensor, labels));
  }
  std::string picture(const Tensor& weights, const Tensor& keep = {}) const {
    return heatmap(weights, words_, style_, keep);
  }

  std::string opening() const {
    const std::string count = x_.size(0) == 6   ? "Six words"
                              : x_.size(0) == 1 ? "One word"
                                                : formatted("{} words", x_.size(0));
    return style_.strong("\"" + figure::shortened(title_, kColumns - 2) + "\"") + "\n" +
           say(count +
               ", each an embedding of three numbers. Attention lets every word look\n"
               "at the others and take from each as much as it matters.") +
           show("inputs", x_, true);
  }

  std::string simplified() {
    const Tensor query = x_.slice(0, second_, second_ + 1);
    const Tensor scores = ref::scores(query, x_).select(0, 0);
    const auto sum = [](const Tensor& t) {
      double total = 0;
      for (const double value : values_of(t)) total += value;
      return total;
    };
    const Tensor by_sum = ref::normalise_by_sum(scores), naive = ref::softmax_naive(scores);
    const Tensor weights = ref::softmax(scores);
    const Tensor context = ref::weighted_sum(weights.unsqueeze(0), x_).select(0, 0);
    return heading("Simplified self-attention: one query, no weights to learn") +
           say(formatted("{} word asks. Its score with a word is their dot product.",
                         second_ == 1 ? "The second" : "The")) +
           show("scores of " + quoted(), scores) + say("Normalised, the scores become weights whose sum is 1.") +
           show(formatted("by their sum ({:.4f})", sum(by_sum)), by_sum) +
           show("by softmax: exp(s) / Σ exp(s), which overflows for large scores", naive) +
           show("by the stable softmax: exp(s - largest) / Σ", weights) +
           say("The context is the sum of all inputs, each times its weight.") +
           show("context of " + quoted(), context);
  }

  std::string one_by_one() {
    Trace steps;
    SimplifiedSelfAttention().forward(x_, &steps);
    return heading("All queries at once: softmax(x · xᵀ) · x") + show("scores", steps["scores"]) +
           show("weights", steps["weights"], true) + picture(steps["weights"]) +
           show("contexts", steps["context"], true);
  }

  std::string trainable() {
    Generator rng(kSeed);
    SelfAttentionV1 attention(3, 2, rng);
    Trace steps;
    attention.forward(x_, &steps);
    return heading("Trainable weights, version 1: torch.rand, seed 123") +
           say("Each word is projected to a query (what it looks for), a key (what it offers)\n"
               "and a value (what it gives). Scores are divided by √2, the root of the key size.") +
           show(formatted("query of {} = x_{} · W_query", quoted(), second_ + 1), steps["queries"].select(0, second_)) +
           show("keys", steps["keys"], true) + show("scores of " + quoted(), steps["scores"].select(0, second_)) +
           show("weights of " + quoted(), steps["weights"].select(0, second_)) +
           show("contexts", steps["context"], true);
  }

  std::string linear() {
    steps_v2_ = Trace();
    Generator rng(kSeedV2);
    SelfAttentionV2 attention({.d_in = 3, .d_out = 2}, rng);
    attention.AttentionLayer::forward(x_, &steps_v2_);
    return heading("Trainable weights, version 2: Linear layers, seed 789") +
           show("weights", steps_v2_["weights"], true) + show("contexts", steps_v2_["context"], true);
  }

  std::string causal() {
    const Tensor keep = causal_keep(x_.size(0), x_.size(0));
    const Tensor renormalised = ref::mask_renormalise(steps_v2_["weights"], keep);
    const Tensor masked = ref::mask_fill(steps_v2_["scores"], keep);
    masked_weights_ = ref::softmax(ref::mask_fill(steps_v2_["scaled"], keep));
    return heading("Causal attention: a word sees itself and what came before") +
           say("One way: set the weights above the diagonal to 0, divide rows by their sums.") +
           show("weights, masked and renormalised", renormalised, true) +
           say("The better way: set the scores above the diagonal to -inf, then softmax.") +
           show("scores, masked", masked) + show("weights: the same", masked_weights_, true) +
           picture(masked_weights_, keep);
  }

  std::string dropout() {
    constexpr double p = 0.5;
    const Tensor ones = Tensor::ones({x_.size(0), x_.size(0)});
    const auto dropped = [&](const Tensor& t) {
      Generator rng(kSeed);
      return ref::dropout(t, rng.dropout_keep(t.shape(), p), p);
    };
    return heading("Dropout: in training, half of the weights are dropped, seed 123") +
           say("Those kept are doubled. Which ones depends on PyTorch's system: this is\n"
               "--rng mkl (Linux x86), what the notebooks print; --rng native is the book's.") +
           show("ones, dropped out", dropped(ones)) + show("the causal weights, dropped out", dropped(masked_weights_));
  }

  std::string batch() {
    Generator rng(kSeed);
    CausalAttention attention({.d_in = 3, .d_out = 2, .context_length = x_.size(0)}, rng);
    const Tensor z = attention.AttentionLayer::forward(two_texts(), nullptr);
    return heading("CausalAttention on a batch of two texts, seed 123") +
           show(formatted("contexts {}", z.shape().str()), z);
  }

  std::string several_heads() {
    const ModuleConfig config{.d_in = 3, .d_out = 2, .context_length = x_.size(0), .num_heads = 2};
    Generator rng(kSeed), again(kSeed);
    MultiHeadAttentionWrapper wrapper(config, rng);
    MultiHeadAttention split(config, again);
    Trace steps;
    const Tensor joined = wrapper.forward(x_);
    const Tensor z = split.AttentionLayer::forward(x_, &steps);
    return heading("Multi-head attention: two heads, seed 123") +
           say("One way is to compute the heads one after the other, and to put their contexts\n"
               "side by side.") +
           show("MultiHeadAttentionWrapper", joined, true) +
           say("The faster way is one projection, split into heads, and an output projection.") +
           show("MultiHeadAttention: weights of head 1", steps["weights"].select(0, 0), true) +
           picture(steps["weights"].select(0, 0), causal_keep(x_.size(0), x_.size(0))) +
           show("MultiHeadAttention", z, true);
  }

  std::string closing() const {
    return "\n" + style_.heading("What to type next") +
           "\n"
           "  attn demo 'some words'  the same for a text of your own\n"
           "  attn explain self-v1    one query, every product written out\n"
           "  attn check              every number the notebooks print, compared\n"
           "  attn run --help         run a module on your own .npy, .npz, safetensors, CSV\n"
           "  attn --help             all verbs\n";
  }

  // The word whose query is followed, the second as in the notebooks.
  std::string quoted() const { return "\"" + words_[static_cast<std::size_t>(second_)] + "\""; }
  Tensor two_texts() const { return stack(std::array{x_, x_}); }

  Style style_;
  Tensor x_ = six_word_embeddings();
  std::vector<std::string> words_ = six_words();
  std::string title_ = joined(words_, " ");
  std::int64_t second_ = 1;
  Trace steps_v2_;
  Tensor masked_weights_;
  int section_ = 0;
};

}  // namespace

void define_demo(Verb& verb, int&) {
  const auto text = std::make_shared<std::optional<std::string>>();
  const Option& words =
      verb.add_option("TEXT", *text, formatted("A text of up to {} words to walk through.", kMostWords))
          .default_is("the six words of the notebooks");
  verb.add_option("--text TEXT", *text, "The same, as in the other verbs.").not_beside(words);
  verb.notes("Colours are used on a terminal. With NO_COLOR=1, or into a pipe, the text is plain.");
  verb.examples(
      "attn demo\n"
      "attn demo 'The cat chased a mouse.'\n"
      "NO_COLOR=1 attn demo > demo.txt");
  verb.callback([text] { write_stdout(fitted(Demo(Style::of_stdout(), *text).text(), STDOUT_FILENO)); });
}

}  // namespace attn::tool
