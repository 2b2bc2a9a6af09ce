"""Groups of ranks as the binding takes them: rank, size, send(), receive() and progress()."""

from __future__ import annotations

import sys

from attn import _attn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from attn._types import Ranks

# Messages have these tags: theirs are from 0 to 9. MPI's tags go to 32767 at least.
FIRST_TAG = 32750
MOST_BYTES = 2**30  # of one message of MPI's, which counts in int


def ranks_of(group: Any) -> Ranks:
    """None (torch.distributed's default group), a ProcessGroup, a DeviceMesh of one dimension, an mpi4py communicator,
    or an object that has what Ranks has."""
    if all(hasattr(group, name) for name in ("rank", "size", "send", "receive")) and not callable(group.rank):
        return group
    if all(hasattr(group, name) for name in ("Isend", "Irecv", "Get_rank")):
        return MpiRanks(group)
    if hasattr(group, "get_group") and not hasattr(group, "allreduce"):  # a mesh
        group = group.get_group()
    if group is not None and not hasattr(group, "allreduce"):
        raise TypeError(
            "[distributed attention] expected group as a torch.distributed group, an mpi4py communicator, or None; "
            f"found {type(group).__name__}"
        )
    if group is None and not _has_default_group():
        raise ValueError(
            "[distributed attention] expected group, or torch.distributed's default group; found neither; call "
            "torch.distributed.init_process_group(\"gloo\") first, or pass an mpi4py communicator"
        )
    return TorchRanks(group)


def _has_default_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


class TorchRanks:
    """A group of torch.distributed: gloo's, whose thread carries messages while this one computes."""

    def __init__(self, group: Any) -> None:
        import torch.distributed

        self._torch, self._dist = torch, torch.distributed
        self._group = torch.distributed.group.WORLD if group is None else group
        self.rank, self.size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
        if self.rank < 0:
            raise ValueError("[distributed attention] expected a group that this rank is in; found another")
        backend = torch.distributed.get_backend(group)
        if backend not in ("gloo", "mpi") and "cpu:" not in backend:
            raise ValueError(
                f"[distributed attention] expected a group that carries CPU tensors; found {backend}; make one with "
                "torch.distributed.new_group(backend=\"gloo\")"
            )
        self._ranks = torch.distributed.get_process_group_ranks(self._group)

    def send(self, to: int, message: memoryview, tag: int) -> Any:
        return self._dist.isend(self._tensor(message), self._ranks[to], group=self._group, tag=FIRST_TAG + tag)

    def receive(self, source: int, room: memoryview, tag: int) -> Any:
        return self._dist.irecv(self._tensor(room), self._ranks[source], group=self._group, tag=FIRST_TAG + tag)

    def _tensor(self, memory: memoryview) -> Any:
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)


class MpiRanks:
    """A communicator of mpi4py. Long messages go on only inside calls of MPI: progress() is one."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        if comm.Is_inter():
            raise ValueError("[distributed attention] expected an intra-communicator; found an inter-communicator")
        self._mpi, self._comm = MPI, comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def send(self, to: int, message: memoryview, tag: int) -> Any:
        return _MpiRequest(
            [self._comm.Isend([part, self._mpi.BYTE], to, FIRST_TAG + tag) for part in _parts(message)], False
        )

    def receive(self, source: int, room: memoryview, tag: int) -> Any:
        return _MpiRequest(
            [self._comm.Irecv([part, self._mpi.BYTE], source, FIRST_TAG + tag) for part in _parts(room)], True
        )

    def progress(self) -> None:
        self._comm.Iprobe()


class _MpiRequest:
    def __init__(self, requests: list[Any], receives: bool) -> None:
        self._requests, self._receives = requests, receives

    def wait(self) -> None:
        for request in self._requests:
            request.Wait()

    def cancel(self) -> None:
        for request in self._requests:
            if not request:  # it has ended
                continue
            if self._receives:
                request.Cancel()
                request.Wait()
            else:
                request.Free()


def _parts(memory: memoryview) -> list[memoryview]:
    return [memory[at : at + MOST_BYTES] for at in range(0, len(memory), MOST_BYTES)]


def refuse(ranks: Any, error: Exception) -> None:
    """Tells all ranks, which wait for this one's part of a call, that it has none."""
    try:
        _attn.distributed_refuse(ranks, str(error))
    except Exception:  # what the others are told; this rank raises its own
        pass
