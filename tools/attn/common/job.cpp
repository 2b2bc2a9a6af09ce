#include "common/job.hpp"

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/words.hpp"
#include "common/drawn.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "common/words.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"

namespace attn::tool {
namespace {

void require_shape(const Input& input, std::string_view module) {
  const Tensor& x = input.tensor;
  const bool fits = (x.rank() == 2 || x.rank() == 3) && (x.size(-1) > 0 || !has_weights(module));
  if (fits) return;
  const bool empty_rows = x.rank() == 2 || x.rank() == 3;
  throw Error(
      Error::Kind::shape, input.name,
      formatted("a tensor (tokens, d_in) or (batch, tokens, d_in){}", empty_rows ? " with a d_in of at least 1" : ""),
      x.shape().str());
}

void load_weights(const std::string& path, std::uint64_t max_bytes, Job& job) {
  const StateDict state = io::load_state_dict(path, max_bytes);
  for (const auto& [name, tensor] : state) {
    if (const Counts counts = count_nonfinite(tensor); counts.any()) {
      job.notes.push_back(formatted("{} of the weights holds {}", escaped(name), counts_text(counts)));
    }
  }
  job.module->load_state_dict(state);
}

void require_weights_memory(const ModuleFlags& flags, std::int64_t d_in) {
  if (!has_weights(flags.module)) return;
  const double out = static_cast<double>(flags.d_out.value_or(d_in)), in = static_cast<double>(d_in);
  const double layers = flags.module == "heads" ? static_cast<double>(heads_of(flags)) : 1;
  const double latents = static_cast<double>(flags.latent.value_or(0)) * (in + 2 * out) +
                         static_cast<double>(flags.query_latent.value_or(0)) * (in + 2 * out);
  constexpr double bytes = 4;
  require_memory("the module's weights", (layers * (3 * in * out + out * out) + latents) * bytes,
                 "lower --d-out, --heads or the latents");
}

// Bytes that forward() holds for one query and one key.
double bytes_a_score(const ModuleFlags& flags, bool with_steps) {
  if (with_steps) return kStepBytes;
  if (!has_weights(flags.module)) return 8;  // scores and weights: no fused way
  return flags.train && flags.dropout > 0 ? 1 : 0;
}

// The inputs that the notebooks have; for cross-attention the first words are the other source.
void use_six_words(Job& job) {
  job.x = {"the six words", six_word_embeddings(), {}};
  job.tokens = six_words();
  if (!job.flags.d_out) job.flags.d_out = 2;
}

// A text's words as rows of as many numbers as the module takes, and the words, safe to show.
Input words_of(const std::string& text, const char* flag, std::int64_t d_in, std::vector<std::string>& tokens) {
  const std::vector<std::string> words = words_in(text, flag);
  if (words.empty()) {
    refuse(flag, "a text with at least one word", "\"" + text + "\"");
  }
  for (const std::string& word : words) tokens.push_back(escaped(word));
  return {"the text", embed_words(words, d_in), {}};
}

// The numbers of a word that the weights of --weights take, which are (d_in, d_out) or Linear's (d_out, d_in).
std::int64_t d_in_of(const InputFlags& inputs) {
  if (inputs.weights.empty()) return kWordSize;
  const io::NamedTensors weights = io::load(inputs.weights, inputs.max_bytes);
  for (const auto& [name, tensor] : weights.tensors) {
    const bool linear = name.ends_with("W_query.weight");
    if ((linear || name == "W_query") && tensor.rank() == 2)
      return std::max<std::int64_t>(tensor.size(linear ? 1 : 0), 1);
  }
  return kWordSize;  // load_weights() tells what is missing
}

// A file's tensor, or one that is drawn.
Input input_of(const std::string& from, const char* flag, const std::string& tensor, const char* tensor_flag,
               std::uint64_t max_bytes, Generator& rng, std::vector<std::string>& notes) {
  require_drawn_or_there(from, flag);
  if (!is_drawn(from)) {
    return load_float32(from, tensor, max_bytes, notes, formatted("choose one by {} NAME", tensor_flag));
  }
  if (tensor.empty()) return {from, drawn(from, flag, rng).to(DType::f32), {}};
  refuse(tensor_flag, formatted("a file of several tensors at {}", flag), from);
}

void load_context(Job& job, const Verb& verb, const InputFlags& inputs, Generator& rng) {
  if (!module_kind(job.flags.module).uses.source) return;
  if (verb.given("--context-text")) {
    job.context = words_of(inputs.context_text, "--context-text", job.x.tensor.size(-1), job.context_tokens);
    job.context->name = "another text";
  } else if (!inputs.context.empty()) {
    job.context = input_of(inputs.context, "--context", inputs.context_tensor, "--context-tensor", inputs.max_bytes,
                           rng, job.notes);
  } else if (job.x.name == "the six words") {
    constexpr std::int64_t words = 4;  // another length than the queries'
    job.context = Input{"the first four words", job.x.tensor.slice(0, 0, words).clone(), {}};
    job.context_tokens.assign(job.tokens.begin(), job.tokens.begin() + words);
  } else {
    refuse("cross", "--context FILE or --context-text TEXT, for the keys and values", "neither");
  }
  require_shape(*job.context, job.flags.module);
}

// Throws Error (argument) for a seed of which nothing is drawn, and for a tensor's name without its file.
void require_used_inputs(const Verb& verb, const ModuleFlags& flags, const InputFlags& inputs) {
  const bool drops = flags.train && flags.dropout > 0;
  if (verb.given("--seed") && !inputs.weights.empty() && !is_random(inputs.input) && !is_random(inputs.context) &&
      !drops) {
    refuse("--seed", "weights, dropout or inputs that are drawn", "--weights alone", "leave it out");
  }
  if (!inputs.tensor.empty() && inputs.input.empty()) {
    refuse("--tensor", "an --input of several tensors", "no --input");
  }
}

}  // namespace

void add_input_flags(Verb& verb, InputFlags& flags, bool or_model) {
  const Option& input =
      verb.add_option(
              "--input FILE", flags.input,
              "The input, of shape (tokens, d_in) or (batch, tokens, d_in): an .npy, .npz, safetensors or CSV file, "
              "which is told by its content, or - for standard input. randn:4,8,32 draws one of that shape, before "
              "the weights and from the same seed; rand:, ones: and randint:LOW,HIGH:SIZES do so too.")
          .default_is("the six words of the notebooks, with --d-out 2");
  verb.add_option("--tensor NAME", flags.tensor, "The tensor to take from an --input that holds several.");
  const std::string model = or_model ? " A --model reads it by its own tokenizer." : "";
  const Option& text = verb.add_option("--text TEXT", flags.text,
                                       "A text as the input. It is cut into words at white space and punctuation, and "
                                       "a small embedding that is built in makes each a vector." +
                                           model)
                           .not_beside(input);
  verb.add_option("--text-file FILE", flags.text_file,
                  "The text as a file, all of it as it stands; - is standard input.")
      .not_beside(text)
      .not_beside(input);
  const Option& context =
      verb.add_option("--context FILE", flags.context, "The source of keys and values for cross, given as --input is.");
  verb.add_option("--context-tensor NAME", flags.context_tensor,
                  "The tensor to take from a --context that holds several.")
      .needs(context);
  verb.add_option("--context-text TEXT", flags.context_text,
                  "The source of keys and values for cross, given as --text is.")
      .not_beside(context);
  verb.add_option("--tokens FILE", flags.tokens, "A file of words, one a line, that label the rows.");
  const Option& weights =
      verb.add_option("--weights FILE", flags.weights, "Load weights that are named as in PyTorch's state_dict.")
          .default_is("drawn from --seed");
  verb.find("--layer-order")->not_beside(weights);
  add_limit_flag(verb, flags.max_bytes);
}

std::vector<std::string> load_tokens(const std::string& path, std::int64_t count, std::string_view flag,
                                     std::string_view of) {
  std::vector<std::string> tokens = io::load_lines(path);
  if (static_cast<std::int64_t>(tokens.size()) != count) {
    throw Error(Error::Kind::data, flag, formatted("{} lines, one for each {}", count, of),
                formatted("{} in {}", tokens.size(), path == "-" ? "standard input" : escaped(path)));
  }
  if (!tokens.empty()) tokens.front() = without_mark(tokens.front());
  for (std::string& token : tokens) token = escaped(token);
  return tokens;
}

std::string given_text(const InputFlags& flags) {
  if (flags.text_file.empty()) return flags.text;
  return std::string(io::as_text(io::read_file(flags.text_file, "--text-file").bytes()));
}

Tensor Job::forward(Trace* trace) const {
  if (!context) return module->forward(x.tensor, trace);
  return dynamic_cast<AttentionLayer&>(*module).forward(x.tensor, context->tensor, trace);
}

Job prepare(const Verb& verb, const ModuleFlags& flags, const InputFlags& inputs, bool with_steps) {
  require_used_flags(verb, flags.module, is_random(inputs.input) ? "--seed" : "");
  require_used_inputs(verb, flags, inputs);
  require_one_stdin({inputs.input, inputs.text_file, inputs.context, inputs.tokens, inputs.weights});
  const bool text = verb.given("--text") || verb.given("--text-file");
  Job job;
  job.flags = flags;
  Generator rng(flags.seed, dropout_flavour(flags.rng));  // one stream: drawn inputs, weights, dropout
  if (text) {
    const char* flag = inputs.text_file.empty() ? "--text" : "--text-file";
    if (!inputs.tokens.empty()) {
      refuse("--tokens", formatted("no words beside {}, which has its own", flag), "both");
    }
    job.x = words_of(given_text(inputs), flag, d_in_of(inputs), job.tokens);
  } else if (inputs.input.empty()) {
    use_six_words(job);
  } else {
    job.x = input_of(inputs.input, "--input", inputs.tensor, "--tensor", inputs.max_bytes, rng, job.notes);
  }
  require_shape(job.x, flags.module);
  if (!inputs.tokens.empty()) job.tokens = load_tokens(inputs.tokens, job.x.tensor.size(-2));
  load_context(job, verb, inputs, rng);
  if (!job.context) job.context_tokens = job.tokens;
  if (flags.dropout > 0 && !flags.train)
    job.notes.emplace_back("--dropout acts with --train only: no weight is dropped");

  const Tensor& x = job.x.tensor;
  const std::int64_t keys = job.context ? job.context->tensor.size(-2) : x.size(-2);
  require_scores_memory(x.rank() == 3 ? x.size(0) : 1, heads_of(flags), x.size(-2), keys,
                        bytes_a_score(flags, with_steps));
  require_weights_memory(job.flags, x.size(-1));
  job.module = make_module(job.flags, x.size(-1), rng);
  job.seeded = has_weights(flags.module) && !is_random(inputs.input) && !is_random(inputs.context);
  if (!inputs.weights.empty()) load_weights(inputs.weights, inputs.max_bytes, job);
  job.module->train(flags.train);
  return job;
}

}  // namespace attn::tool
