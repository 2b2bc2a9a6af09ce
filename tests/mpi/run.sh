#!/bin/sh
# run.sh RANKS PROGRAM…: by mpirun, more ranks than processors if need be, as root, too. MPICH takes no such options.
set -eu
ranks=$1
shift
options=""
if mpirun --version | grep -q "Open MPI"; then
  options="--oversubscribe --bind-to none"
  [ "$(id -u)" -ne 0 ] || options="$options --allow-run-as-root"
fi
# shellcheck disable=SC2086
OMP_NUM_THREADS=1 exec mpirun $options -n "$ranks" "$@"
