// The report: every step of a forward pass as one HTML page to look at, which needs nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/modules.hpp"
#include "attn/random.hpp"
#include "attn/trace.hpp"

namespace attn {

// A model as the bytes of its files, safetensors with a config or GGUF, which a page holds to compute by itself.
// Without weights it stands for the module of the list that ReportOptions names, with its config and parameters.
struct LiveModel {
  // Weights of a step of its training, which a slider puts in the place of the model's.
  struct Kept {
    std::int64_t step = 0;
    std::string weights = {};  // safetensors with the model's tensors, or a file of it with rows in int8
                               // (tools/attn/common/live_model.cpp)
  };

  std::string weights = {};
  std::string config = {};                            // config.json's text; empty where the weights have it
  std::string tokenizer = {}, tokenizer_config = {};  // tokenizer.json's; empty where a token is a byte, or GGUF has it
  bool in_bytes = false;                              // the weights are as those of a step may be
  std::vector<std::int64_t> ids = {};  // which were read, with which the page begins; empty: those of the title
  std::vector<Kept> kept = {};         // in the order of their steps
  bool kept_in_bytes = false;
};

// These options tell what a trace does not know. All of them are optional: the page leaves out what it cannot tell.
struct ReportOptions {
  std::vector<std::string> tokens = {};      // one for each row of the inputs; default: their numbers
  std::vector<std::string> key_tokens = {};  // of cross-attention's source; default: tokens
  std::string title = {};                    // default: the tokens
  std::string unit = {};                     // what a token is called; default: "token" of a model, else "word"
  std::string module = {};                   // "multihead", … as attn run names them: which snippet, which wiring;
                                             // of another name nothing but the name is shown
  std::string command = {};                  // what made these numbers
  std::int64_t item = 0;                     // which text of a batch is shown
  // Which head of which layer is shown first. Default: the strongest head that has a name, induction heads before those
  // of the previous, the same and the first token; the first head of the first layer where no head has one.
  std::optional<std::int64_t> layer = {}, head = {};
  std::optional<std::uint64_t> seed = {};
  DropoutFlavour flavour = DropoutFlavour::mkl;
  std::optional<ModuleConfig> config = {};  // with `parameters`: the page writes out what a number is the sum of
  StateDict parameters = {};                // the module's state_dict()
  bool random_weights = false;              // drawn, and not trained: the page says so
  bool training = false;
  std::vector<std::string> notes = {};  // shown in the page's head
  // Steps, or weights alone, of the same layers reading `repeated_ids` twice, one after the other, and these token ids,
  // at least two. With both the page names heads by where the second reading looks.
  Trace repeated = {};
  std::vector<std::int64_t> repeated_ids = {};
  std::optional<LiveModel> live = {};  // the page reads anew what is typed; its title is then the text itself
};

// The same page of a model whose layers come one at a time: what is kept of a layer is what the page will hold of it.
class ReportWriter {
 public:
  // `layers`: how many add() will take, alike in their sizes. Together they decide how exactly numbers are kept.
  // options.repeated is not read: add_repeated() takes its place, layer by layer, before add() is called.
  ReportWriter(const ReportOptions& options, std::int64_t layers);
  ~ReportWriter();
  ReportWriter(const ReportWriter&) = delete;
  ReportWriter& operator=(const ReportWriter&) = delete;

  void add_repeated(const Trace& layer);
  // One layer's steps, and its number in the model, counted from 1. Throws Error as report() does.
  void add(const Trace& layer, std::int64_t number);
  std::string page() const;

 private:
  friend std::string report(const Trace& trace, const ReportOptions& options);
  struct State;
  std::unique_ptr<State> state_;
};

// One self-contained HTML5 document, UTF-8: no other file and no network is needed, and its Content-Security-Policy
// allows none. Tokens and texts are data: no part of them is read as markup or script.
// The trace holds the steps of one module (those that Trace lists), of several layers each in a Trace::Scope, or only
// "weights" (heads, queries, keys). Values are embedded exactly, as float32, up to 128 tokens and 32 MB, or 9 MB of
// several layers; beyond, the weights are pooled to 8 bits with each row's 16 largest exact, vectors are kept in 8
// bits, and the page says so. Of many numbers, the layers that are not shown first are compressed. Throws Error (shape)
// when steps do not fit together or `tokens` is not one for each row, Error (argument) for a trace without weights, and
// for an item, layer or head that is not there.
std::string report(const Trace& trace, const ReportOptions& options = {});

}  // namespace attn
