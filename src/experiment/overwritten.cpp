// Edits that change nothing, since another one takes the place of what they give.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "attn/error.hpp"
#include "attn/experiment.hpp"
#include "attn/steps.hpp"
#include "experiment/measures.hpp"
#include "lm/editor.hpp"

namespace attn {
namespace {

using Of = Edit::Of;
using Gives = Edit::Gives;

// Where an edit acts, whichever way its step was named.
struct Place {
  const Edit* edit;
  Of of = Of::trace;  // a step that is in none of a layer's parts
  std::int64_t layer = 0;
  std::string step;
};

Place place_of(const Edit& edit, const LanguageModelConfig& c) {
  if (edit.of != Of::trace) return {&edit, edit.of, edit.layer, edit.step};
  for (std::int64_t layer = 0; layer < std::ssize(c.layers); ++layer) {
    for (const Of of : {Of::attention, Of::feed_forward, Of::block}) {
      const std::string part = editing::step_name(c, of, layer, "");
      if (edit.step.starts_with(part)) return {&edit, of, layer, edit.step.substr(part.size())};
    }
  }
  return {&edit, Of::trace, 0, edit.step};
}

// A step's place among those of its part; what a part adds to its inputs comes last.
std::ptrdiff_t order(const Place& at) {
  if (at.step == "added") return std::ssize(known_steps());
  return at.of == Of::attention ? std::ranges::find(known_steps(), at.step, &Step::name) - known_steps().begin() : 0;
}

bool one_of(std::string_view step, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, step) != names.end();
}

// Whether all that an earlier step of attention changes goes through `later`. Gates are made of the inputs, too, and
// meet the contexts behind them.
bool goes_through(const Place& earlier, const Place& later) {
  if (one_of(later.step, {"merged", "output", "added"})) return true;
  const Step* step = find_step(earlier.step);
  if (!step || step->kind == StepKind::tokens) return false;
  if (later.step == "context") return true;
  return later.step == "weights" && !earlier.edit->hides &&
         (step->kind == StepKind::scores || one_of(step->name, {"queries", "keys", "rotated queries", "rotated keys"}));
}

// Heads of queries, keys and values are not always as many as those of weights and contexts: some share theirs.
bool same_heads(const Place& one, const Place& other) {
  if (!other.edit->head) return true;
  const Step* step = find_step(one.step);
  return one.edit->head == other.edit->head && step && (step->pairs() || step->name == "context");
}

// Whether `other`, which does not follow from what was there, takes the place of what `one` gives.
bool overwrites(const Place& other, const Place& one, bool one_is_first) {
  const bool is_skipped = other.of == Of::block && other.step == "output";
  if (one.of == Of::trace || one.layer != other.layer || (one.of != other.of && !is_skipped)) return false;
  if (one.of != other.of) return true;
  if (!same_heads(one, other)) return false;
  if (one.step == other.step) {
    // An edit behind one by which a head gives nothing may give something else, but no multiple of it.
    return one_is_first || (other.edit->gives == Gives::nothing && one.edit->gives == Gives::changed);
  }
  return one.of != Of::block && order(one) < order(other) && (one.of != Of::attention || goes_through(one, other));
}

std::string in_words(const Place& at) {
  return at.edit->step + (at.edit->what.empty() ? "" : " (" + at.edit->what + ")");
}

}  // namespace

void refuse_overwritten(const Edits& edits, const LanguageModelConfig& config) {
  std::vector<Place> places;
  for (const Edit& edit : edits) places.push_back(place_of(edit, config));
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < places.size(); ++j) {
      const Gives gives = places[j].edit->gives;
      if (i == j || gives == Gives::changed || places[i].edit->everywhere || !overwrites(places[j], places[i], i < j))
        continue;
      throw Error(Error::Kind::argument, experiment::kOp, "edits that all change something",
                  in_words(places[i]) + ", in whose place is " + in_words(places[j]), "leave it out");
    }
  }
}

}  // namespace attn
