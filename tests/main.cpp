// The tests' main. `test_attention --unit=NAME` runs every test on the kernels of one instruction set:
// AMX's on emulated tiles, where the processor has none. A name that no unit has is an error; a unit that this
// processor cannot run is a skip. Where ATTN_ELSEWHERE is set, so that other tests run the program on the unit that it
// chooses by itself, that unit is passed over.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "kernels/units.hpp"

namespace {

using namespace attn::kernels;

constexpr int kFailed = 1, kSkipped = 77;

int run_on(const std::string& name) {
  const std::vector<std::string> names = unit_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::cerr << "[--unit] expected one of";
    for (const std::string& known : names) std::cerr << " " << known;
    std::cerr << "; found " << name << "\n";
    return kFailed;
  }
  const Kernels* kernels = unit_named(name);
  if (!kernels && name == "amx") kernels = unit_named("amx_emulated");
  if (!kernels) {
    std::cout << "this processor has no " << name << "\n";
    return kSkipped;
  }
  if (kernels == &active() && std::getenv("ATTN_ELSEWHERE")) {
    std::cout << "this processor's own " << name << ": the program's tests run on it one by one\n";
    return 0;
  }
  std::cout << "on " << kernels->isa << "\n";
  use(kernels);
  return RUN_ALL_TESTS();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  constexpr std::string_view option = "--unit=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(option)) return run_on(argv[1] + option.size());
  std::cerr << "usage: " << argv[0] << " [--unit=NAME] [GoogleTest's options]\n";
  return kFailed;
}
