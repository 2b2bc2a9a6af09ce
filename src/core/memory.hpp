// Memory for tensors. New pages from the system cost about as much as writing them, and on virtual machines many times
// that, which a module or a step of training would pay for each of its tensors, again and again. So memory that a tensor
// of 1 MB or more gives back waits for the next one of its size: up to 256 MB.
#pragma once

#include <cstddef>
#include <memory>

namespace attn {

std::shared_ptr<void> allocate(std::size_t bytes);  // aligned to 64 bytes; throws std::bad_alloc

// While one of these lives, as much may wait as makes, with what is in use, half as much again as was in use at once: a
// forward pass has other sizes than a backward pass.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
};

}  // namespace attn
