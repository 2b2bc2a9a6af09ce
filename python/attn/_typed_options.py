"""Keyword arguments of the entries, for type checkers. Never imported when the package runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypedDict, overload

if TYPE_CHECKING:
    from typing import Unpack

    import torch

    from attn._layout import Layout
    from attn._random import Generator
    from attn._types import A, Array, DType, Group, Integers, Rows
    from attn.scores import ScoreFunction


class CacheOptions(TypedDict, total=False):
    """What every entry takes by keyword alone, KVCache.attention too."""

    window: tuple[int, int] | None
    softcap: float
    alibi_slopes: Array | None
    sinks: Array | None
    relative_bias: Array | None
    relative_bidirectional: bool
    relative_max_distance: int
    causal_alignment: str
    precision: str
    score_function: ScoreFunction | None


class WholeOptions(CacheOptions, total=False):
    """What only whole sequences have, of one process or of several."""

    key_lengths: Integers | None
    cu_seqlens_q: Integers | None
    cu_seqlens_k: Integers | None
    block_mask: Array | None
    block_size: int | tuple[int, int]
    output_dtype: DType | None
    generator: Generator | torch.Generator | None


class Options(WholeOptions, total=False):
    """What scaled_dot_product_attention takes by keyword alone, but for what is returned."""

    query_offset: int | Integers | None
    key_offset: int | Integers | None


class Operator(Protocol):
    """scaled_dot_product_attention, which returns a tuple where more than the output is asked for."""

    @overload
    def __call__(
        self, query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        return_lse: Literal[False] = False, return_weights: Literal[False] = False, **options: Unpack[Options],
    ) -> A: ...  # fmt: skip

    @overload
    def __call__(
        self, query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        return_lse: Literal[True], return_weights: Rows = False, **options: Unpack[Options],
    ) -> tuple[A, ...]: ...  # fmt: skip

    @overload
    def __call__(
        self, query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        return_lse: bool = False, return_weights: Literal[True] | Integers, **options: Unpack[Options],
    ) -> tuple[A, ...]: ...  # fmt: skip


class RankOptions(WholeOptions, total=False):
    """What attn.distributed.attention takes by keyword alone, but for what is returned."""

    group: Group
    layout: Layout | None
    key_layout: Layout | None
    scheme: str
