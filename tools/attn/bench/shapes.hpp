// bench/shapes.txt, as it was when the command was built.
#pragma once

namespace attn::tool {

extern const char* const kDefaultShapes;

}  // namespace attn::tool
