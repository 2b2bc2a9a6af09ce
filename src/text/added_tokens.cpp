#include "text/added_tokens.hpp"

#include <algorithm>
#include <numeric>

#include "core/utf8.hpp"
#include "text/classes.hpp"

namespace attn::text {
namespace {

bool is_space(std::string_view character) {
  const Character c = first_character(character);
  return c.valid && class_of(c.code) == Class::space;
}

std::size_t spaces_after(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_space(text.substr(at))) at += first_character(text.substr(at)).length;
  return at;
}

// Where the white space begins that `text` ends with, but not before `least`.
std::size_t spaces_before(std::string_view text, std::size_t least) {
  std::size_t at = text.size();
  while (at > least) {
    std::size_t begin = at - 1;
    while (begin > least && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
    if (!is_space(text.substr(begin, at - begin)) || first_character(text.substr(begin)).length != at - begin) break;
    at = begin;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<std::pair<std::string, const AddedToken*>> wanted) : wanted_(std::move(wanted)) {
  std::ranges::stable_sort(wanted_, {}, [](const auto& w) -> std::string_view { return w.first; });
  for (const auto& [content, token] : wanted_) ++first_[static_cast<unsigned char>(content.front()) + 1u];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

const std::pair<std::string, const AddedToken*>* AddedTokens::longest_at(std::string_view text) const {
  const auto byte = static_cast<unsigned char>(text.front());
  auto begin = wanted_.begin() + static_cast<std::ptrdiff_t>(first_[byte]);
  auto end = wanted_.begin() + static_cast<std::ptrdiff_t>(first_[byte + 1u]);
  const std::pair<std::string, const AddedToken*>* found = nullptr;
  for (std::size_t length = 1; begin != end; ++length) {  // [begin, end) have the text's first `length` bytes
    if (begin->first.size() == length) found = &*begin;
    while (begin != end && begin->first.size() == length) ++begin;
    if (length == text.size()) break;
    const auto byte_of = [&](const auto& w) { return static_cast<unsigned char>(w.first[length]); };
    const auto next = static_cast<unsigned char>(text[length]);
    begin = std::ranges::lower_bound(begin, end, next, {}, byte_of);
    end = std::ranges::upper_bound(begin, end, next, {}, byte_of);
  }
  return found;
}

std::vector<Part> AddedTokens::split(std::string_view text) const {
  std::vector<Part> parts;
  // What parts hold; the search may be behind, as a token takes the white space after it, where others may begin.
  std::size_t done = 0, space_end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto* const found = longest_at(text.substr(at));
    if (!found) {
      ++at;
      continue;
    }
    const auto& [content, token] = *found;
    const std::size_t begin = token->lstrip ? spaces_before(text.substr(0, at), std::min(done, at)) : at;
    if (done < begin) parts.push_back({text.substr(done, begin - done)});
    at += content.size();
    if (token->rstrip && at >= space_end) space_end = at + spaces_after(text.substr(at));
    const std::size_t end = token->rstrip ? space_end : at;
    parts.push_back({text.substr(begin, end - begin), token});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace attn::text
