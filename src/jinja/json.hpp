// JSON as values.
#pragma once

#include <string_view>

#include "io/bytes.hpp"
#include "jinja/value.hpp"

namespace attn::jinja {

// As json.loads() of Python; where a key comes twice, its last value counts. Throws Error (data), also for integers
// beyond 64 bits and more than 90 levels.
Value from_json(std::string_view json, const io::Origin& origin);

}  // namespace attn::jinja
