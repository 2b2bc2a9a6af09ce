#include "text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "core/order.hpp"
#include "core/utf8.hpp"
#include "text/classes.hpp"

namespace attn::text {
namespace {

bool is(std::string_view character, Property property) {
  const Character c = first_character(character);
  return c.valid && c.length <= character.size() && has(c.code, property);
}

std::size_t spaces_after(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is(text.substr(at), Property::space)) at += first_character(text.substr(at)).length;
  return at;
}

// Where the character begins that `text`, which is not empty, ends with.
std::size_t last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return first_character(text.substr(begin)).length == text.size() - begin ? begin : text.size() - 1;
}

// Where the white space begins that `text` ends with, but not before `least`.
std::size_t spaces_before(std::string_view text, std::size_t least) {
  while (text.size() > least) {
    const std::size_t begin = last_character(text);
    if (begin < least || !is(text.substr(begin), Property::space)) break;
    text = text.substr(0, begin);
  }
  return std::max(text.size(), least);
}

bool is_apart(std::string_view text, std::size_t begin, std::size_t end) {
  const bool before = begin > 0 && is(text.substr(last_character(text.substr(0, begin)), begin), Property::plain_word);
  const bool after = end < text.size() && is(text.substr(end), Property::plain_word);
  return !before && !after;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<Wanted>& wanted) {
  struct Text {
    std::string reversed;
    const AddedToken* token;
  };
  std::vector<std::string> reversed;
  for (const auto& [content, token] : wanted) reversed.emplace_back(content.rbegin(), content.rend());
  std::vector<Text> texts;
  for (const std::size_t i :
       order_of(wanted.size(), [&](std::size_t a, std::size_t b) { return reversed[a] < reversed[b]; })) {
    if (!reversed[i].empty()) texts.push_back({std::move(reversed[i]), wanted[i].second});
  }
  nodes_.emplace_back();
  struct Branch {
    std::uint32_t node;
    std::size_t begin, end;  // the texts that begin with it
  };
  std::vector<Branch> level{{0, 0, texts.size()}}, next;
  for (std::size_t size = 0; !level.empty(); ++size, level.swap(next), next.clear()) {
    for (auto [node, at, end] : level) {
      for (; at < end && texts[at].reversed.size() == size; ++at) {
        nodes_[node].token = texts[at].token, nodes_[node].token_size = static_cast<std::uint32_t>(size);
      }
      nodes_[node].first = static_cast<std::uint32_t>(nodes_.size());
      while (at < end) {
        const char byte = texts[at].reversed[size];
        const std::size_t begin = at;
        while (at < end && texts[at].reversed[size] == byte) ++at;
        next.push_back({static_cast<std::uint32_t>(nodes_.size()), begin, at});
        nodes_.push_back({.byte = static_cast<std::uint8_t>(byte)});
      }
      nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
    }
  }
  for (std::uint32_t child = nodes_[0].first; child < nodes_[0].end; ++child) of_root_[nodes_[child].byte] = child;
  for (std::uint32_t node = 1; node < nodes_.size(); ++node) {  // shorter ones come first
    for (std::uint32_t child = nodes_[node].first; child < nodes_[node].end; ++child) {
      nodes_[child].shorter = after(nodes_[node].shorter, nodes_[child].byte);
    }
    const Node& shorter = nodes_[nodes_[node].shorter];
    if (!nodes_[node].token) nodes_[node].token = shorter.token, nodes_[node].token_size = shorter.token_size;
  }
}

// The node that is longer by a byte, or 0.
std::uint32_t AddedTokens::longer(std::uint32_t node, std::uint8_t byte) const {
  if (node == 0) return of_root_[byte];
  const auto begin = nodes_.begin() + nodes_[node].first, end = nodes_.begin() + nodes_[node].end;
  const auto at = std::ranges::lower_bound(begin, end, byte, {}, &Node::byte);
  return at != end && at->byte == byte ? static_cast<std::uint32_t>(at - nodes_.begin()) : 0;
}

std::uint32_t AddedTokens::after(std::uint32_t node, std::uint8_t byte) const {
  while (true) {
    const std::uint32_t next = longer(node, byte);
    if (next != 0 || node == 0) return next;
    node = nodes_[node].shorter;
  }
}

std::vector<Part> AddedTokens::split(std::string_view text) const {
  struct Hit {
    std::size_t begin;
    const Node* node;
  };
  std::vector<Hit> found;
  std::uint32_t node = 0;
  for (std::size_t at = nodes_.size() > 1 ? text.size() : 0; at-- > 0;) {
    node = after(node, static_cast<std::uint8_t>(text[at]));
    if (nodes_[node].token) found.push_back({at, &nodes_[node]});
  }
  std::vector<Part> parts;
  // The search may be behind what parts hold, as a token takes the white space after it, where others may begin.
  std::size_t at = 0, done = 0, space_end = 0;
  for (; !found.empty(); found.pop_back()) {
    const auto& [begin, hit] = found.back();
    if (begin < at) continue;
    const AddedToken& token = *hit->token;
    at = begin + hit->token_size;
    if (token.single_word && !is_apart(text, begin, at)) continue;
    if (token.rstrip && at >= space_end) space_end = at + spaces_after(text.substr(at));
    const std::size_t end = token.rstrip ? space_end : at;
    const std::size_t from =
        token.lstrip ? std::max(spaces_before(text.substr(0, begin), std::min(done, begin)), done) : begin;
    if (done < from) parts.push_back({text.substr(done, from - done)});
    if (from < end) parts.push_back({text.substr(from, end - from), &token});  // else another has taken all of it
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace attn::text
