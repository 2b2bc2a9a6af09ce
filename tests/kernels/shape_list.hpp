// The rows of bench/shapes.txt as what kernels are handed: sizes and masks, without numbers.
#pragma once

#include <algorithm>
#include <deque>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "attention/call.hpp"

namespace attn::kernels {

class Listed {
 public:
  explicit Listed(const std::string& line) {
    std::istringstream words(line);
    for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
    std::istringstream(line) >> op_ >> shape_ >> dtype_ >> mask_ >> precision_;
    std::istringstream places(shape_);
    for (std::string place; std::getline(places, place, ',');) {
      sizes_.push_back({std::stol(place), std::stol(place.substr(place.find('/') + 1))});
    }
  }

  std::string text;  // its words

  // Returns the phases of a call on so many threads, one after the other; items of different lengths go side by side.
  std::vector<PhaseWork> phases(const Kernels& kernels, int threads) const {
    std::vector<PhaseWork> all;
    if (op_.starts_with("linear")) return products(kernels, threads, sizes_[0].first, sizes_[1].first, sizes_[2].first);
    if (op_.starts_with("module")) {
      const std::int64_t rows = sizes_[0].first * sizes_[1].first, width = sizes_[2].first;
      append(all, products(kernels, threads, rows, width, 3 * width));
      append(all, products(kernels, threads, rows, width, width));
    }
    const std::vector<Problem> items = problems();
    if (op_ != "backward")
      append(all, side_by_side(items, [&](const Problem& p) { return plan(p, kernels, threads); }));
    if (op_ == "backward" || op_.ends_with("training")) {
      append(all, side_by_side(items, [&](const Problem& p) { return plan(p, {}, kernels, threads); }));
    }
    return all;
  }

 private:
  struct Size {
    std::int64_t first, second;
  };

  static void append(std::vector<PhaseWork>& all, const std::vector<PhaseWork>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  // The products of a layer without its bias; where it is trained, of its gradients too.
  std::vector<PhaseWork> products(const Kernels& kernels, int threads, std::int64_t rows, std::int64_t in,
                                  std::int64_t out) const {
    const auto of = [&](std::int64_t m, std::int64_t k, std::int64_t n) {
      Product p{};
      p.m = m, p.k = k, p.n = n, p.a_row = k, p.a_depth = p.b_depth = 1, p.b_column = k;
      p.a_element = p.b_element = element(), p.precision = precision();
      return work(p, plan(p, kernels, threads));
    };
    std::vector<PhaseWork> all = of(rows, in, out);
    if (op_.ends_with("training")) append(all, of(rows, out, in)), append(all, of(out, rows, in));
    return all;
  }

  // Joins the phases of all items, in run_plans()'s order.
  template <class Plan>
  static std::vector<PhaseWork> side_by_side(const std::vector<Problem>& items, Plan&& plan) {
    Vector<decltype(plan(items[0]))> plans;
    for (const Problem& p : items) plans.push_back(plan(p));
    std::vector<PhaseWork> all;
    for (const std::size_t i : longest_first(plans, std::pmr::get_default_resource())) {
      const std::vector<PhaseWork> own = work(items[i], plans[i]);
      if (items.size() == 1) return own;
      all.resize(std::max(all.size(), own.size()));
      for (std::size_t phase = 0; phase < own.size(); ++phase) {
        all[phase].tasks.insert(all[phase].tasks.end(), own[phase].tasks.begin(), own[phase].tasks.end());
      }
    }
    return all;
  }

  Element element() const { return dtype_ == "f32" ? Element::f32 : dtype_ == "f16" ? Element::f16 : Element::bf16; }
  Precision precision() const {
    return precision_ == "medium" ? Precision::medium : precision_ == "high" ? Precision::high : Precision::highest;
  }
  bool has(const char* part) const { return mask_.find(part) != std::string::npos; }

  // One; with lengths one for each item.
  std::vector<Problem> problems() const {
    Problem p{};
    p.batch = sizes_[0].first, p.element = element(), p.precision = precision();
    if (op_.starts_with("module")) {
      p.hq = p.hkv = sizes_[3].first, p.tq = p.tk = sizes_[1].first, p.d = p.dv = sizes_[2].first / p.hq;
    } else {
      p.hq = sizes_[1].first, p.hkv = sizes_[1].second, p.tq = sizes_[2].first, p.tk = sizes_[2].second;
      p.d = sizes_[3].first, p.dv = sizes_[3].second;
    }
    if (has("blocks")) keep_blocks(p);
    if (has("score")) p.score.forward = [](const ScoreTile*, void*) {}, p.score.backward = nullptr;
    if (!has("lengths")) return {seen(p)};
    std::vector<Problem> items;
    for (std::int64_t b = 1; b <= p.batch; ++b) {
      Problem item = p;
      item.batch = 1, item.tk = p.tk * b / p.batch;
      items.push_back(seen(item));
    }
    return items;
  }

  Problem seen(Problem p) const {
    const std::int64_t window = has("window=") ? std::stol(mask_.substr(mask_.find("window=") + 7)) : p.tk;
    if (has("window=")) p.window = window + 1;
    auto& numbers = numbers_.emplace_back(2 * static_cast<std::size_t>(p.tq));
    for (std::int64_t i = 0; i < p.tq; ++i) {
      const bool causal = has("causal") || has("window=");
      numbers[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(std::max<std::int64_t>(0, i - window));
      numbers[static_cast<std::size_t>(p.tq + i)] = static_cast<std::int32_t>(causal ? std::min(i + 1, p.tk) : p.tk);
    }
    p.first = numbers.data(), p.last = p.first + p.tq;
    return p;
  }

  // One block in ten, of 128 × 128, at random.
  void keep_blocks(Problem& p) const {
    const std::int64_t down = (p.tq + 127) / 128, across = (p.tk + 127) / 128;
    auto& keep = blocks_.emplace_back(static_cast<std::size_t>(p.hq * down * across));
    std::minstd_rand random(1);
    for (char& block : keep) block = random() % 10 == 0;
    p.blocks.keep.data = reinterpret_cast<const bool*>(keep.data());
    p.blocks.keep.head = down * across, p.blocks.keep.query = across, p.blocks.keep.key = 1;
    p.blocks.query = p.blocks.key = 128;
  }

  std::string op_, shape_, dtype_, mask_ = "none", precision_ = "highest";
  std::vector<Size> sizes_;
  mutable std::deque<std::vector<std::int32_t>> numbers_;  // that problems point into
  mutable std::deque<std::vector<char>> blocks_;
};

inline std::vector<Listed> listed_shapes() {
  std::ifstream file(ATTN_SOURCE "/bench/shapes.txt");
  std::vector<Listed> rows;
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(' ') != std::string::npos) rows.emplace_back(line);
  }
  return rows;
}

}  // namespace attn::kernels
