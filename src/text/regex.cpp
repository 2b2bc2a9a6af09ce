#include "text/regex.hpp"

#include <bit>
#include <string>

#include "attn/error.hpp"
#include "core/utf8.hpp"

namespace attn::text {
namespace {

struct Letter {
  std::uint32_t code;
  std::size_t length;
};

Letter letter_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<std::uint8_t>(text[at]);
  if (byte < 0x80) return {byte, 1};
  const Character c = first_character(text.substr(at));
  return c.valid ? Letter{c.code, c.length} : Letter{kCodes + byte, 1};
}

// Where the character begins that ends before `at`, which is not the beginning.
std::size_t before(std::string_view text, std::size_t at) {
  for (std::size_t length = 2; length <= 4 && length <= at; ++length) {
    const auto next = static_cast<std::uint8_t>(text[at - length + 1]);
    if ((next & 0xc0) != 0x80) break;
    if (letter_at(text, at - length).length == length) return at - length;
  }
  return at - 1;
}

}  // namespace

Search::Search(const Regex& regex, std::string_view text, Memory& memory)
    : program_(regex.program()), text_(text), memory_(memory), most_steps_(kMostSteps * (text.size() + 16)) {}

void Search::count() {
  if (++steps_ <= most_steps_) return;
  throw Error(Error::Kind::argument, "BPETokenizer::encode",
              "a text that the tokenizer's pattern can cut in linear time",
              "one of " + std::to_string(text_.size()) + " bytes that it cannot", "encode it in parts");
}

// An empty match that stands where the last one ended is passed over.
std::optional<Found> Search::next() {
  while (at_ <= text_.size()) {
    const std::size_t begin = at_, end = match_at(begin);
    if (end == kNone || end == begin) at_ += begin < text_.size() ? letter_at(text_, begin).length : 1;
    if (end == kNone || (end == begin && end == last_end_)) continue;
    if (end > begin) at_ = end;
    last_end_ = end;
    return Found{begin, end};
  }
  return {};
}

std::size_t Search::match_at(std::size_t at) {
  const std::size_t next = at < text_.size() ? static_cast<std::uint8_t>(text_[at]) : 256;
  for (std::uint64_t left = program_.possible[next]; left != 0; left &= left - 1) {
    const std::size_t end = follow(program_.alternatives[static_cast<std::size_t>(std::countr_zero(left))], at);
    if (end != kNone) return end;
  }
  return kNone;
}

bool Search::take_run(const Instruction& run, std::uint32_t step, std::size_t& at) {
  const CodeSet& set = program_.sets[run.set];
  std::size_t end = at, least = run.least == 0 ? at : kNone;
  for (std::uint32_t taken = 0; taken < run.most && end < text_.size();) {
    const Letter letter = letter_at(text_, end);
    if (!set.contains(letter.code)) break;
    end += letter.length;
    count();
    if (++taken == run.least) least = end;
  }
  if (least == kNone) return false;
  if (end > least && !run.flag) memory_.push_back({step + 1, end, least});
  at = end;
  return true;
}

bool Search::holds(const Instruction& assertion, std::size_t at) const {
  const bool at_begin = at == 0, at_end = at == text_.size();
  if (assertion.op == Instruction::Op::begin) return at_begin || (text_[at - 1] == '\n' && !at_end);
  if (assertion.op == Instruction::Op::end) return at_end || text_[at] == '\n';
  const bool word_before = !at_begin && has(letter_at(text_, before(text_, at)).code, Property::word);
  const bool word_after = !at_end && has(letter_at(text_, at).code, Property::word);
  return (word_before != word_after) != assertion.flag;
}

// Where the match ends that `step` begins, or kNone. What waits in memory is what else could be tried.
std::size_t Search::follow(std::uint32_t step, std::size_t at) {
  using Op = Instruction::Op;
  const std::size_t base = memory_.size();
  const auto from = [&](std::int32_t places) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(step) + places);
  };
  while (true) {
    count();
    const Instruction& now = program_.code[step];
    bool fits = true;
    if (now.op == Op::match) {
      memory_.resize(base);
      return at;
    }
    if (now.op == Op::set) {
      const Letter letter = at < text_.size() ? letter_at(text_, at) : Letter{0, 0};
      fits = letter.length > 0 && program_.sets[now.set].contains(letter.code);
      at += letter.length, ++step;
    } else if (now.op == Op::run) {
      fits = take_run(now, step, at);
      ++step;
    } else if (now.op == Op::split) {
      memory_.push_back({from(now.second), at, kNone});
      step = from(now.first);
    } else if (now.op == Op::jump) {
      step = from(now.first);
    } else if (now.op == Op::look || now.op == Op::atomic) {
      const std::size_t end = follow(step + 1, at);
      fits = (end != kNone) != now.flag;
      if (fits && now.op == Op::atomic) at = end;
      step = from(now.second);
    } else {
      fits = holds(now, at);
      ++step;
    }
    if (fits) continue;
    if (memory_.size() == base) return kNone;
    Waiting& last = memory_.back();
    if (last.least != kNone) last.at = before(text_, last.at);
    step = last.step, at = last.at;
    if (last.least == kNone || last.at == last.least) memory_.pop_back();
  }
}

}  // namespace attn::text
