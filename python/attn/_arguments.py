"""Arguments as the binding takes them: whose array, which options, by name."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from typing import Any

NUMPY, TORCH, DLPACK = range(3)  # Framework of src/arrays.hpp


def framework(array: Any) -> int:
    """Whose array it is: what it gets as a result."""
    module = type(array).__module__ or ""  # NumPy's arrays of ctypes have none
    if module == "numpy":
        return NUMPY
    if module == "torch" or module.startswith("torch."):
        if module.startswith("torch.distributed.tensor"):
            refuse_parts(array)
        return TORCH
    return DLPACK if hasattr(array, "__array_namespace__") else _by_class(array)


def refuse_parts(*arrays: Any) -> None:
    """DTensors, whose memory is empty or a part's."""
    if any(type(array).__module__.startswith("torch.distributed.tensor") for array in arrays):
        raise NotImplementedError(
            "[attn] expected arrays of this process; found a DTensor, of which each rank holds a part; pass its .to_local(), "
            "to attn.distributed.attention where tokens are cut, or its .full_tensor()"
        )


def _by_class(array: Any) -> int:
    return TORCH if any(base.__module__ == "torch" for base in type(array).__mro__) else NUMPY


def take(result: Any, like: Any) -> Any:
    """A result of framework DLPACK as an array of `like`'s framework."""
    return None if result is None else like.__array_namespace__().from_dlpack(result)


def asked_for(result: Any, query: Any, kind: int, return_lse: bool, return_weights: Any) -> Any:
    """The output, or a tuple of it and what was asked for, as arrays of query's framework."""
    output, lse, weights = (take(each, query) for each in result) if kind == DLPACK else result
    if not return_lse and return_weights is False:
        return output
    return (output, *([lse] if return_lse else []), *([] if return_weights is False else [weights]))


def integer(value: Any, op: str, what: str) -> int:
    """A number that Python counts with, and no True or False, which do count as 1 and 0."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"[{op}] expected {what} as an integer; found {type(value).__name__}")
    return value.__index__()


def flag(value: Any, op: str, what: str) -> bool:
    """True or False, and nothing else that counts as one of them."""
    if isinstance(value, bool):
        return value
    hint = "; convert it with bool()" if type(value).__module__ in ("numpy", "torch") else ""
    raise TypeError(f"[{op}] expected {what} as True or False; found {type(value).__name__}{hint}")


def probability(value: Any, op: str, what: str) -> float:
    """A number from 0 to 1, of any kind that has a float's value."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"[{op}] expected {what} as a number; found {type(value).__name__}") from None
    if not 0 <= number <= 1:
        raise ValueError(f"[{op}] expected {what} from 0 to 1; found {number:g}")
    return number


def listed(values: Any, op: str, what: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"[{op}] expected {what}; found {type(values).__name__}") from None


def int64(values: Any, what: str, op: str = "scaled_dot_product_attention") -> Any:
    """Lengths and row numbers: an int64 array as it is, and one number; a list, or other integers, converted."""
    dtype = str(getattr(values, "dtype", ""))
    if values is None or dtype == "torch.int64":
        return values
    if dtype == "int64":
        return unmasked(values, what, op)
    if dtype in ("torch.int32", "torch.int16", "torch.int8", "torch.uint8"):
        return values.long()
    if type(values) is int and abs(values) < 2**63:
        return values  # NumPy would break torch.compile's graph
    import numpy

    if isinstance(values, list | tuple) and all(type(each) is int and abs(each) < 2**63 for each in values):
        return numpy.asarray(values, dtype=numpy.int64)  # torch.compile could not see an array's dtype, below
    unmasked(values, what, op)
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError):  # what jax.jit traces; rows of different lengths
        raise TypeError(f"[{op}] expected {what} as integers; found {type(values).__name__}") from None
    if array.size and array.dtype.kind not in "iu":
        large = array.dtype == object and all(isinstance(each, int) for each in array.flat)
        found = "an int of more than 64 bits" if large else f"dtype {array.dtype}"
        raise TypeError(f"[{op}] expected {what} as integers; found {found}")
    if array.size and array.dtype.kind == "u" and int(array.max()) >= 2**63:
        raise ValueError(f"[{op}] expected {what} below 2**63; found {array.max()}")
    return array.astype(numpy.int64)


def unmasked(values: Any, what: str, op: str) -> Any:
    """The values themselves, unless they are of numpy.ma, whose own mask a conversion would lose."""
    if hasattr(values, "harden_mask"):  # which torch.compile can trace, too
        raise TypeError(
            f"[{op}] expected {what} without a mask of its own; found numpy.ma.MaskedArray; pass its .data or .filled(0)"
        )
    return values


def rows_of(return_weights: Any) -> Any:
    """False, True, or the numbers of some rows as int64."""
    if return_weights is None:
        wanted = "return_weights as True, False or the numbers of rows"
        raise TypeError(f"[scaled_dot_product_attention] expected {wanted}; found None")
    return return_weights if isinstance(return_weights, bool) else int64(return_weights, "return_weights")


def window_of(window: Any, what: str) -> tuple[int, int] | None:
    if window is None:
        return None
    try:
        left, right = window
    except (TypeError, ValueError):
        raise TypeError(f"[scaled_dot_product_attention] expected {what} as (left, right); found {window!r}") from None
    return left, right


def pair_of(size: Any, what: str) -> tuple[int, int]:
    if not isinstance(size, tuple | list):
        return size, size
    if len(size) != 2:
        raise TypeError(f"[scaled_dot_product_attention] expected {what} as a number or two; found {size!r}")
    return size[0], size[1]


def dtype_name(dtype: Any, what: str = "dtype") -> str | None:
    """Of NumPy, PyTorch, ml_dtypes, JAX, or a name."""
    if dtype is None:
        return None
    return getattr(dtype, "__name__", None) or str(dtype).removeprefix("torch.")


def derivative_of(tensor: Any) -> str:
    """What asks for a derivative of a tensor of PyTorch: "requires_grad", also of torch.func's, or of forward mode; else ""."""
    import torch
    from torch.autograd import forward_ad

    if (tensor.requires_grad and torch.is_grad_enabled()) or torch._C._functorch.is_gradtrackingtensor(tensor):
        return "requires_grad"
    forward = forward_ad._current_level >= 0
    return "a tangent of forward mode" if forward and forward_ad.unpack_dual(tensor).tangent is not None else ""


def without_gradient(array: Any, op: str, hint: str) -> Any:
    """The array, which autograd must not follow: no derivative would come of it."""
    if array is not None and framework(array) == TORCH and (by := derivative_of(array)):
        raise ValueError(f"[{op}] expected an array that autograd does not follow; found one with {by}; {hint}")
    return array


class OfThisProcess:
    """What pickle cannot write down; `_instead` says why, and what can be done in its place."""

    _instead = ""

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = type(self).__name__
        raise TypeError(f"[pickle] expected an object that another process can read; found attn.{name}, {self._instead}")


class Unchanging(OfThisProcess):
    """What nothing changes is its own copy."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def named(state: Any) -> Any:
    """A module's state, which has a name for each array."""
    keys = getattr(state, "keys", None)
    if keys is not None and all(isinstance(name, str) for name in keys()):
        return state
    found = type(state).__name__ + (" with other keys" if keys is not None else "")
    raise TypeError(f"[load_state_dict] expected state as a dict of arrays by their names; found {found}")


def part_of(value: Any, name: str, op: str, wanted: str) -> Any:
    """An attribute of one of this package's classes."""
    try:
        return getattr(value, name)
    except AttributeError:
        raise TypeError(f"[{op}] expected {wanted}; found {type(value).__name__}") from None


def stream_of(generator: Any, op: str) -> Any:
    """The random numbers of an attn.Generator."""
    return part_of(generator, "_stream", op, "generator as attn.Generator")


def addresses(function: Any, what: str) -> Any:
    """Those of an attn.ScoreFunction."""
    wanted = f"{what} as attn.ScoreFunction"
    return None if function is None else part_of(function, "addresses", "scaled_dot_product_attention", wanted)
