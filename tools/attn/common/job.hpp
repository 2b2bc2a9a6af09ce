// A module, its weights and its inputs, ready to compute: what run and explain have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attn/modules.hpp"
#include "attn/trace.hpp"
#include "common/inputs.hpp"
#include "common/module_flags.hpp"
#include "common/options.hpp"

namespace attn::tool {

struct InputFlags {
  std::string input, tensor, text, text_file, context, context_tensor, context_text, tokens, weights;
  std::uint64_t max_bytes = 0;
};

// A module's trace takes so many bytes for a query and a key: scores, scaled, masked, weights.
inline constexpr double kStepBytes = 16;

// --input, --tensor, --text, --text-file, --context, --context-tensor, --context-text, --tokens, --weights,
// --max-bytes. The six words are the default input. `or_model`: a model may read the text, too.
void add_input_flags(Verb& verb, InputFlags& flags, bool or_model = false);

// --text, or what --text-file has.
std::string given_text(const InputFlags& flags);

// A file's lines, one for each of `count` tokens: "query", "key", … in the error that says so.
std::vector<std::string> load_tokens(const std::string& path, std::int64_t count, std::string_view flag = "--tokens",
                                     std::string_view of = "token of the input");

struct Job {
  ModuleFlags flags;
  Input x;
  std::optional<Input> context;             // cross
  std::vector<std::string> tokens;          // one a row of x, or none
  std::vector<std::string> context_tokens;  // one a row of the context, or none
  std::unique_ptr<Module> module;
  bool seeded = false;             // the weights are the first numbers that the seed draws
  std::vector<std::string> notes;  // what the user should know: conversions, NaN, flags without effect

  // Throws Error as the module does.
  Tensor forward(Trace* trace) const;
};

// Checks the flags, reads the files, builds the module and loads its weights. `with_steps`: forward() will be
// given a trace, which holds every (queries, keys) matrix. Throws Error.
Job prepare(const Verb& verb, const ModuleFlags& module, const InputFlags& inputs, bool with_steps);

}  // namespace attn::tool
