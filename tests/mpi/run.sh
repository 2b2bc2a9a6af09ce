#!/bin/sh
# run.sh RANKS PROGRAM…: by mpirun, more ranks than processors if need be, as root, too. MPICH takes no such options.
set -eu
ranks=$1
shift
options=""
if mpirun --version | grep -q "Open MPI"; then
  options="--oversubscribe --bind-to none"
  [ "$(id -u)" -ne 0 ] || options="$options --allow-run-as-root"
  # Jobs share a folder, which the last one to end removes, if need be while another one is about to use it: each job
  # has a folder of its own here. It is empty when the job ends, and a later one removes it.
  sessions=${TMPDIR:-/tmp}
  find "$sessions" -maxdepth 1 -name 'attn-mpi.*' -type d -empty -mmin +15 -delete 2>/dev/null || true
  OMPI_MCA_orte_tmpdir_base=$(mktemp -d "$sessions/attn-mpi.XXXXXX")
  export OMPI_MCA_orte_tmpdir_base
fi
# shellcheck disable=SC2086
OMP_NUM_THREADS=1 exec mpirun $options -n "$ranks" "$@"
