// Steps whose loss or gradient is not finite: they end a run, or are left out of it.
#pragma once

#include <string>
#include <string_view>

#include "attn/error.hpp"
#include "train/files.hpp"
#include "train/run.hpp"

namespace attn::tool {

class Divergence {
 public:
  enum class Then { stop, skip };

  Divergence(Then then, const TrainingFiles& files) : then_(then), files_(files) {}
  // After each step. Throws Error (data) for one that ends the run.
  void check(const Run::Step& step, const Run& run);

  static constexpr int kMost = 10;  // skipped in a row: by then it is not the batch

 private:
  Then then_;
  const TrainingFiles& files_;
  int in_a_row_ = 0;
};

// The error of a run that cannot go on because of what was found.
Error diverged(const std::string& found, const TrainingFiles& files, std::string_view advice = {});

}  // namespace attn::tool
