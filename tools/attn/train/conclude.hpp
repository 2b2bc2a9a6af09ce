// The end of a training run: what is told of it.
#pragma once

#include <string>

#include "attn/tokenizer.hpp"
#include "train/files.hpp"
#include "train/progress.hpp"
#include "train/training.hpp"

namespace attn::tool {

// Returns what the model writes behind the beginning of the held-out part, as far as its context reaches. There is no
// text where that is one token.
std::string sample_of(Training& training, const Tokenizer& tokenizer);

// Losses, files and the sample, on standard output, or on standard error where JSON was printed.
void conclude(const Training& training, const Progress& progress, const TrainingFiles& files, bool json,
              const std::string& sample);

}  // namespace attn::tool
