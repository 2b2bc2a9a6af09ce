// Messages by MPI's own: MPI_Isend and MPI_Irecv, in runs that its int counts can hold.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "attn/error.hpp"
#include "attn/mpi.hpp"

namespace attn::mpi {
namespace {

using distributed::Bytes;
using distributed::Request;
using distributed::Room;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of one message of MPI's

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Error::Kind::data, "transport", std::string(what) + " by MPI", text);
}

class UnderWay : public Request::State {
 public:
  explicit UnderWay(bool is_receive) : is_receive_(is_receive) {}
  UnderWay(const UnderWay&) = delete;

  // Given up: what is received is cancelled, as its memory may go.
  ~UnderWay() override {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      if (is_receive_) {
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      } else {
        MPI_Request_free(&request);
      }
    }
  }

  MPI_Request* next() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  void wait() override {
    check(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE), "a message");
  }

 private:
  bool is_receive_;
  std::vector<MPI_Request> requests_;
};

class MpiTransport : public distributed::Transport {
 public:
  explicit MpiTransport(MPI_Comm communicator) {
    check(MPI_Comm_dup(communicator, &communicator_), "a communicator");
    check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "errors that return");
    check(MPI_Comm_rank(communicator_, &rank_), "a rank"), check(MPI_Comm_size(communicator_, &size_), "ranks");
  }
  MpiTransport(const MpiTransport&) = delete;
  ~MpiTransport() override {
    int is_over = 0;
    if (MPI_Finalized(&is_over) == MPI_SUCCESS && !is_over) MPI_Comm_free(&communicator_);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

  Request send(int to, Bytes message, int tag) override {
    return start(to, message.size(), false, [&](std::size_t at, int count, MPI_Request* request) {
      return MPI_Isend(message.data() + at, count, MPI_BYTE, to, tag, communicator_, request);
    });
  }

  Request receive(int from, Room message, int tag) override {
    return start(from, message.size(), true, [&](std::size_t at, int count, MPI_Request* request) {
      return MPI_Irecv(message.data() + at, count, MPI_BYTE, from, tag, communicator_, request);
    });
  }

  // Long messages go on only inside calls of MPI.
  void progress() override {
    int is_there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &is_there, MPI_STATUS_IGNORE);
  }

 private:
  template <class Start>
  Request start(int other, std::size_t bytes, bool is_receive, Start&& one) const {
    if (other < 0 || other >= size_) {
      throw Error(Error::Kind::argument, "transport", "a rank from 0 to " + std::to_string(size_ - 1),
                  std::to_string(other));
    }
    auto under_way = std::make_unique<UnderWay>(is_receive);
    for (std::size_t at = 0; at < bytes; at += kMostBytes) {
      const auto count = static_cast<int>(std::min(kMostBytes, bytes - at));
      check(one(at, count, under_way->next()), is_receive ? "a message to come" : "a message to go");
    }
    return Request(std::move(under_way));
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<distributed::Transport> make_transport(MPI_Comm communicator) {
  return std::make_unique<MpiTransport>(communicator);
}

Session::Session(int* argc, char*** argv) {
  int level = 0;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level), "a start");
  transport_ = make_transport();
}

Session::~Session() {
  transport_.reset();
  MPI_Finalize();
}

void Session::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();  // MPI_Abort does not return
}

}  // namespace attn::mpi
