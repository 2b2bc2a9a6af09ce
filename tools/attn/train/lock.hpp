// One training at a time writes to a model.
#pragma once

#include <filesystem>

#include "io/file.hpp"

namespace attn::tool {

// Holds the file at `path`, with the number of the process in it, for as long as it lives. The system gives up the lock
// of a process that was killed; the file, which then stays, locks nobody out.
class TrainingLock {
 public:
  // Throws Error (file), which names the model, where another process holds it.
  TrainingLock(const std::filesystem::path& path, const std::filesystem::path& model);
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
