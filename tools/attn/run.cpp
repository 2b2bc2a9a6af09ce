// attn run: one module on one input.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/io.hpp"
#include "attn/version.hpp"
#include "common/command_line.hpp"
#include "common/format.hpp"
#include "common/job.hpp"
#include "common/json.hpp"
#include "common/outputs.hpp"
#include "common/terminal.hpp"
#include "io/writers.hpp"
#include "report/utf8.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct RunFlags {
  ModuleFlags module;
  InputFlags input;
  std::string output, save_weights, save_steps;
  bool json = false;
};

struct Result {
  Tensor output;
  Trace steps;
  Counts counts;
  double seconds = 0;
};

constexpr const char* kRunNotes =
    "Without --output the result is printed as PyTorch prints it. When a run fails, no file is changed.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, and 3 for bad data or files.";

constexpr const char* kRunExamples =
    "attn run causal\n"
    "printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' | attn run simple --input -\n"
    "printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n0.57,0.85,0.64\\n' > x.csv\n"
    "attn run causal --input x.csv --d-out 2 --save-weights w.safetensors\n"
    "attn run causal --input x.csv --d-out 2 --weights w.safetensors --output z.npy\n"
    "attn run multihead --input x.csv --d-out 4 --save-steps s.safetensors --json\n"
    "attn run heads --input x.csv --d-out 2 --dropout 0.5 --train --rng native\n"
    "attn run cross --input x.csv --context x.csv --d-out 2 --seed 7\n"
    "attn run head --input randn:4,8,32 --d-out 16 --seed 1337";

Result compute(const Job& job, bool with_steps) {
  Result result;
  const auto start = std::chrono::steady_clock::now();
  result.output = job.forward(with_steps ? &result.steps : nullptr);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.counts = count_nonfinite(result.output);
  return result;
}

io::NamedTensors steps_file(const Job& job, const Trace& steps) {
  io::NamedTensors file;
  file.tensors.assign(steps.steps().begin(), steps.steps().end());
  file.metadata = {
      {"attn", ATTN_VERSION}, {"module", job.flags.module}, {"rng", job.flags.rng}, {"command", command_line()}};
  if (job.seeded) file.metadata["seed"] = std::to_string(job.flags.seed);
  if (!job.tokens.empty()) file.metadata["tokens"] = valid_utf8(joined(job.tokens, "\n"));
  return file;
}

io::NamedTensors weights_file(const Job& job) {
  io::NamedTensors file;
  for (const Parameter* p : job.module->parameters()) file.tensors.emplace_back(p->name, p->value);
  return file;
}

void declare(Outputs& outputs, const RunFlags& flags) {
  outputs.declare("--output", flags.output, {".npy", ".npz", ".safetensors", ".csv"});
  outputs.declare("--save-weights", flags.save_weights, {".safetensors"});
  outputs.declare("--save-steps", flags.save_steps, {".safetensors"});
}

std::string summary(const Job& job, const Result& result, const Outputs& outputs) {
  const std::string context = job.context ? " and " + job.context->tensor.shape().str() : "";
  return formatted("{}: {}{} → {} in {:.3f} s\n", job.flags.module, job.x.tensor.shape().str(), context,
                   result.output.shape().str(), result.seconds) +
         told(job.notes, result.counts, outputs.paths());
}

Json counts_json(const Counts& counts) { return {{"nan", counts.nan}, {"inf", counts.inf}}; }

Json report(const RunFlags& flags, const Job& job, const Result& result, const Outputs& outputs) {
  Json json;
  json["module"] = job.flags.module;
  json["shapes"]["input"] = json_shape(job.x.tensor.shape());
  if (job.context) json["shapes"]["context"] = json_shape(job.context->tensor.shape());
  json["shapes"]["output"] = json_shape(result.output.shape());
  json["seed"] = job.flags.seed;
  json["rng"] = job.flags.rng;
  json["training"] = job.module->training();
  json["parameters"] = Json::object();
  for (const Parameter* p : job.module->parameters()) json["parameters"][p->name] = json_shape(p->value.shape());
  json["nonfinite"]["input"] = counts_json(job.x.counts);
  if (job.context) json["nonfinite"]["context"] = counts_json(job.context->counts);
  json["nonfinite"]["output"] = counts_json(result.counts);
  json["seconds"] = result.seconds;
  json["files"] = outputs.paths();
  json["notes"] = job.notes;
  if (!job.tokens.empty()) json["tokens"] = job.tokens;
  if (flags.output.empty()) json["output"] = json_values(result.output);
  return json;
}

void tell(const RunFlags& flags, const Job& job, const Result& result, const Outputs& outputs) {
  if (flags.json) return outputs.say(dump(report(flags, job, result, outputs)));
  if (!flags.output.empty()) {
    return outputs.say(fitted(summary(job, result, outputs), outputs.to_stdout() ? STDERR_FILENO : STDOUT_FILENO));
  }
  write_stdout(labelled(result.output, job.tokens) + "\n");
}

void save(const RunFlags& flags, const Outputs& outputs, const Job& job, const Result& result) {
  using io::OutputFile;
  outputs.save({{"--output", [&](OutputFile& to) { io::write_tensor(to, flags.output, result.output); }},
                {"--save-weights", [&](OutputFile& to) { io::write_safetensors(to, weights_file(job)); }},
                {"--save-steps", [&](OutputFile& to) { io::write_safetensors(to, steps_file(job, result.steps)); }}},
               [&] { tell(flags, job, result, outputs); });
}

void run(const Verb& verb, const RunFlags& flags) {
  Outputs outputs;
  declare(outputs, flags);
  const Job job = prepare(verb, flags.module, flags.input, !flags.save_steps.empty());
  if (flags.output.ends_with(".csv") && job.x.tensor.rank() != 2) {
    refuse("--output", ".npy, .npz or .safetensors for a batch", ".csv");
  }
  const Result result = compute(job, !flags.save_steps.empty());
  save(flags, outputs, job, result);
  if (!flags.json && flags.output.empty()) tell_beside(job.notes, outputs.paths());
}

}  // namespace

void define_run(Verb& verb, int&) {
  const auto flags = std::make_shared<RunFlags>();
  add_module_flags(verb, flags->module);
  add_input_flags(verb, flags->input);
  verb.add_option("--output FILE", flags->output,
                  "Save the result as .npy, .npz, .safetensors or .csv; - writes .npy to standard output.");
  verb.add_option("--save-weights FILE", flags->save_weights, "Save the weights as .safetensors.");
  verb.add_option("--save-steps FILE", flags->save_steps, "Save every step as .safetensors.");
  verb.add_flag("--json", flags->json, "Describe what was done as one JSON object.");
  verb.notes(kRunNotes);
  verb.examples(kRunExamples);
  verb.callback([&verb, flags] { run(verb, *flags); });
}

}  // namespace attn::tool
