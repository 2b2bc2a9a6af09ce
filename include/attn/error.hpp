// The library's one exception type.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace attn {

// Thrown for every mistake a caller can make: "[op] expected …; found …", and
// where it helps "; try …". Nothing else is thrown, except std::bad_alloc. The message is one line that is safe to
// print: control characters, and marks that turn the direction of writing, are "\u001b" in it, whoever has named a file
// so.
class Error : public std::runtime_error {
 public:
  // The kind tells what went wrong, so that a binding or a command can map it to its own kinds.
  enum class Kind {
    argument,  // an option's value, or two options that contradict
    shape,     // a tensor's rank or sizes
    dtype,     // an element type that the operation does not take
    data,      // a file whose content is not what its format says
    file,      // a file that cannot be opened, read or written
  };

  Error(Kind kind, std::string_view op, std::string_view expected, std::string_view found, std::string_view hint = {});

  Kind kind() const noexcept { return kind_; }
  const std::string& op() const noexcept { return op_; }

 private:
  Kind kind_;
  std::string op_;
};

}  // namespace attn
