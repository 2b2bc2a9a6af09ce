// Collective calls, made of messages.
#include <algorithm>
#include <cstring>

#include "attn/distributed.hpp"
#include "attn/error.hpp"
#include "core/memory.hpp"

namespace attn::distributed {
namespace {

void copy(Bytes from, Room to) {
  if (from.size() != to.size()) {
    throw Error(Error::Kind::argument, "transport", "as many bytes as there is room for: " + std::to_string(to.size()),
                std::to_string(from.size()));
  }
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

void require_one_each(std::size_t count, int ranks) {
  if (count == static_cast<std::size_t>(ranks)) return;
  throw Error(Error::Kind::argument, "transport", "a message for each of " + std::to_string(ranks) + " ranks",
              std::to_string(count));
}

}  // namespace

Transport::Transport() : keeps_memory_(std::make_shared<KeepMemory>()) {}

// In step s every rank sends to the one s further on, so that no rank is sent to by many at once.
void Transport::all_to_all(std::span<const Bytes> to, std::span<const Room> from) {
  require_one_each(to.size(), size()), require_one_each(from.size(), size());
  const auto ranks = static_cast<std::size_t>(size()), own = static_cast<std::size_t>(rank());
  std::vector<Request> under_way;
  for (std::size_t s = 1; s < ranks; ++s) {
    const std::size_t source = (own + ranks - s) % ranks, target = (own + s) % ranks;
    if (!from[source].empty()) under_way.push_back(receive(static_cast<int>(source), from[source], 0));
    if (!to[target].empty()) under_way.push_back(send(static_cast<int>(target), to[target], 0));
  }
  copy(to[own], from[own]);
  for (Request& request : under_way) request.wait();
}

void Transport::all_gather(Bytes own, std::span<const Room> from) {
  const std::vector<Bytes> to(static_cast<std::size_t>(size()), own);
  all_to_all(to, from);
}

void Transport::barrier() { all_gather(std::string{}); }

void Transport::reduce_scatter(std::span<const double> all, std::span<const std::int64_t> shares,
                               std::span<double> own) {
  require_one_each(shares.size(), size());
  std::vector<std::vector<double>> parts(shares.size(), std::vector<double>(own.size()));
  std::vector<Bytes> to;
  std::vector<Room> from;
  std::size_t at = 0;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    const auto count = static_cast<std::size_t>(shares[r]);
    to.push_back(std::as_bytes(all.subspan(at, count)));
    from.push_back(std::as_writable_bytes(std::span(parts[r])));
    at += count;
  }
  all_to_all(to, from);
  std::fill(own.begin(), own.end(), 0);
  for (const std::vector<double>& part : parts) {
    for (std::size_t i = 0; i < own.size(); ++i) own[i] += part[i];
  }
}

std::vector<std::string> Transport::all_gather(const std::string& own) {
  std::vector<std::string> texts;
  for (const std::uint64_t length : all_values(std::uint64_t{own.size()})) texts.emplace_back(length, '\0');
  std::vector<Room> from;
  for (std::string& text : texts) from.push_back(std::as_writable_bytes(std::span(text)));
  all_gather(std::as_bytes(std::span(own)), from);
  return texts;
}

}  // namespace attn::distributed
