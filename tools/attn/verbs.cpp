#include "verbs.hpp"

#include <algorithm>
#include <array>

namespace attn::tool {
namespace {

constexpr std::array kVerbs{
    VerbEntry{"demo", "Six words through every step of the chapter; start here", define_demo},
    VerbEntry{"run", "Run a module on an input: read, compute, save or print", define_run},
    VerbEntry{"explain", "Walk one query through a module, the arithmetic written out", define_explain},
    VerbEntry{"show", "Attention weights or any step in the terminal", define_show},
    VerbEntry{"plot", "Draw attention weights or any step as SVG or PNG, for papers", define_plot},
    VerbEntry{"report", "Write one HTML page that shows every step; needs no network", define_report},
    VerbEntry{"train", "Train a GPT on text, to a model file", define_train},
    VerbEntry{"sdpa", "The bare operator: softmax(mask(q · kᵀ · scale)) · v", define_sdpa},
    VerbEntry{"check", "Every number the notebooks print, digit by digit", define_check},
    VerbEntry{"generate", "Text from a model that attn train or Hugging Face made", define_generate},
    VerbEntry{"bench", "Speed, beside this machine's own limits", define_bench},
    VerbEntry{"info", "This build and processor; with FILE, the tensors in it", define_info},
};

}  // namespace

std::span<const VerbEntry> verbs() noexcept { return kVerbs; }

const VerbEntry* find_verb(std::string_view name) noexcept {
  const auto* at = std::ranges::find(kVerbs, name, &VerbEntry::name);
  return at == kVerbs.end() ? nullptr : at;
}

}  // namespace attn::tool
