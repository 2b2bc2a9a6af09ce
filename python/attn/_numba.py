"""Functions of one score as functions of a tile of them, by numba."""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


# ScoreTileOf<T> of attn/score_tile.hpp: nine words of 64 bits, three of them pointers.
_TILE = types.CPointer(types.int64)


def _forward(f: Any, scalar: Any) -> Any:
    @numba.cfunc(types.void(_TILE, types.voidptr))
    def forward(tile, user):  # type: ignore[no-untyped-def]
        word = numba.carray(tile, 9)
        key_step, query_step, keys, queries, batch, first = word[1], word[2], word[3], word[4], word[5], word[6]
        size = (keys - 1) * key_step + (queries - 1) * query_step + 1
        scores = numba.carray(_pointer(word[0]), size, scalar)
        heads = numba.carray(_pointer(word[7]), queries, numba.int32)
        tokens = numba.carray(_pointer(word[8]), queries, numba.int32)
        for r in range(keys):
            for c in range(queries):
                at = r * key_step + c * query_step
                scores[at] = f(scores[at], batch, heads[c], tokens[c], first + r)

    return forward


def _backward(derivative: Any, scalar: Any) -> Any:
    @numba.cfunc(types.void(_TILE, types.CPointer(scalar), types.voidptr))
    def backward(before, d_scores, user):  # type: ignore[no-untyped-def]
        word = numba.carray(before, 9)
        key_step, query_step, keys, queries, batch, first = word[1], word[2], word[3], word[4], word[5], word[6]
        size = (keys - 1) * key_step + (queries - 1) * query_step + 1
        scores = numba.carray(_pointer(word[0]), size, scalar)
        heads = numba.carray(_pointer(word[7]), queries, numba.int32)
        tokens = numba.carray(_pointer(word[8]), queries, numba.int32)
        gradient = numba.carray(d_scores, size)
        for r in range(keys):
            for c in range(queries):
                at = r * key_step + c * query_step
                gradient[at] *= derivative(scores[at], batch, heads[c], tokens[c], first + r)

    return backward


def compiled(f: Any, derivative: Any = None) -> dict[str, Any]:
    """What ScoreFunction takes, by name."""
    f = numba.njit(f)
    functions = {"forward": _forward(f, numba.float32), "forward64": _forward(f, numba.float64)}
    if derivative is not None:
        derivative = numba.njit(derivative)
        functions |= {"backward": _backward(derivative, numba.float32), "backward64": _backward(derivative, numba.float64)}
    return functions
