"""What the public signatures name. Never imported when the package runs: typing would double the import's time."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt


class Array(Protocol):
    """An array in the CPU's memory that has DLPack: NumPy's, PyTorch's, JAX's."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __dlpack_device__(self) -> Any: ...


A = TypeVar("A", bound=Array)  # results are arrays of the query's framework
B = TypeVar("B", bound=Array)

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Integers = Sequence[int] | Array
Rows = bool | Integers  # all, none, or some by their numbers


Weights = Array | Sequence[Array | None]  # attention weights: one array, or one for each layer


class Model(Protocol):
    """A module of PyTorch: one of attn.torch, or a model of Hugging Face."""

    def state_dict(self) -> dict[str, Any]: ...


class TokenizerLike(Protocol):
    """What makes token numbers of a text and names them, as Hugging Face's tokenizers do."""

    def __call__(self, text: str, /) -> Any: ...


Inputs = Array | str | Mapping[str, Any] | Sequence[int] | Sequence[Sequence[int]]  # of a module or of a model


class Config(Protocol):
    """A config object of Hugging Face's."""

    def to_dict(self) -> dict[str, Any]: ...


class Compiled(Protocol):
    """A numba cfunc."""

    @property
    def address(self) -> int: ...


Native = Compiled | int | object  # or a ctypes function or a PyCapsule, for which Python 3.10 has no names


DType = str | npt.DTypeLike  # a name, or NumPy's, PyTorch's, JAX's or ml_dtypes' own


class Request(Protocol):
    """A message under way. wait() returns once its memory may be used again, and raises where it is lost."""

    def wait(self) -> object: ...


class Ranks(Protocol):
    """How this rank reaches the others: what may stand in place of a group.

    Messages of one tag from one rank to another arrive in the order in which they were sent. Neither call may wait for
    the other rank. The memory stays until wait() has returned, or cancel() has, where a request has that.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def send(self, to: int, message: memoryview, tag: int) -> Request: ...
    def receive(self, source: int, room: memoryview, tag: int) -> Request: ...


class ProcessGroup(Protocol):
    """A group of torch.distributed."""

    def rank(self) -> int: ...
    def size(self) -> int: ...


class Mesh(Protocol):
    """A DeviceMesh of torch.distributed."""

    def get_group(self) -> Any: ...


class Communicator(Protocol):
    """A communicator of mpi4py."""

    def Get_rank(self) -> int: ...
    def Get_size(self) -> int: ...


Group = ProcessGroup | Mesh | Communicator | Ranks | None
