#include "report/html/blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>

#include "attn/error.hpp"
#include "attn/steps.hpp"
#include "core/parallel.hpp"

namespace attn::report_page {
namespace {

constexpr const char* kOp = "steps";

[[noreturn]] void refuse(std::string_view expected, std::string_view found, std::string_view hint = {}) {
  throw Error(Error::Kind::shape, kOp, expected, found, hint);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "layers.3.heads.0.queries": of block "layers.3", head "0", step "queries".
struct Address {
  std::string block, head, step;
};

Address address_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", "", name};
  Address at{name.substr(0, dot), "", name.substr(dot + 1)};
  const std::size_t heads = at.block.rfind("heads.");
  if (heads != std::string::npos && (heads == 0 || at.block[heads - 1] == '.') &&
      is_number(at.block.substr(heads + 6))) {
    at.head = at.block.substr(heads + 6);
    at.block.resize(heads == 0 ? 0 : heads - 1);
  }
  return at;
}

// Head by head, as recorded.
using Parts = std::map<std::string, std::vector<Tensor>, std::less<>>;
struct Found {
  std::string label;
  Parts steps;
};

std::vector<Found> collect(const Trace& trace) {
  std::vector<Found> found;
  std::map<std::string, std::size_t> places;
  for (const auto& [name, tensor] : trace.steps()) {
    const Address at = address_of(name);
    const auto [place, is_new] = places.emplace(at.block, found.size());
    if (is_new) found.push_back({at.block, {}});
    found[place->second].steps[at.step].push_back(tensor);
  }
  std::erase_if(found, [](const Found& f) { return !f.steps.contains("weights"); });
  return found;
}

// Has this block's recording a batch dimension? Its inputs tell; without inputs only (b, h, tq, tk) can have one.
std::int64_t batch_of(const Parts& steps) {
  const auto inputs = steps.find("inputs");
  const Tensor& weights = steps.find("weights")->second.front();
  const auto first = [&](const Tensor& t, std::size_t rank) { return t.rank() == rank ? t.size(0) : 0; };
  return inputs != steps.end() ? first(inputs->second.front(), 3) : first(weights, 4);
}

Tensor one_text(const Tensor& tensor, std::size_t rank, std::int64_t batch, std::int64_t item) {
  if (batch == 0 || tensor.rank() < rank || tensor.size(0) != batch) return tensor;
  return tensor.select(0, item);
}

// Joined along a new first dimension, in float32 where their dtypes differ.
Tensor joined(std::vector<Tensor>& parts) {
  const bool same =
      std::all_of(parts.begin(), parts.end(), [&](const Tensor& t) { return t.dtype() == parts[0].dtype(); });
  for (Tensor& part : parts) part = same ? part.select(0, 0) : part.select(0, 0).to(DType::f32);
  return stack(parts);
}

// One text's tensor of a step: (t, d), (h, t, d) or (h, tq, tk).
Tensor of_step(const Step& step, const std::vector<Tensor>& heads, std::int64_t batch, std::int64_t item) {
  const bool flat = step.kind == StepKind::tokens;
  std::vector<Tensor> parts;
  for (const Tensor& head : heads) {
    Tensor part = one_text(head, 3, batch, item);
    if (part.rank() == 2 && !flat) part = part.unsqueeze(0);
    if (part.rank() != (flat ? 2u : 3u)) {
      const char* const shape = flat           ? " (tokens, size)"
                                : step.pairs() ? " (heads, queries, keys)"
                                               : " (heads, tokens, size)";
      refuse(std::string(step.name) + shape, head.shape().str());
    }
    parts.push_back(part.contiguous());
  }
  if (parts.size() == 1) return parts.front();
  return flat ? parts.back() : joined(parts);
}

// Heads that share keys and values were recorded one after the other, each with the same: the first of each group.
Tensor distinct(const Tensor& heads) {
  const std::int64_t count = heads.size(0);
  const std::size_t bytes =
      static_cast<std::size_t>(heads.numel() / std::max<std::int64_t>(count, 1)) * size_of(heads.dtype());
  const auto plane = [&](std::int64_t i) {
    return static_cast<const std::byte*>(heads.raw()) + static_cast<std::size_t>(i) * bytes;
  };
  for (std::int64_t group = count; group > 1; --group) {
    bool same = count % group == 0 && bytes > 0;
    for (std::int64_t i = 0; same && i < count; ++i) same = std::memcmp(plane(i), plane(i - i % group), bytes) == 0;
    if (!same) continue;
    std::vector<Tensor> firsts;
    for (std::int64_t i = 0; i < count; i += group) firsts.push_back(heads.select(0, i));
    return stack(firsts);
  }
  return heads;
}

void require_fits(const Block& block, const Step& step, const Tensor& tensor) {
  const Tensor& weights = block.weights();
  const std::int64_t heads = weights.size(0), queries = weights.size(1), keys = weights.size(2);
  const Shape& s = tensor.shape();
  const std::int64_t rows = step.of_keys ? keys : queries;
  const bool fits = step.pairs()                   ? s == weights.shape()
                    : step.kind == StepKind::heads ? s[0] > 0 && heads % s[0] == 0 && s[1] == rows
                                                   : s[0] == rows;
  if (!fits) {
    refuse(std::string(step.name) + " that fit the weights " + weights.shape().str() + " (heads, queries, keys)",
           s.str());
  }
}

Block block_of(const Found& found, std::int64_t batch, std::int64_t item) {
  Block block{found.label, {}, {}, {}};
  for (const Step& step : known_steps()) {
    const auto at = found.steps.find(step.name);
    if (at == found.steps.end()) continue;
    block.recorded.emplace_back(step.name, of_step(step, at->second, batch, item));
    block.steps.emplace_back(step.name, block.recorded.back().second.to(DType::f32));
  }
  if (const auto at = found.steps.find("sinks"); at != found.steps.end()) {
    block.sinks = at->second.front().contiguous();
    if (block.sinks.numel() != block.weights().size(0))
      refuse("a sink for each head of the weights", block.sinks.shape().str());
  }
  for (const auto& [name, tensor] : block.steps) require_fits(block, *find_step(name), tensor);
  for (Steps* steps : {&block.recorded, &block.steps}) {
    for (auto& [name, tensor] : *steps) {
      const Step& step = *find_step(name);
      if (step.of_keys && step.kind == StepKind::heads) tensor = distinct(tensor);
    }
  }
  return block;
}

}  // namespace

std::int64_t layer_number(const Blocks& blocks, const Block& block) {
  constexpr std::string_view prefix = "layers.";
  const std::string_view label = block.label;
  const bool numbered = label.starts_with(prefix) && label.size() < 16 && is_number(label.substr(prefix.size()));
  return 1 + (numbered ? std::stoll(block.label.substr(prefix.size())) : &block - blocks.blocks.data());
}

std::string place_of(const Blocks& blocks, const Block& block, std::optional<std::int64_t> head) {
  std::string place = blocks.blocks.size() > 1 ? "layer " + std::to_string(layer_number(blocks, block)) : "";
  if (!head || block.weights().size(0) == 1) return place;
  return place.append(place.empty() ? "" : ", ").append("head ").append(std::to_string(*head + 1));
}

const Tensor* Block::find(std::string_view name) const noexcept {
  const auto at = std::find_if(steps.begin(), steps.end(), [&](const auto& step) { return step.first == name; });
  return at == steps.end() ? nullptr : &at->second;
}

const Tensor* Block::softmax_input() const noexcept {
  return find(attn::softmax_input([&](std::string_view name) { return find(name) != nullptr; }));
}

bool Block::looks_causal() const noexcept {
  const Tensor& w = weights();
  const std::int64_t tokens = w.size(1);
  if (softmax_input() != nullptr || tokens != w.size(2) || tokens < 2) return false;
  const float* row = w.data<float>();
  for (std::int64_t i = 0; i < w.size(0) * tokens; ++i, row += tokens) {
    for (std::int64_t j = i % tokens + 1; j < tokens; ++j) {
      if (row[j] != 0) return false;
    }
  }
  return true;
}

Tensor Block::keep() const {
  const Tensor* masked = find("masked");
  if (masked == nullptr && !looks_causal()) return {};
  const Tensor& w = weights();
  const std::int64_t keys = w.size(2);
  Tensor keep = Tensor::zeros(w.shape(), DType::boolean);
  const float* score = masked != nullptr ? masked->data<float>() : nullptr;
  bool* to = keep.data<bool>();
  for (std::int64_t i = 0; i < w.numel() / std::max<std::int64_t>(keys, 1); ++i) {
    for (std::int64_t j = 0; j < keys; ++j) *to++ = score != nullptr ? *score++ != -INFINITY : j <= i % keys;
  }
  return keep;
}

Tensor Block::keep_in_any_head() const {
  const Tensor all = keep();
  if (!all.defined()) return {};
  Tensor keep = Tensor::zeros({all.size(1), all.size(2)}, DType::boolean);
  for (std::int64_t at = 0; at < all.numel(); ++at) {
    if (all.data<bool>()[at]) keep.data<bool>()[at % keep.numel()] = true;
  }
  return keep;
}

Tensor of_head(const Tensor& step, std::int64_t head, std::int64_t heads) {
  return step.rank() == 2 ? step : step.select(0, head * step.size(0) / heads);
}

void for_each(std::int64_t n, double operations, const std::function<void(std::int64_t)>& f) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(n));
  parallel_for(n, 0, operations, [&](std::int64_t i, void*) {
    try {
      f(i);
    } catch (...) {
      errors[static_cast<std::size_t>(i)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

Blocks arrange(const Trace& trace, std::int64_t item) {
  Blocks result;
  const std::vector<Found> found = collect(trace);
  if (found.empty()) {
    std::string names;
    for (const auto& [name, tensor] : trace.steps()) names.append(names.empty() ? "" : ", ").append(name);
    throw Error(Error::Kind::argument, kOp, "a trace with the step \"weights\"",
                names.empty() ? "an empty one" : names);
  }
  result.batch = batch_of(found.front().steps);
  if (item < 0 || item >= std::max<std::int64_t>(result.batch, 1)) {
    throw Error(Error::Kind::argument, kOp,
                "item from 0 to " + std::to_string(std::max<std::int64_t>(result.batch, 1) - 1), std::to_string(item));
  }
  for (const Found& f : found) result.blocks.push_back(block_of(f, batch_of(f.steps), item));
  const Shape& first = result.blocks.front().weights().shape();
  result.queries = first[1], result.keys = first[2];
  for (const Block& block : result.blocks) {
    if (const Shape& other = block.weights().shape(); other[1] != first[1] || other[2] != first[2]) {
      refuse("layers of one shape " + first.str(), other.str() + " in " + block.label);
    }
  }
  return result;
}

}  // namespace attn::report_page
