// A generator that threads may share.
#pragma once

#include <mutex>

#include "attn/random.hpp"

namespace attn::python {

struct Stream {
  Stream(std::uint64_t seed, DropoutFlavour flavour) : generator(seed, flavour) {}

  Generator generator;
  std::mutex mutex;  // never taken by a thread that waits for the GIL
};

}  // namespace attn::python
