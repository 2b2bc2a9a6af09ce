// The ranks that a launcher (mpirun, srun) started this command as. A command that was started alone never starts MPI.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "attn/distributed.hpp"

namespace attn::tool {

// The ranks, or null where no launcher started this process. The first call starts MPI. Throws Error (argument) where
// a launcher started several and this build cannot join them: it has no MPI, or another one than the launcher.
distributed::Transport* launched_ranks();

// Runs `work` on every rank. If it throws on any, it throws on all: on the first such rank what it threw, and on the
// others FailedElsewhere. Without ranks it just runs. Every rank has to call it, and `work` must not wait for ranks.
void together(distributed::Transport* ranks, const std::function<void()>& work);

// Runs `work`, in which ranks wait for each other, and in which all of them throw the same Error or none. One tells it.
// An error that one rank throws alone goes on at once: it cannot write a file, lacks memory or has lost another rank.
void alike(distributed::Transport* ranks, const std::function<void()>& work);

// Throws on all ranks, by together(), where a rank's text is another than rank 0's. `what` says what is compared.
void require_alike(distributed::Transport* ranks, std::string_view what, const std::string& own);

// One process: throws Error (argument) for a --scheme, which says how ranks share work.
void require_no_scheme(const std::string& scheme);

// Another rank tells of an error that ends all.
class FailedElsewhere : public std::exception {
 public:
  explicit FailedElsewhere(int status) : status_(status) {}
  const char* what() const noexcept override { return "another rank has failed"; }
  int status() const noexcept { return status_; }

 private:
  int status_;
};

// The exit code for what was thrown: 2 for wrong usage, 3 for bad data or files.
int exit_code(const std::exception& error) noexcept;

// "rank 2 of 4: " where there are several, to begin an error with.
std::string rank_prefix();
// Ends MPI, if it runs, and returns `status`. After an error that the other ranks do not know of, fail_ranks() ends
// them at once.
int end_ranks(int status);
int fail_ranks(int status);

}  // namespace attn::tool
