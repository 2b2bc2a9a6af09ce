"""Which rows of a sequence that is cut among ranks each of them holds."""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, TORCH, framework, integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from attn._types import A, Int64


def _position(value: Any) -> int:
    return integer(value, "layout", "a position")


class Layout:
    """Which rows of a sequence each rank holds.

    A rank has runs of positions, and its arrays have them as rows in that order.

    Args:
        runs: for each rank its runs, each as (first, last), without last. Together they hold every position from 0 on
            once.

    Raises:
        ValueError: runs that leave out a position, or hold one twice.
    """

    def __init__(self, runs: Iterable[Iterable[tuple[int, int]]]) -> None:
        given = [[(_position(first), _position(last)) for first, last in own] for own in runs]
        self.runs: tuple[tuple[tuple[int, int], ...], ...] = tuple(map(tuple, _attn.checked_layout(given)))

    @classmethod
    def even(cls, tokens: int, ranks: int) -> Layout:
        """Each rank has one run, the next rank the next one, of lengths as even as they can be."""
        return cls(_attn.even_layout(tokens, ranks))

    @classmethod
    def contiguous(cls, lengths: Iterable[int]) -> Layout:
        """The same with given lengths, from 0 on. It is what ranks have without a layout."""
        at, runs = 0, []
        for length in lengths:
            runs.append([(at, at + integer(length, "layout", "a length"))])
            at = runs[-1][0][1]
        return cls(runs)

    @classmethod
    def zigzag(cls, tokens: int, ranks: int) -> Layout:
        """Rank r has runs r and 2 · ranks - 1 - r of 2 · ranks even ones: by a causal mask all have the same work."""
        return cls(_attn.zigzag_layout(tokens, ranks))

    @property
    def ranks(self) -> int:
        return len(self.runs)

    @property
    def tokens(self) -> int:
        return sum(self.rows(rank) for rank in range(self.ranks))

    def rows(self, rank: int) -> int:
        """How many rows a rank holds."""
        return sum(last - first for first, last in self._of(rank))

    def _of(self, rank: int) -> tuple[tuple[int, int], ...]:
        if not 0 <= rank < self.ranks:
            raise ValueError(f"[layout] expected a rank from 0 to {self.ranks - 1}; found {rank}")
        return self.runs[rank]

    def positions(self, rank: int) -> Int64:
        """The positions of a rank's rows, (rows) int64: what attn.rotary takes as positions."""
        import numpy

        runs = [numpy.arange(first, last, dtype=numpy.int64) for first, last in self._of(rank)]
        return numpy.concatenate(runs) if runs else numpy.empty(0, dtype=numpy.int64)

    def take(self, whole: A, rank: int, dim: int = -2) -> A:
        """A rank's rows of a whole array, whose dimension `dim` is the sequence."""
        if whole.shape[dim] != self.tokens:
            raise ValueError(f"[Layout.take] expected {self.tokens} rows; found {whole.shape[dim]}")
        runs = self._of(rank) or ((0, 0),)
        return _joined([_rows(whole, dim, first, last) for first, last in runs], dim)

    def join(self, parts: Sequence[A], dim: int = -2) -> A:
        """The whole array, of all ranks' rows."""
        found = [part.shape[dim] for part in parts]
        if found != [self.rows(rank) for rank in range(self.ranks)]:
            raise ValueError(
                f"[Layout.join] expected {[self.rows(rank) for rank in range(self.ranks)]} rows; found {found}"
            )
        runs = []
        for part, own in zip(parts, self.runs):
            at = 0
            for first, last in own:
                runs.append((first, _rows(part, dim, at, at + last - first)))
                at += last - first
        return _joined([rows for _, rows in sorted(runs, key=lambda run: run[0])] or [parts[0]], dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __repr__(self) -> str:
        return f"Layout({[list(own) for own in self.runs]})"


def _rows(array: Any, dim: int, first: int, last: int) -> Any:
    index = [slice(None)] * len(array.shape)
    index[dim] = slice(first, last)
    return array[tuple(index)]


def _joined(parts: list[Any], dim: int) -> Any:
    kind = framework(parts[0])
    if kind == TORCH:
        import torch

        return torch.cat(parts, dim)
    if kind == DLPACK:
        return parts[0].__array_namespace__().concat(parts, axis=dim)
    import numpy

    return numpy.concatenate(parts, axis=dim)
