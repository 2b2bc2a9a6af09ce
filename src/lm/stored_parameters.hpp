// Which tensors of a model's files hold its parameters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attn/language_model.hpp"

namespace attn {

inline constexpr std::string_view kHeadTensor = "lm_head.weight";
inline constexpr std::string_view kTrainingTensors = "training.";  // a checkpoint's, which no model reads

// A tensor of the files: a parameter, or several on top of each other.
struct StoredParameters {
  std::string name;
  std::vector<Parameter*> parts;
  bool transposed = false;  // (d_in, d_out), as GPT-2's Conv1D has it

  Shape shape() const;  // in the file
};

// A parameter's name, as the files of its family have it; such a name stays what it is.
std::string stored_name(std::string name, std::string_view family);
std::vector<StoredParameters> stored_parameters(LanguageModel& model);

// A tensor that may be in the files and says nothing: buffers of masks and frequencies, and the head of a tied model.
bool passed_over(std::string_view name, const LanguageModelConfig& config);

}  // namespace attn
