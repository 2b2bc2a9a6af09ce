// Manual pages in groff's man format: attn(1), and attn-VERB(1) of a verb.
#pragma once

#include <string>

#include "common/options.hpp"

namespace attn::tool {

std::string man_page();
std::string man_page(const Verb& verb);

}  // namespace attn::tool
