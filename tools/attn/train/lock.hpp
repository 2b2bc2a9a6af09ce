// One training at a time writes to a model.
#pragma once

#include <filesystem>

#include "io/file.hpp"
#include "io/output_file.hpp"

namespace attn::tool {

// Holds MODEL.training.lock beside the model, a file with the number of the process, for as long as it lives. The
// system gives up the lock of a process that was killed; the file, which then stays, locks nobody out.
class TrainingLock {
 public:
  // Throws Error (file) where another process holds it, Error (argument) for a model that is no file.
  explicit TrainingLock(const io::Destination& model);
  TrainingLock(const TrainingLock&) = delete;
  TrainingLock& operator=(const TrainingLock&) = delete;
  ~TrainingLock();

 private:
  bool take();              // false: try again
  void write_process_id();  // which process it is, for the other one's message

  std::filesystem::path model_, path_;
  io::Descriptor file_;
};

}  // namespace attn::tool
