"""Functions of one's own on the scores, inside the fused kernels: compiled code, handed over by address.

    @numba.cfunc(...)                                  # or C, Rust, ctypes, a capsule: attn/score_tile.hpp
    def forward(tile, user): ...
    attn.scaled_dot_product_attention(q, k, v, score_function=attn.ScoreFunction(forward, backward))

attn.score_function(f, derivative) compiles the functions of one score with numba, and needs no more than them.
"""

from __future__ import annotations

import ctypes

from attn._arguments import Unchanging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from attn._types import Native

    OfOneScore = Callable[[float, int, int, int, int], float]

CAPSULE = b"attn.score_function"


class ScoreFunction(Unchanging):
    """Pointers to functions of attn/score_tile.hpp: forward(tile, user) and backward(before, d_scores, user).

    Each is a numba cfunc, a ctypes function, a PyCapsule named "attn.score_function", or an address. They run on several
    threads at once, without the GIL. Without `backward` there are no gradients; forward64 and backward64 take float64's
    scores, which are else rounded to float32. `user` is handed to each.

    Args:
        forward: replaces the scores of a tile.
        backward: turns the gradient of the new scores into that of the old ones.
        forward64: the same as forward, for float64.
        backward64: the same as backward, for float64.
        user: an address, or a ctypes object.
    """

    def __init__(
    _instead = "whose addresses are this one's; make it there"

        self, forward: Native, backward: Native | None = None, *, forward64: Native | None = None,
        backward64: Native | None = None, user: int | ctypes.Structure | ctypes.Array[Any] | None = None,
    ) -> None:  # fmt: skip
        functions = (forward, backward, forward64, backward64)
        if forward is None:
            raise TypeError("[ScoreFunction] expected forward; found None")
        self._keep = (*functions, user)
        self.addresses = (*(_address(f) for f in functions), _user(user))


def _address(function: Any) -> int:
    if function is None:
        return 0
    if found := _pointer(function):
        return found
    raise ValueError("[ScoreFunction] expected the address of a function; found 0")


def _pointer(function: Any) -> int:
    if isinstance(function, int) and not isinstance(function, bool):
        return function
    if hasattr(function, "address"):  # numba
        return int(function.address)
    if isinstance(function, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    if type(function).__name__ == "PyCapsule":
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return int(get(function, CAPSULE))
    raise TypeError(
        "[ScoreFunction] expected a numba cfunc, a ctypes function, a PyCapsule or an address; "
        f"found {type(function).__name__}"
    )


def _user(user: Any) -> int:
    if user is None or isinstance(user, int):
        return user or 0
    return ctypes.addressof(user)


def _require_five(what: str, function: Any) -> None:
    """A function that can be called with (score, b, h, i, j)."""
    import inspect

    wanted = f"[score_function] expected {what} as a function of (score, b, h, i, j)"
    if not callable(function):
        raise TypeError(f"{wanted}; found {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of what is compiled, there may be none
        return
    try:
        signature.bind(*range(5))
    except TypeError:
        raise TypeError(f"{wanted}; found one of {signature}") from None


def score_function(f: OfOneScore, derivative: OfOneScore | None = None) -> ScoreFunction:
    """Compiles a function of one score, and its derivative, with numba (pip install numba).

    Args:
        f: f(score, b, h, i, j) is the new score of query i of head h and key j, in item b of the batch.
        derivative: the derivative of f by the old score, of the same arguments. Without it there are no gradients.
    """
    for what, function in (("f", f), ("derivative", derivative)):
        if function is not None or what == "f":
            _require_five(what, function)
    from attn._numba import compiled

    return ScoreFunction(**compiled(f, derivative))
