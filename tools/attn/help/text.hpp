// The texts that --help prints, of the command and of a verb.
#pragma once

#include <string>
#include <string_view>

#include "common/options.hpp"

namespace attn::tool {

// `attn` alone prints the first, and `attn --help` the second.
std::string greeting_text();
std::string overview_text();
std::string help_text(const Verb& verb);

// "attn run [OPTIONS] [MODULE]"
std::string usage_of(const Verb& verb);
// "--colours,--colors NAME"
std::string left_of(const Option& option);

// An option of every verb, and the options of the command itself.
struct CommonOption {
  std::string_view names, what;
};
inline constexpr CommonOption kHelpOption{"-h,--help", "Print this help and exit."};
inline constexpr CommonOption kVersionOption{"--version", "Print the version and exit."};

inline constexpr const char* kSummary = "Compute attention and look at every step. The numbers are PyTorch's.";
inline constexpr const char* kExitCodes =
    "The exit code is 0 when all is done, 1 when a check failed, 2 for wrong usage, and 3 for bad data or files.";
inline constexpr const char* kExamples =
    "attn demo\n"
    "attn explain self-v1\n"
    "printf '0.43,0.15,0.89\\n0.55,0.87,0.66\\n' | attn run simple --input -\n"
    "attn help run";

}  // namespace attn::tool
