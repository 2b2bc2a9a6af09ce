// Memory for tensors. New pages from the system cost about as much as writing them, which a step of training would pay
// for each of its tensors, again and again.
#pragma once

#include <cstddef>
#include <memory>

namespace attn {

std::shared_ptr<void> allocate(std::size_t bytes);  // aligned to 64 bytes; throws std::bad_alloc

// While one of these lives, memory that a tensor gives back waits for the next one of its size. With what waits, memory
// is up to half as much again as was in use at once: a forward pass has other sizes than a backward pass.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
};

}  // namespace attn
