// What a reader sees when scripts are off.
#pragma once

#include <span>
#include <string>

#include "attn/tensor.hpp"

namespace attn::report_page {

// (queries, keys) weights as one SVG element with labels and a legend of the true range; a longer side than 64 cells
// is pooled to that, by the largest.
std::string static_heatmap(const Tensor& weights, std::span<const std::string> queries,
                           std::span<const std::string> keys);

}  // namespace attn::report_page
