#include "report/source.hpp"

#include <fmt/format.h>

#include <charconv>

#include "attn/checkpoint.hpp"
#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/command_line.hpp"
#include "common/terminal.hpp"
#include "common/tokenizers.hpp"

namespace attn::tool {
namespace {

ModuleConfig config_of(const Job& job) {
  if (const auto* module = dynamic_cast<const ProjectedAttention*>(job.module.get())) return module->config();
  ModuleConfig config;
  config.d_in = job.x.tensor.size(-1);
  config.d_out = job.flags.d_out.value_or(config.d_in);
  config.context_length = job.flags.context_length.value_or(0);
  config.causal = job.flags.module == "average";
  if (job.flags.module == "heads") {
    config.num_heads = heads_of(job.flags);
    config.dropout = job.flags.dropout;
    config.qkv_bias = job.flags.qkv_bias;
    config.causal = !job.flags.no_mask;
    if (!job.flags.scale.empty()) config.scale = parse_scale(job.flags.scale);
    if (job.flags.layer_order == "kqv") config.layer_order = LayerOrder::kqv;
    config.out_proj = false;
  }
  return config;
}

ReportSource run_module(const CLI::App& verb, const SourceFlags& flags) {
  ReportSource source;
  const Job job = prepare(verb, flags.module, flags.input, true);
  if (job.flags.module != "cross" || job.x.tensor.size(-2) == job.context->tensor.size(-2))
    source.options.key_tokens = {};
  job.forward(&source.steps);
  ReportOptions& options = source.options;
  options.tokens = job.tokens;
  if (job.context) options.key_tokens = job.context_tokens;
  options.module = job.flags.module;
  options.command = command_line();
  if (has_weights(job.flags.module)) options.seed = job.flags.seed;
  options.flavour = dropout_flavour(job.flags.rng);
  options.config = config_of(job);
  options.parameters = job.module->state_dict();
  options.training = job.module->training();
  options.notes = job.notes;
  return source;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// What attn run --save-steps wrote, or any safetensors or npz file with "weights" among its tensors.
ReportSource load_steps(const std::string& path) {
  ReportSource source;
  const io::NamedTensors file = io::load(path);
  for (const auto& [name, tensor] : file.tensors) source.steps.record(name, tensor);
  if (!source.steps.contains("weights") && !source.steps.contains("heads.0.weights")) {
    bool any = false;
    for (const auto& [name, tensor] : file.tensors) any = any || name.ends_with(".weights");
    if (!any) {
      throw Error(Error::Kind::data, "--steps", "a file with the step \"weights\", as attn run --save-steps writes it",
                  fmt::format("{} tensors without it", file.tensors.size()),
                  "for a single tensor of weights pass --attention FILE");
    }
  }
  const auto metadata = [&](const char* key) {
    const auto at = file.metadata.find(key);
    return at == file.metadata.end() ? std::string() : at->second;
  };
  ReportOptions& options = source.options;
  options.module = metadata("module");
  options.command = metadata("command");
  if (const std::string text = metadata("tokens"); !text.empty()) options.tokens = lines_of(text);
  std::uint64_t seed = 0;
  const std::string digits = metadata("seed");
  if (std::from_chars(digits.data(), digits.data() + digits.size(), seed).ec == std::errc()) options.seed = seed;
  if (const std::string rng = metadata("rng"); !rng.empty()) options.flavour = dropout_flavour(rng);
  return source;
}

// (t, t), (h, t, t) or (l, h, t, t).
ReportSource load_attention(const std::string& path, const std::string& tensor_name) {
  ReportSource source;
  const Tensor weights = io::load_tensor(path, tensor_name);
  if (weights.rank() < 2 || weights.rank() > 4) {
    throw Error(Error::Kind::shape, "--attention", "weights (heads, queries, keys) or (layers, heads, queries, keys)",
                weights.shape().str(), "save one of these shapes, rows that sum to 1; or pass --input for embeddings");
  }
  if (weights.rank() < 4) {
    source.steps.record("weights", weights);
  } else {
    for (std::int64_t layer = 0; layer < weights.size(0); ++layer) {
      source.steps.record("layer " + std::to_string(layer + 1) + ".weights", weights.select(0, layer));
    }
  }
  source.options.command = command_line();
  return source;
}

// Every layer's steps on the text.
ReportSource run_model(const SourceFlags& flags) {
  ReportSource source;
  GPT model = load_gpt(flags.model);
  const auto tokenizer = tokenizer_for(flags.model, model.config(), flags.tokenizer);
  const std::vector<std::int64_t> ids = tokenizer->encode(flags.text);
  const std::int64_t most = model.config().context_length, count = static_cast<std::int64_t>(ids.size());
  if (ids.empty() || count > most) {
    throw Error(Error::Kind::argument, "--text", fmt::format("1 to {} tokens, as the model takes", most),
                fmt::format("{}", count), ids.empty() ? "pass --text \"some words\"" : "pass a shorter text");
  }
  model.forward(Tensor::from(std::span(ids), {count}), &source.steps);
  for (const std::int64_t id : ids) source.options.tokens.push_back(tokenizer->decode(id));
  source.options.title = flags.text;
  source.options.command = command_line();
  return source;
}

void read_tokens(const SourceFlags& flags, ReportSource& source) {
  if (flags.input.tokens.empty()) return;
  source.options.tokens = io::load_lines(flags.input.tokens);
}

void require_one(const SourceFlags& flags) {
  const int given = !flags.module.module.empty() + !flags.steps.empty() + !flags.attention.empty() + !flags.model.empty();
  if (flags.model.empty() && !(flags.text + flags.tokenizer).empty()) {
    throw Error(Error::Kind::argument, "attn report", "--model FILE with --text and --tokenizer", "none",
                "pass the model that attn train wrote");
  }
  if (given == 1) return;
  throw Error(Error::Kind::argument, "attn report", "one of MODULE, --model FILE, --steps FILE and --attention FILE",
              given == 0 ? "none of them" : fmt::format("{} of them", given),
              "attn report multihead --output report.html shows the six words");
}

}  // namespace

void add_source_flags(CLI::App& verb, SourceFlags& flags) {
  add_module_flags(verb, flags.module);
  verb.get_option("MODULE")->required(false);
  add_input_flags(verb, flags.input, false);
  verb.add_option("--steps", flags.steps, "Steps that attn run --save-steps wrote, instead of MODULE")
      ->option_text("FILE");
  verb.add_option("--attention", flags.attention,
                  "Attention weights, instead of MODULE: (heads, queries,\nkeys) or (layers, heads, queries, keys), "
                  ".npy or others")
      ->option_text("FILE");
  verb.add_option("--model", flags.model, "A trained GPT, instead of MODULE: what attn train or\nHugging Face wrote")
      ->option_text("FILE");
  verb.add_option("--text", flags.text, "What the model reads")->option_text("TEXT");
  verb.add_option("--tokenizer", flags.tokenizer,
                  "Folder with GPT-2's vocab.json and merges.txt. Default:\nbeside the model, or bytes")
      ->option_text("FOLDER");
}

ReportSource load_source(const CLI::App& verb, const SourceFlags& flags) {
  require_one(flags);
  if (!flags.module.module.empty()) return run_module(verb, flags);
  if (!flags.model.empty()) return run_model(flags);
  require_one_stdin({flags.steps, flags.attention, flags.input.tokens});
  ReportSource source =
      flags.steps.empty() ? load_attention(flags.attention, flags.input.tensor) : load_steps(flags.steps);
  read_tokens(flags, source);
  return source;
}

}  // namespace attn::tool
