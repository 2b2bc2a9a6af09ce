// attn sdpa: the bare operator on queries, keys and values.
#include "sdpa/sdpa.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/attention.hpp"
#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"
#include "common/json.hpp"
#include "common/module_flags.hpp"
#include "common/outputs.hpp"
#include "common/plans.hpp"
#include "common/ranks.hpp"
#include "common/terminal.hpp"
#include "io/writers.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct Operands {
  Input q, k, v;
  std::vector<std::string> notes;
};

constexpr const char* kSdpaNotes =
    "Arrays have the shape (b, h, t, d), (h, t, d) or (t, d), all of one rank, and so have the results. Without "
    "--output the result is printed as PyTorch prints it. On ranks, as in mpirun -n 4 attn sdpa …, each reads its own "
    "rows of .npy and .safetensors files, which may be larger than the memory, and writes its rows of --output.";

constexpr const char* kSdpaExamples =
    "printf '1,0\\n0,1\\n1,1\\n' > q.csv\n"
    "attn sdpa --q q.csv --k q.csv --v q.csv\n"
    "attn sdpa --q q.csv --k q.csv --v q.csv --causal top-left --lse lse.npy\n"
    "printf '0,-1,-1\\n0,0,-1\\n0,0,0\\n' > bias.csv\n"
    "attn sdpa --q q.csv --k q.csv --v q.csv --mask bias.csv --output o.npy --json\n"
    "attn sdpa --q q.csv --k q.csv --v q.csv --causal top-left --query-offset 2\n"
    "printf '0.5\\n-1\\n0\\n1\\n' > t.csv\n"
    "attn sdpa --q q.csv --k q.csv --v q.csv --relative-bias t.csv\n"
    "printf '1,0\\n1,1\\n' > blocks.csv\n"
    "attn sdpa --q q.csv --k q.csv --v q.csv --blocks blocks.csv --block-size 2";

Operands load(const SdpaFlags& flags) {
  require_one_stdin({flags.q, flags.k, flags.v, flags.mask, flags.blocks, flags.relative_bias});
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
  return formatted("sdpa: q {}, k {}, v {} → {} in {:.3f} s\n", in.q.tensor.shape().str(), in.k.tensor.shape().str(),
                   in.v.tensor.shape().str(), result.output.shape().str(), seconds) +
         told(in.notes, count_nonfinite(result.output), outputs.paths());
}

void save(const SdpaFlags& flags, const Outputs& outputs, const AttentionResult& result,
          const std::function<void()>& print) {
  using io::OutputFile;
  outputs.save({{"--output", [&](OutputFile& to) { io::write_tensor(to, flags.output, result.output); }},
                {"--lse", [&](OutputFile& to) { io::write_tensor(to, flags.lse, result.lse); }},
                {"--save-weights", [&](OutputFile& to) { io::write_tensor(to, flags.save_weights, result.weights); }}},
               print);
}

void run(const SdpaFlags& flags) {
  Outputs outputs;
  const std::vector<std::string> extensions{".npy", ".npz", ".safetensors"};
  outputs.declare("--output", flags.output, extensions);
  outputs.declare("--lse", flags.lse, extensions);
  outputs.declare("--save-weights", flags.save_weights, extensions);
  AttentionOptions options = options_of(flags);
  if (!flags.mask.empty()) options.mask = options.mask & mask_of(load_only(flags.mask, flags.max_bytes));
  const Operands in = load(flags);
  const auto start = std::chrono::steady_clock::now();
  const kernels::PlanRecord record;
  const AttentionResult result = compute(in, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string plans = flags.explain ? plans_text(record.plans()) : "";
  save(flags, outputs, result, [&] {
    if (flags.json) return outputs.say(dump(report(flags, in, result, outputs, seconds, record.plans())));
    if (!flags.output.empty()) return outputs.say(summary(in, result, outputs, seconds) + plans);
    write_stdout(labelled(result.output, {}) + "\n");
  });
  if (flags.json || !flags.output.empty()) return;
  tell_beside(in.notes, outputs.paths());
  write_stderr(plans);
}

void add_masks(Verb& verb, SdpaFlags& flags) {
  verb.add_option(
      "--mask FILE", flags.mask,
      "A mask that is broadcast to (b, h, tq, tk): bool is true where a key may be seen, and float is added "
      "to the scaled scores.");
  const Option& blocks = verb.add_option("--blocks FILE", flags.blocks,
                                         "A block-sparse mask of 1 (computed) and 0 (skipped), broadcast to "
                                         "(b, h, blocks of q, blocks of k).");
  verb.add_option("--block-size N", flags.block_size, "The number of tokens in a block of --blocks.")
      .needs(blocks)
      .at_least(1);
  const Option& causal = verb.add_option("--causal ALIGN", flags.causal,
                                         "Hide later keys; the diagonal starts top-left or ends bottom-right.")
                             .default_is("no key is hidden")
                             .one_of({"top-left", "bottom-right"});
  verb.add_option("--query-offset N", flags.query_offset, "The position of the first query in a longer sequence.")
      .default_is("0, or with --causal bottom-right the number of keys less that of queries");
  verb.add_option("--key-offset N", flags.key_offset, "The position of the first key.").default_is("0");
  const Option& relative = verb.add_option("--relative-bias FILE", flags.relative_bias,
                                           "T5's bias (buckets, h), added to scores by the bucket of a key's distance "
                                           "from the query.");
  verb.add_option("--relative-max-distance N", flags.relative_max_distance,
                  "Put all distances from N on into the last bucket.")
      .needs(relative);
  verb.add_flag("--relative-one-sided", flags.relative_one_sided,
                "Use all buckets for keys behind the query, as decoders do.")
      .needs(relative);
  for (const char* offset : {"--query-offset", "--key-offset"}) verb.find(offset)->needs(causal).needs(relative);
}

}  // namespace

void define_sdpa(Verb& verb, int&) {
  const auto flags = std::make_shared<SdpaFlags>();
  verb.add_option("--q FILE", flags->q, "The queries: a file of one tensor, or - for standard input.").required();
  verb.add_option("--k FILE", flags->k, "The keys, whose number of heads divides that of the queries.").required();
  verb.add_option("--v FILE", flags->v, "The values.").required();
  add_masks(verb, *flags);
  verb.add_option("--scale S", flags->scale, "Multiply the scores by S; none means 1.").default_is("1/√d");
  verb.add_option("--softcap C", flags->softcap, "Bend scores to C · tanh(scores / C); 0 leaves them.");
  verb.add_option("--output FILE", flags->output,
                  "Save the result as .npy, .npz or .safetensors; - writes .npy to standard output.");
  verb.add_option("--lse FILE", flags->lse, "Save log Σ exp of the masked scores, of shape (b, h, tq).");
  verb.add_option("--save-weights FILE", flags->save_weights, "Save the attention weights, of shape (b, h, tq, tk).");
  verb.add_option("--scheme NAME", flags->scheme, "How ranks that mpirun or srun started share the work.")
      .one_of({"auto", "ring", "gather", "ulysses"});
  add_limit_flag(verb, flags->max_bytes);
  verb.add_flag("--explain", flags->explain, "Tell which kernel computed it, how, and why.");
  verb.add_flag("--json", flags->json, "Describe what was done as one JSON object.");
  verb.notes(kSdpaNotes);
  verb.examples(kSdpaExamples);
  verb.callback([flags] {
    distributed::Transport* const ranks = launched_ranks();
    if (ranks && ranks->size() > 1) return run_sdpa_over_ranks(*flags, *ranks);
    require_no_scheme(flags->scheme);
    run(*flags);
  });
}

}  // namespace attn::tool
