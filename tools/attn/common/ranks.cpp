#include "common/ranks.hpp"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "attn/error.hpp"
#include "common/options.hpp"
#ifdef ATTN_HAS_MPI
#include "attn/mpi.hpp"
#endif

namespace attn::tool {
namespace {

constexpr int kUsage = 2, kData = 3;

// Launchers tell in the environment by the names of Open MPI, of MPICH and its relatives, or of PMIx.
int number_of(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    int value = 0;
    const char* text = std::getenv(name);
    if (text && !read_value(text, value) && value >= 0) return value;
  }
  return otherwise;
}

int told_rank() { return number_of({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}, -1); }
int told_size() { return number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1); }

[[maybe_unused]] Error cannot_join(const char* found, const char* hint) {
  // All ranks find this. One tells it; the others leave it the time to do so before a launcher ends all.
  if (told_rank() > 0) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    throw FailedElsewhere(kUsage);
  }
  return {Error::Kind::argument, "ranks", formatted("a command that joins {} ranks", told_size()), found, hint};
}

#ifdef ATTN_HAS_MPI
std::unique_ptr<mpi::Session>& session() {
  static std::unique_ptr<mpi::Session> one;
  return one;
}
#endif
bool all_know = true;  // of the error that ends the command

}  // namespace

distributed::Transport* launched_ranks() {
  // A command that a rank of another program starts has that rank's environment, and is no rank of it.
  const char* off = std::getenv("ATTN_RANKS");
  if (told_rank() < 0 || (off && std::string_view(off) == "0")) return nullptr;
#ifdef ATTN_HAS_MPI
  auto& one = session();
  if (!one) {
    one = std::make_unique<mpi::Session>(nullptr, nullptr);
    if (one->transport().size() == 1 && told_size() > 1) {
      throw cannot_join("one that was built with another MPI than the launcher's", "start it by that MPI's mpirun");
    }
    all_know = one->transport().size() == 1;
  }
  return &one->transport();
#else
  if (told_size() > 1) {
    throw cannot_join("one that was built without MPI", "build it with cmake -D ATTN_MPI=ON, or start it alone");
  }
  return nullptr;
#endif
}

void together(distributed::Transport* ranks, const std::function<void()>& work) {
  if (!ranks || ranks->size() == 1) return work();
  std::exception_ptr error;
  std::string status;
  try {
    work();
  } catch (const std::exception& thrown) {
    error = std::current_exception(), status = std::to_string(exit_code(thrown));
  }
  const std::vector<std::string> all = ranks->all_gather(status);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    all_know = true;
    if (static_cast<int>(r) == ranks->rank()) std::rethrow_exception(error);
    throw FailedElsewhere(std::stoi(all[r]));
  }
}

void alike(distributed::Transport* ranks, const std::function<void()>& work) {
  std::exception_ptr error;
  try {
    work();
  } catch (const Error& thrown) {
    if (thrown.kind() == Error::Kind::file || thrown.op() == "transport") throw;
    error = std::current_exception();
  }
  together(ranks, [&] {
    if (error) std::rethrow_exception(error);
  });
}

void require_alike(distributed::Transport* ranks, std::string_view what, const std::string& own) {
  if (!ranks) return;
  const std::string first = ranks->all_gather(own).front();
  together(ranks, [&] {
    if (own == first) return;
    refuse("ranks", formatted("{} of rank 0, {}", what, first), own);
  });
}

void require_no_scheme(const std::string& scheme) {
  if (scheme == "auto") return;
  refuse("--scheme", "several ranks, as mpirun starts them", "one process");
}

int exit_code(const std::exception& error) noexcept {
  if (const auto* other = dynamic_cast<const FailedElsewhere*>(&error)) return other->status();
  const auto* mine = dynamic_cast<const Error*>(&error);
  return mine && mine->kind() == Error::Kind::argument ? kUsage : kData;
}

std::string rank_prefix() {
#ifdef ATTN_HAS_MPI
  if (const auto& one = session(); one && one->transport().size() > 1) {
    return formatted("rank {} of {}: ", one->transport().rank(), one->transport().size());
  }
#endif
  return {};
}

int end_ranks(int status) {
#ifdef ATTN_HAS_MPI
  session().reset();
#endif
  return status;
}

int fail_ranks(int status) {
#ifdef ATTN_HAS_MPI
  if (session() && !all_know) mpi::Session::abort(status);
#endif
  return end_ranks(status);
}

}  // namespace attn::tool
