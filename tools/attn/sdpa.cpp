// attn sdpa: the bare operator on queries, keys and values.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "attn/attention.hpp"
#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/print.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"
#include "common/json.hpp"
#include "common/module_flags.hpp"
#include "common/outputs.hpp"
#include "common/plans.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "io/writers.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct SdpaFlags {
  std::string q, k, v, mask, blocks, causal, scale, output, lse, save_weights;
  std::int64_t block_size = 64;
  std::uint64_t max_bytes = 0;
  double softcap = 0;
  bool explain = false, json = false;
};

struct Operands {
  Input q, k, v;
  std::vector<std::string> notes;
};

constexpr const char* kSdpaFooter =
    "Arrays are (b, h, t, d), (h, t, d) or (t, d), all of one rank, as the results.\n"
    "Without --output the result is printed as PyTorch prints it.\n"
    "\n"
    "Examples:\n"
    "  printf '1,0\\n0,1\\n1,1\\n' > q.csv\n"
    "  attn sdpa --q q.csv --k q.csv --v q.csv\n"
    "  attn sdpa --q q.csv --k q.csv --v q.csv --causal top-left --lse lse.npy\n"
    "  printf '0,-1,-1\\n0,0,-1\\n0,0,0\\n' > bias.csv\n"
    "  attn sdpa --q q.csv --k q.csv --v q.csv --mask bias.csv --output o.npy --json\n"
    "  printf '1,0\\n1,1\\n' > blocks.csv\n"
    "  attn sdpa --q q.csv --k q.csv --v q.csv --blocks blocks.csv --block-size 2";

Operands load(const SdpaFlags& flags) {
  require_one_stdin({flags.q, flags.k, flags.v, flags.mask, flags.blocks});
  Operands in;
  in.q = load_floating(flags.q, flags.max_bytes, in.notes);
  in.k = load_floating(flags.k, flags.max_bytes, in.notes);
  in.v = load_floating(flags.v, flags.max_bytes, in.notes);
  const std::size_t rank = in.q.tensor.rank();
  if (rank < 2 || rank > 4 || in.k.tensor.rank() != rank || in.v.tensor.rank() != rank) {
    throw Error(
        Error::Kind::shape, "attn sdpa", "q, k and v of one rank: (b, h, t, d), (h, t, d) or (t, d)",
        formatted("q {}, k {}, v {}", in.q.tensor.shape().str(), in.k.tensor.shape().str(), in.v.tensor.shape().str()));
  }
  return in;
}

// (…, t, d) → (b, h, t, d)
Tensor with_rank_4(Tensor tensor) {
  while (tensor.rank() < 4) tensor = tensor.unsqueeze(0);
  return tensor;
}

Tensor without_leading(Tensor tensor, std::size_t dims) {
  for (; dims > 0; --dims) tensor = tensor.select(0, 0);
  return tensor;
}

Mask load_mask(const std::string& path, std::uint64_t max_bytes) {
  const Tensor tensor = io::load_tensor(path, {}, max_bytes);
  if (tensor.dtype() == DType::boolean) return Mask::boolean(tensor);
  if (is_floating(tensor.dtype())) return Mask::additive(tensor);
  throw Error(Error::Kind::dtype, "--mask", "bool (true: may be seen) or a float dtype (added to the scores)",
              name(tensor.dtype()));
}

// Ones and zeros of any dtype, so that a CSV file will do.
Mask load_blocks(const std::string& path, std::int64_t size, std::uint64_t max_bytes) {
  const Tensor tensor = io::load_tensor(path, {}, max_bytes);
  if (tensor.dtype() == DType::boolean) return Mask::blocks(tensor, size, size);
  const Tensor numbers = tensor.to(DType::f64).contiguous(), keep = Tensor::empty(tensor.shape(), DType::boolean);
  for (std::int64_t i = 0; i < keep.numel(); ++i) {
    const double x = numbers.data<double>()[i];
    if (x != 0 && x != 1) throw Error(Error::Kind::data, "--blocks", "zeros and ones", formatted("{}", x));
    keep.data<bool>()[i] = x == 1;
  }
  return Mask::blocks(keep, size, size);
}

Mask mask_of(const SdpaFlags& flags) {
  Mask mask;
  if (!flags.causal.empty()) mask = Mask::causal(flags.causal == "top-left" ? Align::top_left : Align::bottom_right);
  if (!flags.mask.empty()) mask = mask & load_mask(flags.mask, flags.max_bytes);
  if (!flags.blocks.empty()) mask = mask & load_blocks(flags.blocks, flags.block_size, flags.max_bytes);
  return mask;
}

AttentionOptions options_of(const SdpaFlags& flags) {
  AttentionOptions options;
  options.mask = mask_of(flags);
  if (!flags.scale.empty()) options.scale = parse_scale(flags.scale);
  options.softcap = flags.softcap;
  options.return_weights = !flags.save_weights.empty();
  return options;
}

AttentionResult compute(const Operands& in, const AttentionOptions& options) {
  const Tensor q = with_rank_4(in.q.tensor), k = with_rank_4(in.k.tensor), v = with_rank_4(in.v.tensor);
  constexpr double float_bytes = 4;
  if (options.return_weights) require_scores_memory(q.size(0), q.size(1), q.size(2), k.size(2), float_bytes);
  AttentionResult result = attention(q, k, v, options);
  const std::size_t added = 4 - in.q.tensor.rank();
  result.output = without_leading(result.output, added);
  result.lse = without_leading(result.lse, added);
  if (result.weights.defined()) result.weights = without_leading(result.weights, added);
  return result;
}

using Plans = std::vector<kernels::Explanation>;

Json report(const SdpaFlags& flags, const Operands& in, const AttentionResult& result, const Outputs& outputs,
            double seconds, const Plans& plans) {
  const Counts counts = count_nonfinite(result.output);
  Json json;
  const auto describe = [&](const char* what, const Tensor& tensor, const Counts& c) {
    json["shapes"][what] = json_shape(tensor.shape());
    json["nonfinite"][what] = {{"nan", c.nan}, {"inf", c.inf}};
  };
  describe("q", in.q.tensor, in.q.counts);
  describe("k", in.k.tensor, in.k.counts);
  describe("v", in.v.tensor, in.v.counts);
  describe("output", result.output, counts);
  json["dtype"] = name(result.output.dtype());
  json["seconds"] = seconds;
  json["files"] = outputs.paths();
  json["notes"] = in.notes;
  if (flags.explain) json["plans"] = plans_json(plans);
  if (flags.output.empty()) json["output"] = json_values(result.output);
  return json;
}

std::string summary(const Operands& in, const AttentionResult& result, const Outputs& outputs, double seconds) {
  std::string text =
      formatted("sdpa: q {}, k {}, v {} → {} in {:.3f} s\n", in.q.tensor.shape().str(), in.k.tensor.shape().str(),
                in.v.tensor.shape().str(), result.output.shape().str(), seconds);
  for (const std::string& note : in.notes) text.append(note).append("\n");
  if (const Counts counts = count_nonfinite(result.output); counts.any()) {
    text.append("the output holds " + counts_text(counts) + "\n");
  }
  for (const std::string& path : outputs.paths()) {
    if (path != "-") text.append("wrote " + escaped(path) + "\n");
  }
  return text;
}

void save(const SdpaFlags& flags, const Outputs& outputs, const AttentionResult& result) {
  using io::OutputFile;
  outputs.save({{"--output", [&](OutputFile& to) { io::write_tensor(to, flags.output, result.output); }},
                {"--lse", [&](OutputFile& to) { io::write_tensor(to, flags.lse, result.lse); }},
                {"--save-weights", [&](OutputFile& to) { io::write_tensor(to, flags.save_weights, result.weights); }}});
}

void run(const SdpaFlags& flags) {
  Outputs outputs;
  const std::vector<std::string> extensions{".npy", ".npz", ".safetensors"};
  outputs.declare("--output", flags.output, extensions);
  outputs.declare("--lse", flags.lse, extensions);
  outputs.declare("--save-weights", flags.save_weights, extensions);
  const AttentionOptions options = options_of(flags);
  const Operands in = load(flags);
  const auto start = std::chrono::steady_clock::now();
  const kernels::PlanListener listener;
  const AttentionResult result = compute(in, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  save(flags, outputs, result);
  const auto say = [&](const std::string& text) { outputs.to_stdout() ? write_stderr(text) : write_stdout(text); };
  if (flags.json) return say(dump(report(flags, in, result, outputs, seconds, listener.heard())));
  const std::string plans = flags.explain ? plans_text(listener.heard()) : "";
  if (!flags.output.empty()) return say(summary(in, result, outputs, seconds) + plans);
  write_stdout(to_string(result.output) + "\n");
  for (const std::string& note : in.notes) write_stderr("attn: " + note + "\n");
  for (const std::string& path : outputs.paths()) write_stderr("attn: wrote " + escaped(path) + "\n");
  write_stderr(plans);
}

}  // namespace

void define_sdpa(Verb& verb, int&) {
  const auto flags = std::make_shared<SdpaFlags>();
  verb.add_option("--q", flags->q, "Queries; a file of one tensor, - is standard input").value_name("FILE").required();
  verb.add_option("--k", flags->k, "Keys; their heads divide the queries'").value_name("FILE").required();
  verb.add_option("--v", flags->v, "Values").value_name("FILE").required();
  verb.add_option("--mask", flags->mask,
                  "Broadcast to (b, h, tq, tk); bool: true may be seen,\nfloat: added to the scaled scores")
      .value_name("FILE");
  const Option& blocks = verb.add_option("--blocks", flags->blocks,
                                         "Block-sparse mask of 1 (computed) and 0 (skipped),\n"
                                         "broadcast to (b, h, blocks of q, blocks of k)")
                             .value_name("FILE");
  verb.add_option("--block-size", flags->block_size, "Tokens a block of --blocks. Default: 64")
      .value_name("N")
      .needs(blocks)
      .at_least(1);
  verb.add_option("--causal", flags->causal,
                  "Hide later keys; the diagonal starts top-left or\nends bottom-right. Default: none hidden")
      .value_name("ALIGN")
      .one_of({"top-left", "bottom-right"});
  verb.add_option("--scale", flags->scale, "Factor of the scores; none is 1. Default: 1/√d").value_name("S");
  verb.add_option("--softcap", flags->softcap, "Scores become C · tanh(scores / C). Default: 0, none").value_name("C");
  verb.add_option("--output", flags->output,
                  "Save the result: .npy, .npz or .safetensors;\n- is standard output, as .npy")
      .value_name("FILE");
  verb.add_option("--lse", flags->lse, "Save log Σ exp of the masked scores, (b, h, tq)").value_name("FILE");
  verb.add_option("--save-weights", flags->save_weights, "Save the attention weights, (b, h, tq, tk)")
      .value_name("FILE");
  add_limit_flag(verb, flags->max_bytes);
  verb.add_flag("--explain", flags->explain, "Tell which kernel computed it, how, and why");
  verb.add_flag("--json", flags->json, "Tell what was done as one JSON object");
  verb.footer(kSdpaFooter);
  verb.callback([flags] { run(*flags); });
}

}  // namespace attn::tool
