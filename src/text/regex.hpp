// Regular expressions as split patterns of tokenizers use them, with the meaning that they have in the tokenizers
// package (Oniguruma): the first alternative that fits is taken, and repetitions take what they can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "io/bytes.hpp"
#include "text/code_set.hpp"

namespace attn::text {

// A step of a match. Places of others are counted from the step itself.
struct Instruction {
  enum class Op : std::uint8_t {
    set,       // one character of a set
    run,       // `least` to `most` of a set, as many as there are, and fewer where what follows asks for it
    split,     // goes on at `first`, or else at `second`
    jump,      // to `first`
    look,      // what is found from the next step on decides whether to go on at `second`; `flag`: it must not be found
    atomic,    // takes what is found from the next step on, once and for all, and goes on at `second`
    begin,     // of a line
    end,       // of a line
    boundary,  // of a word; `flag`: none
    match
  } op;
  bool flag = false;
  std::uint32_t set = 0, least = 0, most = 0;
  std::int32_t first = 0, second = 0;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<CodeSet> sets;
  std::vector<std::uint32_t> alternatives;    // where each begins
  std::array<std::uint64_t, 257> possible{};  // by the next byte, or 256 for the end: a bit for each that may fit
};

class Regex {
 public:
  // Throws Error (data), in the words of `origin`, for a construct that is not known here.
  Regex(std::string_view pattern, const io::Origin& origin);
  static Regex literal(std::string_view text);  // which is not empty

  const Program& program() const { return program_; }

 private:
  Regex() = default;
  Program program_;
};

struct Found {
  std::size_t begin, end;
};

// Memory of searches, which may be used again.
struct Waiting {
  std::uint32_t step;
  std::size_t at, least;  // what a run took ends at `at`, and may end earlier, down to `least`
};
using Memory = std::vector<Waiting>;

// All that an expression finds in a text, from left to right.
class Search {
 public:
  Search(const Regex& regex, std::string_view text, Memory& memory);

  // Throws Error (argument) where the expression takes more than kMostSteps a byte.
  std::optional<Found> next();

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kMostSteps = 2000;

  std::size_t match_at(std::size_t at);
  std::size_t follow(std::uint32_t step, std::size_t at);
  bool take_run(const Instruction& run, std::uint32_t step, std::size_t& at);
  bool holds(const Instruction& assertion, std::size_t at) const;
  void count();

  const Program& program_;
  std::string_view text_;
  Memory& memory_;
  std::size_t at_ = 0, last_end_ = kNone, steps_ = 0, most_steps_;
};

}  // namespace attn::text
