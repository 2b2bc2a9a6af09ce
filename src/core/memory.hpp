// Memory for tensors. New pages from the system cost about as much as writing them, and on virtual machines many times
// that, which a module or a step of training would pay for each of its tensors, again and again. So memory that a tensor
// of 1 MB or more gives back waits for the next one of its size: up to 256 MB.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <string_view>

namespace attn {

// Says what the memory was for: "[memory] expected 1.6 GB (1600000000 bytes) for a tensor (20000, 20000) of float32; …".
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(std::size_t bytes, std::string_view what_for) noexcept;
  const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 256> text_{};  // no string: there may be no memory for one
};

std::shared_ptr<void> allocate(std::size_t bytes);  // aligned to 64 bytes; throws OutOfMemory

// Gives back what waits, and counts what was in use at once anew: much of it is gone for good.
void give_back_kept_memory();

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
