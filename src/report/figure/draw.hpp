// Reads what a Choice tells of its step: the library's draw() and the command's `show` share this.
#pragma once

#include "attn/figure.hpp"
#include "report/html/blocks.hpp"

namespace attn::figure {

// Labels, mask, names of axes, scale and colours of the chosen step, which is named and which `block` has.
Options options_of(const report_page::Block& block, const Choice& choice);

}  // namespace attn::figure
