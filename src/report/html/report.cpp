// The page, put together: its files, the policy that lets nothing else in, and the numbers.
#include "attn/report.hpp"

#include <algorithm>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/module_kinds.hpp"
#include "attn/steps.hpp"
#include "attn/version.hpp"
#include "report/figure/svg.hpp"
#include "report/figure/text.hpp"
#include "report/html/about.hpp"
#include "report/html/blocks.hpp"
#include "report/html/deflate.hpp"
#include "report/html/encode.hpp"
#include "report/html/health.hpp"
#include "report/html/json.hpp"
#include "report/html/layer.hpp"
#include "report/html/page.hpp"
#include "report/html/scores.hpp"
#include "report/html/snippets.hpp"

namespace attn {
namespace {

using namespace report_page;

constexpr std::size_t kTitle = 240;            // columns
constexpr std::int64_t kParameters = 1 << 18;  // with more weights than this the page does without them

void require_there(const char* what, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < std::max<std::int64_t>(count, 1)) return;
  throw Error(Error::Kind::argument, "report", std::string(what) + " from 0 to " + std::to_string(count - 1),
              std::to_string(index));
}

// The parameters' names and shapes always, their values where they are few, or where the page computes by `all` of
// them.
void write_parameters(Json& json, const StateDict& parameters, bool all) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : parameters) count += tensor.numel();
  json.name("parameters").object();
  for (const auto& [name, tensor] : parameters) {
    json.name(name);
    if (all || count <= kParameters) {
      exact(json, tensor);
    } else {
      json.object().name("shape").shape(tensor.shape()).end();
    }
  }
  json.end();
}

void write_steps(Json& json, const Block& block, const Plan& plan, Comparison& kept) {
  json.name("steps").array();
  for (const auto& [step, tensor] : block.steps) {
    const Step& known = *find_step(step);
    const bool weights = step == "weights";
    if (!plan.exact && !weights && !(plan.vectors && known.kind == StepKind::heads)) continue;
    json.object();
    write_step(json, known);
    json.name("data");
    if (plan.exact) {
      exact(json, tensor);
    } else if (weights) {
      pooled(json, tensor, block.keep(), plan, kept);
    } else {
      quantised(json, tensor, kept);
    }
    json.end();
  }
  json.end();
}

// Returns what is compressed of a layer: the length of its JSON in four bytes, the JSON, blanks up to a multiple of
// four, and the bytes that the JSON names.
std::string packed(const Json& json, const std::string& bytes) {
  std::string text = json.str();
  text.append((4 - text.size() % 4) % 4, ' ');
  std::string all;
  for (std::size_t i = 0; i < 4; ++i) all.push_back(static_cast<char>(text.size() >> 8 * i & 255));
  return all.append(text).append(bytes);
}

// "sha256-…" as Content-Security-Policy wants it.
std::string policy_hash(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return "sha256-" + base64(bytes);
}

// Nothing is loaded from anywhere, and no script or style runs but the page's own, whatever the tokens say.
// img-src: a picture is made from the page's SVG before it is saved as PNG.
// A page that computes compiles WebAssembly, of a model in a worker that is made of the page's own text.
std::string policy(const std::optional<LiveModel>& live) {
  const bool module = live && live->weights.empty();
  const std::string more = live ? " '" + policy_hash(library_sha256()) + "' 'wasm-unsafe-eval'" : "";
  return "default-src 'none'; script-src '" + policy_hash(live ? live_script_sha256() : script_sha256()) + "'" + more +
         (live && !module ? "; worker-src blob:" : "") + "; style-src '" +
         policy_hash(live ? live_style_sha256() : style_sha256()) +
         "'; img-src data: blob:; base-uri 'none'; form-action 'none'";
}

// Returns what a page that computes holds: the library, and the model. A module's weights are the report's own.
std::string live_parts(const LiveModel& model) {
  const auto as_base64 = [](const std::string& bytes) { return base64(std::as_bytes(std::span(bytes))); };
  const std::string engine = "<script id=\"library\">" + std::string(page_library()) +
                             "</script>\n<script type=\"text/plain\" id=\"engine\">" + as_base64(page_engine()) +
                             "</script>\n";
  if (model.weights.empty()) return engine;
  Json json;
  json.object().name("weights").text(as_base64(model.weights)).name("config").text(model.config);
  json.name("tokenizer").text(model.tokenizer).name("tokenizerConfig").text(model.tokenizer_config);
  json.name("inBytes").boolean(model.in_bytes).name("keptInBytes").boolean(model.kept_in_bytes).name("kept").array();
  for (const LiveModel::Kept& kept : model.kept)
    json.object().name("step").number(kept.step).name("weights").text(as_base64(kept.weights)).end();
  json.end();
  if (!model.ids.empty()) {
    json.name("ids").array();
    for (const std::int64_t id : model.ids) json.number(id);
    json.end();
  }
  json.end();
  return engine + "<script type=\"text/plain\" id=\"worker\">" + std::string(page_worker()) +
         "</script>\n<script type=\"application/json\" id=\"model\">" + json.str() + "</script>\n";
}

// The first head's weights, for readers whose browser runs no scripts.
std::string without_scripts(const Block& block, const Words& words) {
  const Tensor& weights = block.weights();
  if (weights.numel() == 0) return {};
  const Tensor keep = block.keep();
  return figure::heatmap(weights.select(0, 0), {.tokens = words.queries,
                                                .key_tokens = words.keys,
                                                .keep = keep.defined() ? keep.select(0, 0) : Tensor(),
                                                .colours = figure::Colours::cividis});
}

constexpr const char* kCanCompute =
    " <code>attn report --live</code> makes a page that computes: type in it, change its numbers, and try its labs.";

// A note on what the page holds of numbers that are too many.
std::string not_exact(const Block& block, const Plan& plan) {
  const bool neighbours = std::max(block.weights().size(1), block.weights().size(2)) > plan.cells;
  const bool vectors = plan.vectors && block.find("queries");
  return std::string("Too much to hold exactly (more than 128 tokens, or many layers and heads). The maps show ") +
         (neighbours ? "the largest of neighbouring weights" : "each weight to within 1/251 of its row’s largest") +
         ", in 8 bits; exact are each row’s " + std::to_string(plan.top) +
         " largest weights, and every head’s scores. " +
         (vectors ? "Queries, keys, values and contexts are in 8 bits, to within 1/510 of the range of their row; the"
                  : "The") +
         " other steps are left out.";
}

}  // namespace

struct ReportWriter::State {
  State(const ReportOptions& given, std::int64_t count) : options(given), layers(count) { options.repeated = {}; }

  void add_repeated(const Block& block);
  void choose_start();
  void require_live(const Block& block) const;
  void add(const Block& block, std::int64_t number);
  bool can_compute() const {
    return !options.live && (find_module_kind(options.module) || !options.repeated_ids.empty());
  }
  std::string block_json(const Block& block, std::int64_t number);
  std::string data() const;
  std::string value_of(std::string_view name) const;
  std::string page() const;

  ReportOptions options;
  std::int64_t layers, batch = 0;
  Shape shape;  // of the weights
  Words words;
  Plan plan;
  Health health;
  std::string heatmap, code;
  std::vector<std::string> blocks;  // JSON
  std::vector<std::int64_t> heads;
  std::vector<std::vector<HeadKinds>> kinds;
};

void ReportWriter::State::add_repeated(const Block& block) {
  const Tensor& weights = block.weights();
  const auto twice = 2 * static_cast<std::int64_t>(options.repeated_ids.size());
  if (twice <= 2 || weights.size(1) != twice || weights.size(2) != twice) {
    throw Error(Error::Kind::shape, "report",
                "repeated weights of the same layers and heads, of two tokens or more, each twice",
                weights.shape().str() + " for " + std::to_string(twice / 2) + " ids");
  }
  kinds.emplace_back();
  for (std::int64_t head = 0; head < weights.size(0); ++head) {
    kinds.back().push_back(head_kinds(weights.select(0, head), options.repeated_ids));
  }
}

void ReportWriter::State::choose_start() {
  const auto strongest = strongest_head(kinds, options.layer);
  const bool free = !options.head && strongest;
  if (free) options.layer = strongest->first;
  options.head = free ? strongest->second : options.head.value_or(0);
  options.layer = options.layer.value_or(0);
}

// Throws Error (argument) unless the page holds the numbers with which what is computed anew begins.
void ReportWriter::State::require_live(const Block& block) const {
  if (!options.live || !options.live->weights.empty()) return;
  if (!find_module_kind(options.module)) {
    throw Error(Error::Kind::argument, "report", "a module of the list for a page that computes", "no module");
  }
  if (!plan.exact || batch > 1) {
    throw Error(Error::Kind::argument, "report", "one text of at most 128 tokens for a page that computes",
                batch > 1 ? std::to_string(batch) + " texts" : std::to_string(block.weights().size(1)) + " tokens");
  }
}

void ReportWriter::State::add(const Block& block, std::int64_t number) {
  const Shape& found = block.weights().shape();
  if (blocks.empty()) {
    shape = found;
    words = words_of(block, options);
    choose_start();
    plan = plan_for(block, layers);
    if (!plan.exact) options.notes.push_back(not_exact(block, plan));
    require_live(block);
    heatmap = without_scripts(block, words);
    code = snippets(block, options);
  }
  if (found[1] != shape[1] || found[2] != shape[2]) {  // layers may differ in their heads
    throw Error(Error::Kind::shape, "report", "layers of one shape " + shape.str(), found.str() + " in " + block.label);
  }
  if (!kinds.empty() && (blocks.size() >= kinds.size() || std::ssize(kinds[blocks.size()]) != found[0])) {
    throw Error(Error::Kind::shape, "report",
                "repeated weights of the same layers and heads, of two tokens or more, each twice",
                std::to_string(kinds.size()) + " layers");
  }
  health.add(block);
  heads.push_back(found[0]);
  blocks.push_back(block_json(block, number));
}

// Writes what the map of heads shows, then the steps, which are compressed where they are many and not shown first.
std::string ReportWriter::State::block_json(const Block& block, std::int64_t number) {
  Json json;
  json.object().name("label").text(block.label).name("number").number(number);
  json.name("heads").number(block.weights().size(0)).name("causal").boolean(block.looks_causal());
  write_scores(json, block.weights());
  if (!kinds.empty()) write_kinds(json, kinds[blocks.size()]);
  Comparison kept;
  const auto write_rest = [&](Json& to) {
    write_sinks(to, block);
    write_steps(to, block, plan, kept);
    write_space(to, block);
  };
  std::optional<std::string> small;
  if (plan.packed && std::ssize(blocks) != *options.layer) {
    std::string bytes;
    Json rest(bytes);
    rest.object();
    write_rest(rest);
    rest.end();
    small = deflated(packed(rest, bytes));
  }
  if (small) {
    json.name("packed").base64(std::as_bytes(std::span(*small)));
  } else {
    kept = {};
    write_rest(json);
  }
  health.add_kept(kept);
  return json.end().str();
}

std::string ReportWriter::State::data() const {
  Json json;
  json.object();
  write_about(json, batch, words, health.checks(), options);
  json.name("repeated").number(static_cast<std::int64_t>(options.repeated_ids.size())).name("named").number(kNamed);
  write_parameters(json, options.parameters, options.live.has_value());
  json.name("snippets").json(code).name("exact").boolean(plan.exact).name("blocks").array();
  for (const std::string& block : blocks) json.json(block);
  return json.end().end().str();
}

std::string ReportWriter::State::value_of(std::string_view name) const {
  if (name == "policy") return policy(options.live);
  if (name == "live") return options.live ? live_parts(*options.live) : std::string();
  if (name == "title") return figure::escaped(figure::shortened(figure::clean(words.title), kTitle));
  if (name == "style") return std::string(page_style()).append(options.live ? page_live_style() : "");
  if (name == "data") return data();
  if (name == "version") return ATTN_VERSION;
  if (name == "more") return can_compute() ? kCanCompute : "";
  if (name == "static") return heatmap;
  std::string script;
  for (const std::string_view part : page_scripts()) script.append(part);
  for (const std::string_view part : options.live ? page_live_scripts() : std::span<const std::string_view>{}) {
    script.append(part);
  }
  return script;
}

std::string ReportWriter::State::page() const {
  if (blocks.empty()) throw Error(Error::Kind::argument, "report", "at least one layer", "none");
  require_there("layer", *options.layer, std::ssize(blocks));
  require_there("head", *options.head, heads[static_cast<std::size_t>(*options.layer)]);
  std::string page;
  std::string_view rest = page_html();
  for (std::size_t open; (open = rest.find("{{")) != std::string_view::npos;) {
    const std::size_t close = rest.find("}}", open);
    page.append(rest.substr(0, open));
    page.append(value_of(rest.substr(open + 2, close - open - 2)));
    rest.remove_prefix(close + 2);
  }
  return page.append(rest);
}

ReportWriter::ReportWriter(const ReportOptions& options, std::int64_t layers)
    : state_(std::make_unique<State>(options, layers)) {}
ReportWriter::~ReportWriter() = default;

void ReportWriter::add_repeated(const Trace& layer) { state_->add_repeated(arrange(layer, 0).blocks.front()); }

void ReportWriter::add(const Trace& layer, std::int64_t number) {
  const Blocks found = arrange(layer, state_->options.item);
  if (state_->blocks.empty()) state_->batch = found.batch;
  state_->add(found.blocks.front(), number);
}

std::string ReportWriter::page() const { return state_->page(); }

std::string report(const Trace& trace, const ReportOptions& options) {
  const Blocks found = arrange(trace, options.item);
  require_there("layer", options.layer.value_or(0), std::ssize(found.blocks));
  ReportWriter::State state(options, std::ssize(found.blocks));
  state.batch = found.batch;
  if (!options.repeated_ids.empty()) {
    for (const Block& block : arrange(options.repeated, 0).blocks) state.add_repeated(block);
  }
  for (const Block& block : found.blocks) state.add(block, layer_number(found, block));
  return state.page();
}

}  // namespace attn
