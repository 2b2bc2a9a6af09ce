// Ranks that are threads of one process: messages are copied into boxes, from which the other rank takes them.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "attn/distributed.hpp"
#include "attn/error.hpp"

namespace attn::distributed {
namespace {

using Message = std::vector<std::byte>;
using Way = std::tuple<int, int, int>;  // from, to, tag

// The ranks share this. A box holds the messages of one tag from one rank to another.
class Group {
 public:
  explicit Group(int ranks) : ranks_(ranks) {}

  int ranks() const noexcept { return ranks_; }

  void put(const Way& way, Bytes message) {
    {
      const std::lock_guard lock(mutex_);
      boxes_[way].emplace_back(message.begin(), message.end());
    }
    arrived_.notify_all();
  }

  void take(const Way& way, Room room) {
    const std::string from = "rank " + std::to_string(std::get<0>(way));
    Message message;
    {
      std::unique_lock lock(mutex_);
      std::deque<Message>& all = boxes_[way];
      arrived_.wait(lock, [&] { return !all.empty() || ended_; });
      if (all.empty()) {
        throw Error(Error::Kind::data, "transport", "a message from " + from,
                    "rank " + std::to_string(who_) + " has ended with an error");
      }
      message = std::move(all.front());
      all.pop_front();
    }
    if (message.size() != room.size()) {
      throw Error(Error::Kind::data, "transport", std::to_string(room.size()) + " bytes from " + from,
                  std::to_string(message.size()));
    }
    if (!message.empty()) std::memcpy(room.data(), message.data(), message.size());
  }

  // A rank has thrown: whoever waits shall not wait for ever. The first one's exception is what counts.
  void end(int rank, std::exception_ptr why) {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) who_ = rank, why_ = std::move(why);
      ended_ = true;
    }
    arrived_.notify_all();
  }

  void rethrow() const {
    if (why_) std::rethrow_exception(why_);
  }

 private:
  int ranks_, who_ = 0;
  bool ended_ = false;
  std::exception_ptr why_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Way, std::deque<Message>> boxes_;
};

class Arrival : public Request::State {
 public:
  Arrival(Group& group, const Way& way, Room room) : group_(group), way_(way), room_(room) {}

  void wait() override { group_.take(way_, room_); }

 private:
  Group& group_;
  Way way_;
  Room room_;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(Group& group, int rank) : group_(group), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return group_.ranks(); }

  Request send(int to, Bytes message, int tag) override {
    require_rank(to);
    group_.put({rank_, to, tag}, message);
    return {};
  }

  Request receive(int from, Room message, int tag) override {
    require_rank(from);
    return Request(std::make_unique<Arrival>(group_, Way{from, rank_, tag}, message));
  }

 private:
  void require_rank(int rank) const {
    if (rank >= 0 && rank < size()) return;
    throw Error(Error::Kind::argument, "transport", "a rank from 0 to " + std::to_string(size() - 1),
                std::to_string(rank));
  }

  Group& group_;
  int rank_;
};

}  // namespace

void run_threads(int ranks, const std::function<void(Transport&)>& body) {
  if (ranks < 1) throw Error(Error::Kind::argument, "run_threads", "at least one rank", std::to_string(ranks));
  if (!body) throw Error(Error::Kind::argument, "run_threads", "what each rank does", "an empty function");
  Group group(ranks);
  const auto run = [&](int rank) {
    try {
      ThreadTransport transport(group, rank);
      body(transport);
    } catch (...) {
      group.end(rank, std::current_exception());
    }
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : others) thread.join();
  group.rethrow();
}

}  // namespace attn::distributed
