"""The operator's options, once: every entry of the package takes them by keyword, and by this table.

_typed_options.py has their types, python/src/options.cpp hands them to the library, and tests/python/test_options.py tries
each with each entry.
"""

from __future__ import annotations

from collections import namedtuple

from attn._arguments import TORCH, addresses, dtype_name, int64, pair_of, stream_of, window_of
from attn._random import default_generator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Set
    from typing import Any

    from attn._typed_options import Operator

# `type` is the one that an operator of PyTorch declares, and convert(value, name) makes what attn._attn.Options takes.
Option = namedtuple("Option", ["type", "default", "convert"], defaults=[None, None])
OPTIONS = {
    "alibi_slopes": Option("Tensor?"),
    "key_lengths": Option("Tensor?", None, int64),
    "cu_seqlens_q": Option("Tensor?", None, int64),
    "cu_seqlens_k": Option("Tensor?", None, int64),
    "block_mask": Option("Tensor?"),
    "query_offset": Option("Tensor?", None, int64),
    "key_offset": Option("Tensor?", None, int64),
    "dropout_p": Option("float", 0.0),
    "is_causal": Option("bool", False),
    "scale": Option("float?"),
    "window": Option("int[]?", None, window_of),
    "softcap": Option("float", 0.0),
    "block_size": Option("int[]", [64, 64], pair_of),
    "causal_alignment": Option("str", "top_left"),
    "precision": Option("str", "highest"),
    "score_function": Option("int[]?", None, addresses),
    "output_dtype": Option("str?", None, dtype_name),
    "relative_bidirectional": Option("bool", True),
    "relative_max_distance": Option("int", 128),
}
NOT_OF_RANKS = frozenset({"query_offset", "key_offset"})
NOT_OF_A_CACHE = NOT_OF_RANKS | {
    "key_lengths", "cu_seqlens_q", "cu_seqlens_k", "block_mask", "block_size", "dropout_p", "output_dtype",
}  # fmt: skip


def given(op: str, options: dict[str, Any], kind: int, generator: Any = None, without: Set[str] = frozenset()) -> Any:
    """What attn._attn.Options takes by name: `options`, converted, and for dropout one number of the generator's."""
    made = {}
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is None or name in without:
            names = ", ".join(sorted({*OPTIONS, "sinks", "relative_bias"} - without))
            raise TypeError(f"[{op}] expected options among {names}; found {name}")
        made[name] = value if option.convert is None else option.convert(value, name)
    if generator is not None or made.get("dropout_p"):
        draw = _drawn_from(op, kind, generator)
        if made.get("dropout_p"):
            made["dropout_key"] = draw()
    return made


def _drawn_from(op: str, kind: int, generator: Any) -> Callable[[], Any]:
    """What draws a key of dropout."""
    if kind == TORCH:
        import torch

        if not isinstance(generator, torch.Generator | None):
            raise TypeError(f"[{op}] expected generator as torch.Generator; found {type(generator).__name__}")
        return lambda: torch.randint(-(2**63), 2**63 - 1, (), generator=generator)
    stream = stream_of(default_generator if generator is None else generator, op)
    return lambda: int(stream.next_u64())


def typed(function: Any) -> Operator:
    """The function itself, with the operator's overloads for type checkers."""
    return function
