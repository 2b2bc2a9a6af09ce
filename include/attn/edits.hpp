// Edits of a forward pass: what they name, and how a model is given them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attn/tensor.hpp"
#include "attn/trace.hpp"

namespace attn {

struct HeadAt {
  std::int64_t layer = 0, head = 0;  // both counted from 0
};

// Which keys a query of a head sees: those up to its own where the layer is causal, so many where it has a window, and
// none that an edit hides.
struct Seen {
  bool causal = true;
  std::int64_t window = 0;                // 0 = all
  std::optional<std::int64_t> head = {};  // none: what all heads of the layer see
  struct Hidden {
    std::int64_t key = 0;
    std::optional<std::int64_t> head = {};  // from which it is hidden; none: from all
  };
  std::vector<Hidden> hidden = {};

  bool operator()(std::int64_t query, std::int64_t key) const {
    const bool hides = std::ranges::any_of(
        hidden, [&](const Hidden& h) { return h.key == key && (!h.head || !head || h.head == head); });
    return !hides && (!causal || (key <= query && (window == 0 || query - key < window)));
  }
};

// One change of one step of a pass. The functions of attn/experiment.hpp make the usual ones.
struct Edit {
  // Whose step it is. `trace`: `step` is the whole name that a trace gives it, "h.5.attn.context". Else it is the name
  // within that part of `layer`: attn/steps.hpp has attention's, which also "added" what the layer adds to its inputs;
  // the feed-forward has "added", the block "inputs" and "output".
  enum class Of { trace, attention, feed_forward, block };
  Of of = Of::trace;
  std::string step = {};
  std::int64_t layer = 0;
  std::optional<std::int64_t> head = {};  // of a step that has heads; none: all of it
  std::string from = {};  // an earlier step of the same part, whose value takes the place of `step`'s before the change
  // The step (b, t, width) or (b, heads, t, n), or one head of it (b, t, n) → what takes its place, of that shape or
  // one that is broadcast to it. None: no further change.
  std::function<Tensor(const Tensor& value, const Seen& seen)> change = {};
  std::string what = {};                   // in words, for messages
  std::optional<std::int64_t> hides = {};  // the key that it hides, which weights that another edit sets leave out
  // Whether it gives a change of what was there, something else, or nothing. Behind the last two nothing is left of
  // what edits before it have changed there.
  enum class Gives { changed, other, nothing };
  Gives gives = Gives::changed;
  bool everywhere = false;  // one of those for all layers, of which one that changes nothing is no mistake
};
using Edits = std::vector<Edit>;

// A forward pass of a model may be given these beside its text:
//
//   model.forward(ids, {.edits = {without({3, 1}), scale({2, 0}, 0.5)}, .trace = &steps})
//
// Edits act in their order where they share a step. Attention is computed by the kernels unless an edit or the trace
// looks between a layer's inputs and its contexts; the reference, which computes it then, differs by rounding. Nothing
// is kept for backward(), whether there are edits or not. An edit of a step or a head that is not there throws Error
// (argument), naming the nearest, and so does one that touches nothing.
struct ForwardOptions {
  Edits edits = {};
  Trace* trace = nullptr;  // records the pass as edited; one with an editor of its own throws Error beside edits
};

}  // namespace attn
