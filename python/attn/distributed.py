"""Attention over a sequence that is cut among ranks: the processes of a torch.distributed group or of an mpi4py
communicator.

    >>> layout = attn.distributed.Layout.zigzag(tokens, ranks)
    >>> out = attn.distributed.attention(q, k, v, is_causal=True, layout=layout)  # its rows, of the default group

Each rank gives its rows of the queries, keys and values, and gets its rows of the result.
"""

from __future__ import annotations

from attn import _attn
from attn._arguments import (
    DLPACK,
    NUMPY,
    TORCH,
    addresses,
    dtype_name,
    framework,
    int64,
    integer,
    pair_of,
    stream_of,
    take,
    window_of,
)
from attn._ranks import ranks_of, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Literal, Unpack, overload

    import torch

    from attn._random import Generator
    from attn._types import A, Array, DType, Group, Int64, Integers, RankOptions, Ranks
    from attn.scores import ScoreFunction

__all__ = ["Estimate", "Layout", "attention", "decode", "estimate"]


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


if TYPE_CHECKING:

    @overload
    def attention(
        query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[False] = False,
        **options: Unpack[RankOptions],
    ) -> A: ...  # fmt: skip

    @overload
    def attention(
        query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[True],
        **options: Unpack[RankOptions],
    ) -> tuple[A, A]: ...  # fmt: skip


def attention(
    query: A,
    key: A,
    value: A,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    group: Group = None,
    layout: Layout | None = None,
    key_layout: Layout | None = None,
    scheme: str = "auto",
    window: tuple[int, int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    relative_bias: Array | None = None,
    relative_bidirectional: bool = True,
    relative_max_distance: int = 128,
    key_lengths: Integers | None = None,
    cu_seqlens_q: Integers | None = None,
    cu_seqlens_k: Integers | None = None,
    block_mask: Array | None = None,
    block_size: int | tuple[int, int] = 64,
    causal_alignment: str = "top_left",
    precision: str = "highest",
    score_function: ScoreFunction | None = None,
    output_dtype: DType | None = None,
    return_lse: bool = False,
    generator: Generator | torch.Generator | None = None,
) -> A | tuple[A, A]:
    """attn.scaled_dot_product_attention of a sequence that is cut among ranks.

    All ranks make the call together, and mean the same by it. Options are those of the whole sequence, and are the
    same on all ranks, but for attn_mask. With PyTorch's tensors gradients flow to query, key, value, a float attn_mask,
    sinks and relative_bias, and the backward pass is a call of all ranks too: each must reach it, in the same order, so
    that tensors must require gradients on all ranks or on none.
    Gradients of sinks, of relative_bias and of an attn_mask with one row are sums over all ranks. The group carries
    messages while a rank computes.

    Args:
        query: (b, hq, this rank's rows, d), as scaled_dot_product_attention takes it, with all four dimensions.
        key: (b, hkv, this rank's rows, d).
        value: (b, hkv, this rank's rows, dv).
        attn_mask: broadcastable to (b, hq, this rank's queries, all keys). One with a single row is the same on all
            ranks.
        dropout_p, is_causal, scale, enable_gqa: as scaled_dot_product_attention's. Dropout is drawn from one number of
            `generator`, which must be in the same state on all ranks.
        group: a torch.distributed group (gloo) or a DeviceMesh of one dimension, an mpi4py communicator, or an object
            with rank, size, send() and receive(). Default: torch.distributed's default group.
        layout: which rows of the queries each rank holds. Default: the ranks' rows follow each other.
        key_layout: the same of the keys. Default: the queries', where each rank has as many keys as queries; else the
            ranks' rows follow each other.
        scheme: "ring", "gather", "ulysses", or "auto", by an estimate; docs/distributed.md tells which is for what.
        key_lengths, cu_seqlens_q, cu_seqlens_k, block_mask: of the whole sequence.

    The other options are those of scaled_dot_product_attention.

    Returns:
        output (b, hq, this rank's rows, dv), and with return_lse (output, lse), lse (b, hq, this rank's rows).

    Raises:
        TypeError: what is no array or no group.
        ValueError: on every rank, where a shape or an option does not fit on one of them, where ranks disagree, or
            where the scheme cannot do it. The message names the rank.
    """
    options = dict(
        window=window, softcap=softcap, alibi_slopes=alibi_slopes, relative_bidirectional=relative_bidirectional,
        relative_max_distance=relative_max_distance, key_lengths=key_lengths, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, block_mask=block_mask, block_size=block_size, causal_alignment=causal_alignment,
        precision=precision, score_function=score_function, output_dtype=output_dtype, dropout_p=dropout_p,
        is_causal=is_causal, scale=scale, generator=generator,
    )  # fmt: skip
    layouts = scheme, layout, key_layout
    inputs = query, key, value, attn_mask, sinks, relative_bias
    return _call(ranks_of(group), inputs, enable_gqa, layouts, options, return_lse, False)


if TYPE_CHECKING:

    @overload
    def decode(
        query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[False] = False,
        group: Group = None, key_layout: Layout | None = None, sinks: Array | None = None,
        **options: Any,
    ) -> A: ...  # fmt: skip

    @overload
    def decode(
        query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[True],
        group: Group = None, key_layout: Layout | None = None, sinks: Array | None = None,
        **options: Any,
    ) -> tuple[A, A]: ...  # fmt: skip


def decode(
    query: A,
    key: A,
    value: A,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    group: Group = None,
    key_layout: Layout | None = None,
    sinks: Array | None = None,
    relative_bias: Array | None = None,
    return_lse: bool = False,
    **options: Any,
) -> A | tuple[A, A]:
    """Attention of new tokens to keys and values that are cut among ranks, as a decoder's cache is.

    All ranks give the same queries, each gives its own keys and values, and each gets the whole result. With
    causal_alignment="bottom_right" the queries stand at the end of all keys. No gradient flows.

    Args:
        query: (b, hq, tq, d), the same on all ranks.
        key: (b, hkv, this rank's rows, d).
        value: (b, hkv, this rank's rows, dv).
        attn_mask: broadcastable to (b, hq, tq, all keys), the same on all ranks.
        group, key_layout: as attention()'s.
        **options: attention()'s other options.

    Returns:
        output (b, hq, tq, dv), and with return_lse (output, lse), lse (b, hq, tq).

    Raises:
        TypeError, ValueError: as attention() does.
    """
    options.update(dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    inputs = query, key, value, attn_mask, sinks, relative_bias
    return _call(ranks_of(group), inputs, enable_gqa, ("auto", None, key_layout), options, return_lse, True)


class Estimate:
    """What a forward pass costs the busiest rank, by the library's cost model: scheme, seconds, bytes that it sends,
    messages, flops, and the comparison in words (reason)."""

    def __init__(self, scheme: str, seconds: float, sent: float, messages: float, flops: float, reason: str) -> None:
        self.scheme, self.seconds, self.bytes, self.messages = scheme, seconds, sent, messages
        self.flops, self.reason = flops, reason

    def __repr__(self) -> str:
        return f"Estimate({self.scheme!r}, seconds={self.seconds:.3g}, bytes={self.bytes:.3g}, flops={self.flops:.3g})"


def estimate(
    layout: Layout,
    *,
    query_heads: int,
    key_heads: int | None = None,
    head_dim: int,
    batch: int = 1,
    dtype: DType = "float32",
    is_causal: bool = False,
    window: tuple[int, int] | None = None,
    scheme: str = "auto",
    bytes_per_second: float = 1e9,
    latency: float = 3e-5,
    flops_per_second: float = 5e10,
) -> Estimate:
    """Estimates a forward pass without ranks: by the model by which scheme="auto" chooses.

    Args:
        layout: which rows each rank holds, of queries and keys alike.
        bytes_per_second, latency, flops_per_second: of one rank; a message takes `latency` and its bytes.

    The other arguments are sizes and options of the whole problem.
    """
    kind = {"is_causal": is_causal, "window": window}
    sizes = [batch, query_heads, query_heads if key_heads is None else key_heads, head_dim, head_dim]
    options = _attn.Options(framework=NUMPY, **_named(kind, NUMPY))
    runs: Any = _runs(layout, "layout")
    costs = bytes_per_second, latency, flops_per_second
    return Estimate(*_attn.distributed_estimate(runs, runs, sizes, dtype_name(dtype), options, scheme, *costs))


def _call(
    ranks: Ranks, inputs: Any, grouped: bool, layouts: Any, options: dict[str, Any], return_lse: bool, decodes: bool
) -> Any:
    try:
        kind = framework(inputs[0])
        _check_heads(inputs[0], inputs[1], grouped)
        scheme, layout, key_layout = layouts
        given = ranks, str(scheme), _runs(layout, "layout"), _runs(key_layout, "key_layout")
        follow = False
        if kind == TORCH:
            from attn.torch.distributed import attention as of_torch, prepared

            inputs, follow = prepared(inputs, options)
        if decodes and follow:
            raise ValueError(
                "[distributed attention] expected decode() without gradients; found a tensor with requires_grad; use "
                "torch.no_grad()"
            )
        made = _attn.Options(framework=kind, **_named(options, kind))
        tensors = () if follow else _bare(inputs, kind)
    except Exception as error:  # the others are waiting for this rank's part
        refuse(ranks, error)
        raise
    if follow:
        output, lse = of_torch(inputs, given, made, options.get("score_function"))
    else:
        call: Any = _attn.distributed_forward
        ranks, scheme, *runs = given
        output, lse = call(ranks, *tensors, made, scheme, *runs, decodes, kind)
        if kind == DLPACK:
            output, lse = take(output, inputs[0]), take(lse, inputs[0])
    return (output, lse) if return_lse else output


def _bare(inputs: Any, kind: int) -> Any:
    if kind != TORCH:
        return inputs
    from attn.torch import operator  # exchanges tensors from now on

    return tuple(operator.bare(inputs))


def _check_heads(query: Any, key: Any, grouped: bool) -> None:
    q: Any = getattr(query, "shape", ())
    k: Any = getattr(key, "shape", ())
    if len(q) == len(k) == 4 and not grouped and k[1] not in (1, q[1]):
        raise ValueError(
            "[distributed attention] expected query and key of the same number of heads (enable_gqa=True for grouped "
            f"heads); found {q[1]} and {k[1]}"
        )


def _runs(layout: Any, what: str) -> Any:
    if layout is None:
        return []
    if not isinstance(layout, Layout):
        raise TypeError(f"[distributed attention] expected {what} as an attn.distributed.Layout; found {layout!r}")
    return layout.runs


def _named(options: dict[str, Any], kind: int) -> dict[str, Any]:
    """attn._attn.Options' keywords."""
    named = {"softcap": 0.0, **options}
    named["window_left"], named["window_right"] = window_of(named.pop("window", None))
    named["block_query"], named["block_key"] = pair_of(named.pop("block_size", 64))
    starts_q = int64(named.pop("cu_seqlens_q", None), "cu_seqlens_q")
    starts_k = named.pop("cu_seqlens_k", None)
    named["query_starts"] = starts_q
    named["key_starts"] = starts_q if starts_k is None else int64(starts_k, "cu_seqlens_k")
    named["key_lengths"] = int64(named.get("key_lengths"), "key_lengths")
    named["score_function"] = addresses(named.get("score_function"))
    named["output_dtype"] = dtype_name(named.get("output_dtype"))
    generator = named.pop("generator", None)
    named["dropout_key"] = _dropout_key(generator, kind) if named.get("dropout_p") else None
    return named


def _dropout_key(generator: Any, kind: int) -> int:
    if kind == TORCH:
        import torch

        return int(torch.randint(-(2**63), 2**63 - 1, (), generator=generator)) & 0xFFFFFFFFFFFFFFFF
    if generator is None:
        from attn._random import default_generator

        generator = default_generator
    return int(stream_of(generator, "distributed attention").next_u64())
