// Files on their way out: refused early when they cannot be written, and all or none of them changed.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/inputs.hpp"
#include "io/output_file.hpp"

namespace attn::tool {

class Outputs {
 public:
  using Save = std::function<void(io::OutputFile&)>;

  // Declares an output before any work is done; an empty path is none. Throws Error when its extension is
  // not among `extensions`, it cannot be written, or it is the same file as another output, by whatever name. Removes
  // what killed processes have left in its folder.
  void declare(const std::string& flag, const std::string& path, const std::vector<std::string>& extensions);
  bool to_stdout() const;

  // Writes all declared outputs aside, each by its flag's function, then calls `print`, which writes what else goes to
  // standard output, then puts all files in place: where anything cannot be written, they are as they were. A kill
  // while they are put in place leaves each of them old or new.
  void save(const std::vector<std::pair<std::string, Save>>& savers, const std::function<void()>& print) const;
  // Paths written, in the order of declaration.
  std::vector<std::string> paths() const;
  // Where standard output takes a file, on standard error.
  void say(const std::string& text) const;

 private:
  struct Target {
    std::string flag, given;
    io::Destination destination;
  };
  std::vector<Target> targets_;
};

// A summary's lines: notes, what is not finite, and the files written.
std::string told(const std::vector<std::string>& notes, const Counts& counts, const std::vector<std::string>& paths);
// Notes and files on standard error, beside a result that is printed.
void tell_beside(const std::vector<std::string>& notes, const std::vector<std::string>& paths = {});

}  // namespace attn::tool
