#include "io/temporary_name.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

namespace attn::io {
namespace {

enum class State { free, taken, named };

// A signal handler may read neither a string that is being freed nor a container that is being changed.
struct Slot {
  std::atomic<State> state = State::free;
  std::array<char, PATH_MAX> path{};
};
std::array<Slot, 16> slots;

// -1 where all are taken or the path is too long: such a name is out of a signal handler's sight.
int take_slot(const std::string& path) noexcept {
  for (std::size_t i = 0; i < slots.size() && path.size() < PATH_MAX; ++i) {
    State free = State::free;
    if (!slots[i].state.compare_exchange_strong(free, State::taken)) continue;
    std::memcpy(slots[i].path.data(), path.c_str(), path.size() + 1);
    slots[i].state = State::named;
    return static_cast<int>(i);
  }
  return -1;
}

std::string random_name() {
  std::random_device random;
  std::array<char, 32> name{};
  const int length = std::snprintf(name.data(), name.size(), ".attn-%08x%08x.tmp", random(), random());
  return {name.data(), static_cast<std::size_t>(length)};
}

}  // namespace

TemporaryName::TemporaryName(const std::filesystem::path& folder)
    : path_(folder / random_name()), slot_(take_slot(path_.native())) {}

TemporaryName::~TemporaryName() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  forget();
}

int TemporaryName::rename_to(const std::filesystem::path& path) noexcept {
  if (std::rename(path_.c_str(), path.c_str()) != 0) return -1;
  forget();
  path_.clear();
  return 0;
}

void TemporaryName::forget() noexcept {
  if (slot_ >= 0) slots[static_cast<std::size_t>(slot_)].state = State::free;
}

void remove_temporary_files() noexcept {
  for (const Slot& slot : slots) {
    if (slot.state == State::named) unlink(slot.path.data());
  }
}

}  // namespace attn::io
