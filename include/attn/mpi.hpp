// Ranks that are processes, on one machine or several, by MPI. Programs link attn::mpi, and start by mpirun or srun.
#pragma once

#include <mpi.h>

#include <memory>

#include "attn/distributed.hpp"

namespace attn::mpi {

// A transport over a communicator. It is duplicated, so that others' messages on it are not mixed up with these. MPI
// must have been initialised, and one thread at a time may use MPI. Throws Error (data) where MPI reports an error.
std::unique_ptr<distributed::Transport> make_transport(MPI_Comm communicator = MPI_COMM_WORLD);

// Starts MPI, and ends it with the scope. It is for programs that do not do so themselves.
class Session {
 public:
  Session(int* argc, char*** argv);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  distributed::Transport& transport() { return *transport_; }
  // Ends all ranks at once. A rank that cannot go on calls this, since the others may be waiting for it.
  [[noreturn]] static void abort(int exit_code);

 private:
  std::unique_ptr<distributed::Transport> transport_;
};

}  // namespace attn::mpi
