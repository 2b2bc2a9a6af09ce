// Regular expressions become programs. What is not known is refused by its name: a pattern that is nearly right gives
// wrong ids without a word.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/utf8.hpp"
#include "text/regex.hpp"

namespace attn::text {
namespace {

using Op = Instruction::Op;

constexpr std::uint32_t kMany = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kLongestProgram = 4096, kMostSets = 256, kMostAlternatives = 64;
constexpr int kDeepest = 16;  // groups and sets in each other

// A part of a program, and the fewest characters that it takes.
struct Fragment {
  std::vector<Instruction> code{};
  std::size_t least = 0;
};

Ranges one(std::uint32_t code) { return {{code, code + 1}}; }

class Parser {
 public:
  Parser(std::string_view pattern, const io::Origin& origin, Program& program)
      : pattern_(pattern), origin_(origin), program_(program) {}

  void parse() {
    const std::vector<Fragment> alternatives = parse_alternatives();
    if (at_ < pattern_.size()) refuse("a ) that nothing opens");
    if (alternatives.size() > kMostAlternatives) refuse("more than 64 alternatives");
    for (const Fragment& alternative : alternatives) {
      program_.alternatives.push_back(static_cast<std::uint32_t>(program_.code.size()));
      program_.code.insert(program_.code.end(), alternative.code.begin(), alternative.code.end());
      program_.code.push_back({Op::match});
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    constexpr std::size_t most = 400;  // a pattern is told whole
    const std::string whole = pattern_.size() < most ? '"' + std::string(pattern_) + '"' : io::in_quotes(pattern_);
    origin_.fail("a pattern that attn knows", what + " at character " + std::to_string(at_) + " of " + whole);
  }

  bool more() const { return at_ < pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    const bool there = next_is(text);
    at_ += there ? text.size() : 0;
    return there;
  }
  std::uint32_t take_character() {
    const Character c = more() ? first_character(pattern_.substr(at_)) : Character{0, 0, false};
    if (!c.valid) refuse("an end, or no UTF-8");
    at_ += c.length;
    return c.code;
  }

  // ---- parts that follow each other ------------------------------------------------------

  std::vector<Fragment> parse_alternatives() {
    if (++depth_ > kDeepest) refuse("more than 16 levels");
    std::vector<Fragment> alternatives{parse_sequence()};
    while (take("|")) alternatives.push_back(parse_sequence());
    --depth_;
    return alternatives;
  }

  Fragment parse_sequence() {
    Fragment all;
    last_letter_ = 0;
    while (more() && !next_is("|") && !next_is(")")) append(all, parse_repeated(parse_part()));
    return all;
  }

  void append(Fragment& to, const Fragment& from) const {
    to.code.insert(to.code.end(), from.code.begin(), from.code.end());
    to.least += from.least;
    if (to.code.size() > kLongestProgram) refuse("more than 4096 steps");
  }

  static Fragment either(const std::vector<Fragment>& alternatives) {
    Fragment all = alternatives.back();
    for (std::size_t i = alternatives.size() - 1; i-- > 0;) {
      Fragment joined = alternatives[i];
      const auto size = static_cast<std::int32_t>(joined.code.size()),
                 rest = static_cast<std::int32_t>(all.code.size());
      joined.code.insert(joined.code.begin(), {.op = Op::split, .first = 1, .second = size + 2});
      joined.code.push_back({.op = Op::jump, .first = rest + 1});
      joined.code.insert(joined.code.end(), all.code.begin(), all.code.end());
      joined.least = std::min(joined.least, all.least);
      all = std::move(joined);
    }
    return all;
  }

  Fragment parse_part() {
    if (take("(")) return parse_group();
    if (take("[")) return of_set(parse_set());
    if (take(".")) return of_set(complement(one('\n')));
    if (take("^")) return {{{.op = Op::begin}}};
    if (take("$")) return {{{.op = Op::end}}};
    if (take("\\b")) return {{{.op = Op::boundary}}};
    if (take("\\B")) return {{{.op = Op::boundary, .flag = true}}};
    for (const std::string_view sign : {"?", "*", "+", "{", "}", "]"}) {
      if (next_is(sign)) refuse("\"" + std::string(sign) + "\" without what it repeats or ends");
    }
    if (next_is("\\")) return of_set(parse_escape());
    return of_set(parse_letter());
  }

  Fragment parse_group() {
    const bool outer = any_case_;
    const bool look = take("?="), never = !look && take("?!"), atomic = !look && !never && take("?>");
    if (!look && !never && !atomic) {
      if (take("?i:")) {
        any_case_ = true;
      } else if (!take("?:") && next_is("?")) {
        refuse("a group of the kind \"(" + std::string(pattern_.substr(at_, 3)) + "\"");
      }
    }
    Fragment inner = either(parse_alternatives());
    any_case_ = outer;
    if (!take(")")) refuse("a group without its end");
    return look || never || atomic ? once(std::move(inner), atomic ? Op::atomic : Op::look, never) : inner;
  }

  static Fragment once(Fragment inner, Op op, bool flag) {
    inner.code.push_back({Op::match});
    const auto size = static_cast<std::int32_t>(inner.code.size());
    inner.code.insert(inner.code.begin(), {.op = op, .flag = flag, .second = size + 1});
    if (op == Op::look) inner.least = 0;
    return inner;
  }

  // ---- repetitions -----------------------------------------------------------------------

  std::optional<std::uint32_t> take_number() {
    std::optional<std::uint32_t> number;
    while (more() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      number = number.value_or(0) * 10 + static_cast<std::uint32_t>(pattern_[at_++] - '0');
      if (*number > 1000) refuse("more than 1000 repetitions");
    }
    return number;
  }

  Fragment parse_repeated(Fragment part) {
    std::uint32_t least = 0, most = kMany;
    const bool braces = take("{");
    if (braces) {
      const auto low = take_number();
      least = low.value_or(0);
      const bool comma = take(",");
      const auto high = comma ? take_number() : low;
      most = high.value_or(kMany);
      if (!take("}") || (!low && !high) || most < least) refuse("braces that are no count");
    } else if (take("?")) {
      most = 1;
    } else if (take("+")) {
      least = 1;
    } else if (!take("*")) {
      return part;
    }
    last_letter_ = 0;
    const bool lazy = !braces && take("?"), possessive = !braces && !lazy && take("+");
    for (const std::string_view sign : {"?", "*", "+", "{"}) {
      if (next_is(sign)) refuse("a repetition of a repetition");
    }
    if (part.code.size() == 1 && part.code.front().op == Op::set && !lazy) {
      const Instruction run{
          .op = Op::run, .flag = possessive, .set = part.code.front().set, .least = least, .most = most};
      return {{run}, least};
    }
    Fragment all = repeated(part, least, most, lazy);
    return possessive ? once(std::move(all), Op::atomic, false) : all;
  }

  Fragment repeated(const Fragment& part, std::uint32_t least, std::uint32_t most, bool lazy) const {
    if (most == kMany && part.least == 0) refuse("an endless repetition of what may be empty");
    const auto maybe = [&](std::int32_t inner, std::int32_t outer) {
      return Instruction{.op = Op::split, .first = lazy ? outer : inner, .second = lazy ? inner : outer};
    };
    Fragment all;
    for (std::uint32_t i = 0; i < least; ++i) append(all, part);
    const auto size = static_cast<std::int32_t>(part.code.size());
    if (most == kMany) {
      append(all, {{maybe(1, size + 2)}});
      append(all, {part.code});
      append(all, {{{.op = Op::jump, .first = -(size + 1)}}});
      return all;
    }
    const std::uint32_t optional = most - least;
    if (optional * (part.code.size() + 1) > kLongestProgram) refuse("more than 4096 steps");
    for (std::uint32_t i = 0; i < optional; ++i) {
      append(all, {{maybe(1, (size + 1) * static_cast<std::int32_t>(optional - i))}});
      append(all, {part.code});
    }
    return all;
  }

  // ---- characters and sets of them -------------------------------------------------------

  Fragment of_set(const Ranges& ranges) {
    if (program_.sets.size() == kMostSets) refuse("more than 256 sets");
    program_.sets.emplace_back(ranges);
    return {{{.op = Op::set, .set = static_cast<std::uint32_t>(program_.sets.size() - 1)}}, 1};
  }

  // Both cases of a letter. Folding of others, and of two letters to one sign (as st to U+FB06), is not known.
  Ranges in_any_case(std::uint32_t code) const {
    if (code >= 0x80) refuse("a letter other than a to z without regard to case");
    const std::uint32_t small = code | 0x20;
    if (small < 'a' || small > 'z') return one(code);
    Ranges both = united(one(small), one(small - 0x20));
    if (small == 's') both = united(both, one(0x17f));   // the long s
    if (small == 'k') both = united(both, one(0x212a));  // the sign of kelvin
    return both;
  }

  Ranges parse_letter() {
    const std::uint32_t code = take_character();
    if (!any_case_) return one(code);
    const std::string two{static_cast<char>(last_letter_ | 0x20), static_cast<char>(code | 0x20)};
    for (const std::string_view folded : {"ss", "st", "ff", "fi", "fl"}) {
      if (last_letter_ != 0 && two == folded) refuse("\"" + two + "\" without regard to case");
    }
    last_letter_ = code;
    return in_any_case(code);
  }

  // In a set, Oniguruma asks Unicode what \w is; else, of the first 256 characters, Latin-1, to which ½ and ² are
  // letters.
  Ranges parse_escape(bool in_set = false) {
    take("\\");
    const std::uint32_t code = take_character();
    last_letter_ = 0;
    constexpr std::string_view controls = "rntfv", classes = "sdw";
    if (const std::size_t i = controls.find(static_cast<char>(code)); code < 0x80 && i != controls.npos)
      return one(static_cast<std::uint32_t>("\r\n\t\f\v"[i]));
    constexpr Properties members[] = {bit(Property::space), bit(Property::nd), bit(Property::word)};
    if (const std::size_t i = classes.find(static_cast<char>(code | 0x20)); code < 0x80 && i != classes.npos) {
      Ranges ranges = ranges_of(members[i]);
      if (in_set) ranges = common(ranges, complement(ranges_of(bit(Property::no))));
      return (code & 0x20) != 0 ? ranges : complement(ranges);
    }
    if (code == 'p' || code == 'P') return parse_property(code == 'P');
    if (code == 'x' || code == 'u') return one(parse_code(code == 'u' ? 4 : 2));
    const bool letter = (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
    if (letter || code >= 0x80) refuse("\"\\" + std::string(1, static_cast<char>(code)) + "\"");
    return one(code);
  }

  // \x41, \x{1F600}, \u0041
  std::uint32_t parse_code(std::size_t digits) {
    const bool braces = digits == 2 && take("{");
    const std::size_t end = braces ? pattern_.find('}', at_) : at_ + digits;
    std::uint32_t code = 0;
    if (end > pattern_.size() || end - at_ > 6) refuse("a code without its end");
    for (; at_ < end; ++at_) {
      const std::size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(pattern_[at_] | 0x20));
      if (digit == std::string_view::npos) refuse("a code that is not hexadecimal");
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    if (braces) take("}");
    if (code >= kCodes || (!braces && digits == 2 && code >= 0x80)) refuse("a code that is no character");
    return code;
  }

  // Names that begin with = are this library's own: what steps other than patterns ask for.
  Ranges parse_property(bool negative) {
    if (any_case_) refuse("a property without regard to case");
    if (!take("{")) refuse("a property without {");
    if (take("^")) negative = !negative;
    const std::size_t end = std::min(pattern_.find('}', at_), pattern_.size());
    const std::string_view name = pattern_.substr(at_, end - at_);
    auto properties = properties_named(name);
    if (name == "=number") properties = bit(Property::number);
    if (name == "=punctuation") properties = bit(Property::punctuation);
    if (name == "=word") properties = bit(Property::plain_word);
    if (!properties || end == pattern_.size()) refuse("\"\\p{" + std::string(name) + "}\"");
    at_ = end + 1;
    const Ranges ranges = ranges_of(*properties);
    return negative ? complement(ranges) : ranges;
  }

  // Behind "[": members, ranges, sets in sets, and what is common to those before and after "&&".
  Ranges parse_set() {
    if (++depth_ > kDeepest) refuse("more than 16 levels");
    const bool negative = take("^");
    Ranges all, members;
    bool cut = false;
    if (next_is("]")) refuse("an empty set");
    while (!take("]")) {
      if (!more()) refuse("a set without its end");
      if (next_is("[:")) refuse("a set of the kind \"[:\"");
      if (take("&&")) {
        all = cut ? common(all, members) : members;
        members = {}, cut = true;
        continue;
      }
      members = united(members, take("[") ? parse_set() : parse_members());
    }
    if (cut) members = common(all, members);
    --depth_;
    return negative ? complement(members) : members;
  }

  // A character, a range or a class; a hyphen that has no other side stands for itself.
  Ranges parse_members() {
    const bool escaped = next_is("\\");
    const Ranges first = escaped ? parse_escape(true) : one(take_character());
    const bool single = first.size() == 1 && first.front().second == first.front().first + 1;
    const bool range = single && next_is("-") && !next_is("-]") && !next_is("-[") && !next_is("-\\p");
    if (!range) return any_case_ && single ? in_any_case(first.front().first) : first;
    take("-");
    const Ranges last = next_is("\\") ? parse_escape(true) : one(take_character());
    const bool ends = last.size() == 1 && last.front().second == last.front().first + 1;
    if (!ends || last.front().first < first.front().first) refuse("a range that ends before it begins");
    if (any_case_) refuse("a range without regard to case");
    return {{first.front().first, last.front().second}};
  }

  std::string_view pattern_;
  const io::Origin& origin_;
  Program& program_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool any_case_ = false;
  std::uint32_t last_letter_ = 0;  // the one before, where two are folded together; else 0
};

// Notes under which bytes, or the end, the alternative may fit; of bytes above ASCII all are alike.
void note_first(const Program& program, std::size_t step, std::uint64_t alternative, std::vector<bool>& seen,
                std::array<std::uint64_t, 257>& possible) {
  if (seen[step]) return;
  seen[step] = true;
  const Instruction& now = program.code[step];
  const auto follow = [&](std::int32_t places) {
    const auto next = static_cast<std::size_t>(static_cast<std::int64_t>(step) + places);
    note_first(program, next, alternative, seen, possible);
  };
  if (now.op == Op::match) {
    for (std::uint64_t& mask : possible) mask |= alternative;
  }
  if (now.op == Op::set || now.op == Op::run) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      if (byte >= 0x80 || program.sets[now.set].contains(byte)) possible[byte] |= alternative;
    }
    if (now.op == Op::set || now.least > 0) return;
  }
  if (now.op == Op::split) follow(now.first);
  if (now.op == Op::split || now.op == Op::look) return follow(now.second);
  if (now.op != Op::match) follow(now.op == Op::jump ? now.first : 1);
}

void note_first(Program& program) {
  for (std::size_t i = 0; i < program.alternatives.size(); ++i) {
    std::vector<bool> seen(program.code.size());
    note_first(program, program.alternatives[i], std::uint64_t{1} << i, seen, program.possible);
  }
}

}  // namespace

Regex::Regex(std::string_view pattern, const io::Origin& origin) {
  Parser(pattern, origin, program_).parse();
  note_first(program_);
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  Program& program = regex.program_;
  program.alternatives = {0};
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::size_t length = c.valid ? c.length : 1;
    program.code.push_back({.op = Op::set, .set = static_cast<std::uint32_t>(program.sets.size())});
    program.sets.emplace_back(one(c.valid ? c.code : kCodes + static_cast<std::uint8_t>(text.front())));
    text.remove_prefix(length);
  }
  program.code.push_back({Op::match});
  note_first(program);
  return regex;
}

}  // namespace attn::text
