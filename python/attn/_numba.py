"""Functions of one score as functions of a tile of them, by numba.

What numba compiles for C cannot raise: it would print the exception and return. The functions here write where it was
into `user`, ScoreFailure of python/src/options.hpp, and the call that they are part of raises.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import intrinsic, is_jitted


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


# ScoreTileOf<T> of attn/score_tile.hpp: nine words of 64 bits, three of them pointers.
_TILE = types.CPointer(types.int64)
_FAILURE = types.CPointer(types.float64)


def _forward(f: Any, scalar: Any) -> Any:
    @numba.cfunc(types.void(_TILE, _FAILURE))
    def forward(tile, failure):  # type: ignore[no-untyped-def]
        word = numba.carray(tile, 9)
        key_step, query_step, keys, queries, batch, first = word[1], word[2], word[3], word[4], word[5], word[6]
        size = (keys - 1) * key_step + (queries - 1) * query_step + 1
        scores = numba.carray(_pointer(word[0]), size, scalar)
        heads = numba.carray(_pointer(word[7]), queries, numba.int32)
        tokens = numba.carray(_pointer(word[8]), queries, numba.int32)
        r = c = 0
        try:
            for r in range(keys):
                for c in range(queries):
                    at = r * key_step + c * query_step
                    scores[at] = f(scores[at], batch, heads[c], tokens[c], first + r)
        except Exception:
            _write(failure, scores[r * key_step + c * query_step], batch, heads[c], tokens[c], first + r)

    return forward


def _backward(derivative: Any, scalar: Any) -> Any:
    @numba.cfunc(types.void(_TILE, types.CPointer(scalar), _FAILURE))
    def backward(before, d_scores, failure):  # type: ignore[no-untyped-def]
        word = numba.carray(before, 9)
        key_step, query_step, keys, queries, batch, first = word[1], word[2], word[3], word[4], word[5], word[6]
        size = (keys - 1) * key_step + (queries - 1) * query_step + 1
        scores = numba.carray(_pointer(word[0]), size, scalar)
        heads = numba.carray(_pointer(word[7]), queries, numba.int32)
        tokens = numba.carray(_pointer(word[8]), queries, numba.int32)
        gradient = numba.carray(d_scores, size)
        r = c = 0
        try:
            for r in range(keys):
                for c in range(queries):
                    at = r * key_step + c * query_step
                    gradient[at] *= derivative(scores[at], batch, heads[c], tokens[c], first + r)
        except Exception:
            _write(failure, scores[r * key_step + c * query_step], batch, heads[c], tokens[c], first + r)

    return backward


@numba.njit
def _write(failure, score, b, h, i, j):  # type: ignore[no-untyped-def]
    at = numba.carray(failure, 6)
    at[0], at[1], at[2], at[3], at[4], at[5] = 1, score, b, h, i, j


def compiled(f: Any, derivative: Any = None) -> dict[str, Any]:
    """What ScoreFunction takes, by name; `user` is where a function that raises says so."""
    f = _of_numbers("f", f)
    functions = {"forward": _forward(f, numba.float32), "forward64": _forward(f, numba.float64)}
    if derivative is not None:
        derivative = _of_numbers("derivative", derivative)
        functions |= {"backward": _backward(derivative, numba.float32), "backward64": _backward(derivative, numba.float64)}
    return functions | {"user": (ctypes.c_double * 6)()}


def _of_numbers(what: str, function: Any) -> Any:
    """The function as numba compiles it, which gives a number. An index past an array's end raises."""
    wanted = f"[score_function] expected {what} as a function of numbers that numba can compile, and that gives a number"
    compiled: Any = function if is_jitted(function) else numba.njit(function, boundscheck=True)
    for scalar in (types.float32, types.float64):
        places = types.int64, types.int32, types.int32, types.int64
        try:
            compiled.compile((scalar, *places))
        except NumbaError as error:
            raise TypeError(f"{wanted}; found one that it cannot, and says why above") from error
        gives = compiled.overloads[(scalar, *places)].signature.return_type
        if not isinstance(gives, types.Integer | types.Float | types.Boolean):
            raise TypeError(f"{wanted}; found one that gives {gives}")
    return compiled


def can_raise(function: Any) -> bool:
    """Whether a cfunc of numba's has an exception to raise, which it keeps pickled."""
    return "picklebuf" in function.inspect_llvm()
