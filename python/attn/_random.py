"""PyTorch's random numbers, without PyTorch."""

from __future__ import annotations

from attn import _attn
from attn._arguments import integer

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    from attn._types import Float32, Int64


class Generator:
    """One stream of random numbers: PyTorch's on the CPU, number for number (mt19937).

    `dropout` names which dropout PyTorch would have drawn, as it draws it differently on different machines: "mkl"
    (Linux wheels on Intel processors), "native" (elsewhere, and in the printed book), or "philox", this library's own,
    which the fused kernels draw where they need it.

    Args:
        seed: what torch.manual_seed is given; its low 32 bits count.
        dropout: "mkl", "native" or "philox".
    """

    def __init__(self, seed: int = 67280421310721, dropout: str = "mkl") -> None:
        self._stream: Any = _attn.Stream(_seed(seed), dropout)

    def __getstate__(self) -> dict[str, Any]:
        return {"dropout": self.dropout, "state": self._stream.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._stream = _attn.Stream(0, state["dropout"])
        self._stream.set_state(state["state"])

    @property
    def dropout(self) -> str:
        return self._stream.dropout

    def manual_seed(self, seed: int) -> Generator:
        """Begins the stream of `seed`, as torch.manual_seed(seed) does."""
        self._stream.manual_seed(_seed(seed))
        return self

    def rand(self, *shape: int) -> Float32:
        """float32 in [0, 1), as torch.rand(*shape)."""
        return self._stream.rand(_shape(shape))

    def randn(self, *shape: int) -> Float32:
        """float32 of mean 0 and variance 1, as torch.randn(*shape)."""
        return self._stream.randn(_shape(shape))

    def randint(self, low: int, high: int, shape: Sequence[int]) -> Int64:
        """int64 in [low, high), as torch.randint(low, high, shape)."""
        return self._stream.randint(low, high, shape)

    def dropout_keep(self, shape: Sequence[int], p: float) -> npt.NDArray[np.bool_]:
        """Draws which elements of an array of this `shape` dropout of probability `p` keeps, as bool."""
        return self._stream.dropout_keep(shape, p)

    def next_u64(self) -> int:
        """64 random bits: what dropout by Philox takes for its key."""
        return self._stream.next_u64()


def _seed(seed: int) -> int:
    return integer(seed, "manual_seed", "seed") & 0xFFFFFFFFFFFFFFFF


def _shape(shape: tuple[int, ...] | tuple[Sequence[int]]) -> list[int]:
    first = shape[0] if len(shape) == 1 else None
    return list(first) if isinstance(first, (tuple, list)) else list(shape)  # type: ignore[arg-type]


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator with `seed`. Modules draw their weights and their dropout from it."""
    return default_generator.manual_seed(seed)


rand, randn, randint = default_generator.rand, default_generator.randn, default_generator.randint
