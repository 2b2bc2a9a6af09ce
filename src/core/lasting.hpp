// Values that are made where they are first needed and stay to the end of the process.
#pragma once

namespace attn {

// Returns what make() gave, which is never destroyed: destructors of the caller's statics, and handlers of exit(), may
// run after those of the library's own statics, and may call the library.
template <class Make>
const auto& lasting(Make make) {
  return *new const auto(make());
}

}  // namespace attn
