#include "lm/editor.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "attn/steps.hpp"
#include "core/suggest.hpp"
#include "lm/names.hpp"

namespace attn::editing {
namespace {

using Kind = Error::Kind;

constexpr const char* kOp = "edit";
constexpr const char* kInPass = "a step that this pass takes";  // by then, where another takes its value

// One head of a step (b, heads, t, n); a single head's steps have no dimension of heads.
Tensor head_of(const Tensor& step, std::int64_t head, const std::string& name) {
  const Step* known = find_step(name.substr(name.rfind('.') + 1));
  if (!known || known->kind == StepKind::tokens) {
    throw Error(Kind::argument, kOp, "no head of " + name + ", which has none", "head " + std::to_string(head));
  }
  const std::int64_t heads = step.rank() == 4 ? step.size(1) : 1;
  if (head < 0 || head >= heads) {
    throw Error(Kind::argument, kOp, "a head of " + name + " from 0 to " + std::to_string(heads - 1),
                std::to_string(head));
  }
  return step.rank() == 4 ? step.select(1, head) : step;
}

// Another family's name of a step has its layer and its last word in common with this one's. Asks for the first that has them.
std::string alike(const std::string& step, const std::vector<std::string>& names) {
  const std::size_t from = step.find_first_of("0123456789"), dot = step.find('.', from);
  const auto layer = "." + step.substr(std::min(from, step.size()), dot - from) + ".",
             last = step.substr(step.rfind('.') + 1);
  const auto at = std::ranges::find_if(names, [&](const std::string& name) {
    return name.find(layer) != std::string::npos && name.ends_with("." + last);
  });
  return at == names.end() ? std::string() : "did you mean " + *at + "?";
}

}  // namespace

Seen seen_in(const LanguageModelConfig& config, const Edits& edits, std::int64_t layer,
             std::optional<std::int64_t> head) {
  Seen seen{config.causal, config.layers[static_cast<std::size_t>(layer)].window, head};
  for (const Edit& e : edits) {
    if (e.hides && e.layer == layer) seen.hidden.push_back({*e.hides, e.head});
  }
  return seen;
}

std::string step_name(const LanguageModelConfig& config, Edit::Of of, std::int64_t layer, std::string_view step) {
  const ModelNames& names = names_of(config.family);
  const std::string block = names.blocks + std::to_string(layer) + ".";
  if (of == Edit::Of::attention) return block + names.attention + std::string(step);
  return block + (of == Edit::Of::feed_forward ? "mlp." : "") + std::string(step);
}

Editor::Editor(const Edits& edits, const LanguageModelConfig& config, Trace* steps)
    : steps_(steps),
      trace_({.watches = [this](const std::string& name) { return watches(name); },
              .edit = [this](const std::string& name, const Tensor& value) { return act(name, value); }}) {
  if (steps && steps->edits()) {
    throw Error(Kind::argument, kOp, "a trace that records the pass, beside edits", "one that edits it, too");
  }
  const auto layers = std::ssize(config.layers);
  for (const Edit& edit : edits) {
    if (edit.of == Edit::Of::trace) {
      edits_.push_back({edit, edit.step, edit.from, {}});
      continue;
    }
    if (edit.layer < 0 || edit.layer >= layers) {
      throw Error(Kind::argument, kOp, "a layer from 0 to " + std::to_string(layers - 1), std::to_string(edit.layer));
    }
    const auto name = [&](const std::string& step) { return step_name(config, edit.of, edit.layer, step); };
    edits_.push_back({edit, name(edit.step), edit.from.empty() ? "" : name(edit.from),
                      seen_in(config, edits, edit.layer, edit.head)});
  }
}

bool Editor::watches(const std::string& name) {
  seen_.insert(name);
  return steps_ || kept_names_.contains(name) ||
         std::ranges::any_of(edits_, [&](const Placed& e) { return e.step == name || e.from == name; });
}

Tensor Editor::act(const std::string& name, const Tensor& value) {
  Tensor now = value;
  for (Placed& e : edits_) {
    if (e.from == name) sources_[name] = value.clone();
    if (e.step != name) continue;
    if (!e.from.empty() && !sources_.contains(e.from)) throw Error(Kind::argument, kOp, kInPass, e.from);
    now = e.from.empty() ? now.clone() : sources_.at(e.from).clone();
    if (e.edit.change) {
      const Tensor part = e.edit.head ? head_of(now, *e.edit.head, name) : now;
      part.copy_from(e.edit.change(part, e.seen).expand(part.shape()));
    }
    e.done = true;
  }
  if (steps_) steps_->record(name, now);
  if (kept_names_.contains(name)) kept_[name] = now.clone();
  return now;
}

const Tensor& Editor::kept(const std::string& name) const { return kept_.at(name); }

void Editor::check() const {
  for (const Placed& e : edits_) {
    if (e.done) continue;
    const std::vector<std::string> names(seen_.begin(), seen_.end());
    const std::string found = e.step + (e.edit.what.empty() ? "" : " (" + e.edit.what + ")");
    if (seen_.contains(e.step)) throw Error(Kind::argument, kOp, kInPass, found);
    const std::string near = did_you_mean(e.step, names);
    throw Error(Kind::argument, kOp, "a step of this pass, such as " + (names.empty() ? "" : names.front()), found,
                near.empty() ? alike(e.step, names) : near);
  }
}

}  // namespace attn::editing
