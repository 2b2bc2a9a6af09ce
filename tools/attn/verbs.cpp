#include "verbs.hpp"

#include <algorithm>
#include <array>

namespace attn::tool {
namespace {

constexpr std::array kVerbs{
    VerbEntry{"demo", "Walk six words through every step; begin here.", define_demo},
    VerbEntry{"run", "Run a module on an input; print or save the result.", define_run},
    VerbEntry{"explain", "Follow one query through a module, product by product.", define_explain},
    VerbEntry{"show", "Show attention weights, or any step, in the terminal.", define_show},
    VerbEntry{"plot", "Draw attention weights or any step: SVG, PNG, HTML.", define_plot},
    VerbEntry{"report", "Write an HTML page of every step; it needs no network.", define_report},
    VerbEntry{"experiment", "Switch heads off, and tell what a model's text loses by it.", define_experiment},
    VerbEntry{"train", "Train a language model on text, and write it to a file.", define_train, true},
    VerbEntry{"generate", "Write text with a model that attn train or Hugging Face saved.", define_generate, true},
    VerbEntry{"chat", "Talk with a model, which answers each line.", define_chat},
    VerbEntry{"embed", "Make vectors of sentences, and tell how near they are.", define_embed},
    VerbEntry{"tokens", "Show the tokens of a text, by a released model's files.", define_tokens},
    VerbEntry{"sdpa", "Compute the operator softmax(mask(q · kᵀ · scale)) · v.", define_sdpa, true},
    VerbEntry{"draw", "Draw random numbers and dropout as PyTorch does.", define_draw},
    VerbEntry{"check", "Compare every number of the notebooks, digit by digit.", define_check},
    VerbEntry{"bench", "Measure the speed beside this machine's own limits.", define_bench, true},
    VerbEntry{"info", "Describe this build, or the tensors of a file.", define_info},
    VerbEntry{"help", "Tell what a verb does and which options it has.", define_help},
    VerbEntry{"completions", "Print what a shell needs to complete this command.", define_completions},
};

}  // namespace

std::span<const VerbEntry> verbs() noexcept { return kVerbs; }

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const VerbEntry& verb : kVerbs) names.emplace_back(verb.name);
  return names;
}

const VerbEntry* find_verb(std::string_view name) noexcept {
  const auto* at = std::ranges::find(kVerbs, name, &VerbEntry::name);
  return at == kVerbs.end() ? nullptr : at;
}

std::unique_ptr<Verb> defined(const VerbEntry& entry, int& status) {
  auto verb = std::make_unique<Verb>(std::string(entry.name), std::string(entry.summary));
  entry.define(*verb, status);
  return verb;
}

}  // namespace attn::tool
