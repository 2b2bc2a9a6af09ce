// "did you mean train?": what a mistyped word was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attn {

// The nearest of the names as a question, or nothing where none is near: a name that begins with the word, or one that
// a few wrong, missing, added or swapped letters turn it into. Case does not count, and an underscore is a dash.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);

}  // namespace attn
