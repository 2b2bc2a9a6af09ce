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
    scores, which are else rounded to float32. `user` is handed to each. They cannot raise: numba would print the exception
    and go on, so that a cfunc that may raise is refused, and ctypes does the same with a function of Python's.

    Args:
        forward: replaces the scores of a tile.
        backward: turns the gradient of the new scores into that of the old ones.
        forward64: the same as forward, for float64.
        backward64: the same as backward, for float64.
        user: an address, or a ctypes object.
    """

    _instead = "whose addresses are this one's; make it there"

    def __init__(
        self, forward: Native, backward: Native | None = None, *, forward64: Native | None = None,
        backward64: Native | None = None, user: int | ctypes.Structure | ctypes.Array[Any] | None = None,
    ) -> None:  # fmt: skip
        functions = (forward, backward, forward64, backward64)
        if forward is None:
            also = ", beside forward64" if forward64 is not None else ""
            raise TypeError(f"[ScoreFunction] expected forward, of float32's scores{also}; found None")
        self._keep = (*functions, user)
        self.addresses: tuple[int, ...] = (*(_address(f) for f in functions), _user(user), 0)


def _address(function: Any) -> int:
    if function is None:
        return 0
    if found := _pointer(function):
        return found
    raise ValueError("[ScoreFunction] expected the address of a function; found 0")


def _pointer(function: Any) -> int:
    if isinstance(function, int) and not isinstance(function, bool):
        return _in_memory(function)
    if hasattr(function, "address"):  # numba
        _require_silent(function)
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


def _require_silent(function: Any) -> None:
    """A cfunc of numba's that cannot raise: numba would print the exception, and the call would go on with its scores."""
    if not hasattr(function, "inspect_llvm"):
        return
    from attn._numba import can_raise

    if can_raise(function):
        raise ValueError(
            "[ScoreFunction] expected a cfunc that raises nothing, since numba prints its exceptions and goes on; found one "
            "that may raise; compile it with error_model=\"numpy\" where it divides, use attn.score_function, which tells of "
            "exceptions, or pass its .address if none escapes it"
        )


def _user(user: Any) -> int:
    if user is None or isinstance(user, int):
        return _in_memory(user or 0)
    try:
        return ctypes.addressof(user)
    except TypeError:
        found = type(user).__name__
        raise TypeError(f"[ScoreFunction] expected user as an address or a ctypes object; found {found}") from None


def _in_memory(address: int) -> int:
    if not 0 <= address < 2**64:
        raise ValueError(f"[ScoreFunction] expected an address of 64 bits; found {address}")
    return address


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

    Raises:
        TypeError: what numba cannot compile, or what gives no number.
        ValueError: from the call that uses it, where f or derivative raises, with the arguments for which it did.
    """
    for what, function in (("f", f), ("derivative", derivative)):
        if function is not None or what == "f":
            _require_five(what, function)
    from attn._numba import compiled

    made = ScoreFunction(**compiled(f, derivative))
    *addresses, user, _ = made.addresses
    made.addresses = (*addresses, user, user)  # it is there that its functions say that they failed
    return made
