"""Attention over a sequence that is cut among ranks: the processes of a torch.distributed group or of an mpi4py
communicator.

    >>> layout = attn.distributed.Layout.zigzag(tokens, ranks)
    >>> out = attn.distributed.attention(q, k, v, is_causal=True, layout=layout)  # its rows, of the default group

Each rank gives its rows of the queries, keys and values, and gets its rows of the result.
"""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, NUMPY, TORCH, dtype_name, flag, framework, take
from attn._layout import Layout
from attn._options import NOT_OF_RANKS, given
from attn._ranks import ranks_of, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Unpack, overload

    from attn._typed_options import RankOptions, WholeOptions
    from attn._types import A, Array, DType, Group, Ranks

__all__ = ["Estimate", "Layout", "attention", "decode", "estimate"]


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
    query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, *, group: Group = None, layout: Layout | None = None,
    key_layout: Layout | None = None, scheme: str = "auto", sinks: Array | None = None,
    relative_bias: Array | None = None, return_lse: bool = False, **options: Any,
) -> A | tuple[A, A]:  # fmt: skip
    """attn.scaled_dot_product_attention of a sequence that is cut among ranks.

    All ranks make the call together, and mean the same by it. Options are those of the whole sequence, and are the
    same on all ranks, but for attn_mask. With PyTorch's tensors gradients flow to query, key, value, a float attn_mask,
    sinks and relative_bias, and the backward pass is a call of all ranks too: each must reach it, in the same order, so
    that tensors must require gradients on all ranks or on none. A rank that ends between the two leaves the others
    waiting for as long as the group's timeout.
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
    options |= {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    layouts = scheme, layout, key_layout
    inputs = query, key, value, attn_mask, sinks, relative_bias
    return _call(ranks_of(group), inputs, enable_gqa, layouts, options, return_lse, False)


if TYPE_CHECKING:

    @overload
    def decode(
        query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[False] = False,
        group: Group = None, key_layout: Layout | None = None, **options: Unpack[WholeOptions],
    ) -> A: ...  # fmt: skip

    @overload
    def decode(
        query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[True],
        group: Group = None, key_layout: Layout | None = None, **options: Unpack[WholeOptions],
    ) -> tuple[A, A]: ...  # fmt: skip


def decode(
    query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, *, group: Group = None, key_layout: Layout | None = None,
    sinks: Array | None = None, relative_bias: Array | None = None, return_lse: bool = False, **options: Any,
) -> A | tuple[A, A]:  # fmt: skip
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
    options |= {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
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
    layout: Layout, *, query_heads: int, key_heads: int | None = None, head_dim: int, batch: int = 1,
    dtype: DType = "float32", is_causal: bool = False, window: tuple[int, int] | None = None, scheme: str = "auto",
    bytes_per_second: float = 1e9, latency: float = 3e-5, flops_per_second: float = 5e10,
) -> Estimate:  # fmt: skip
    """Estimates a forward pass without ranks: by the model by which scheme="auto" chooses.

    Args:
        layout: which rows each rank holds, of queries and keys alike.
        bytes_per_second, latency, flops_per_second: of one rank; a message takes `latency` and its bytes.

    The other arguments are sizes and options of the whole problem.
    """
    made = _attn.Options(NUMPY, given("estimate", {"is_causal": is_causal, "window": window}, NUMPY))
    sizes = [batch, query_heads, query_heads if key_heads is None else key_heads, head_dim, head_dim]
    runs: Any = _runs(layout, "layout")
    costs = bytes_per_second, latency, flops_per_second
    return Estimate(*_attn.distributed_estimate(runs, runs, sizes, dtype_name(dtype), made, scheme, *costs))


def _call(
    ranks: Ranks, inputs: Any, grouped: bool, layouts: Any, options: dict[str, Any], return_lse: bool, decodes: bool
) -> Any:
    try:
        both = flag(return_lse, "distributed attention", "return_lse")
        kind = framework(inputs[0])
        _check_heads(inputs[0], inputs[1], grouped)
        scheme, layout, key_layout = layouts
        shared = ranks, str(scheme), _runs(layout, "layout"), _runs(key_layout, "key_layout")
        tensors, follow = inputs, False
        if kind == TORCH:
            from attn.torch import distributed as of_torch

            inputs, follow = of_torch.prepared(inputs, options)
            tensors = () if follow else of_torch.operator.bare(inputs)
        if decodes and follow:
            raise ValueError(
                "[distributed attention] expected decode() without gradients; found a tensor with requires_grad; use "
                "torch.no_grad()"
            )
        generator = options.pop("generator", None)
        taken = given("distributed attention", options, kind, generator, NOT_OF_RANKS)
        made = _attn.Options(kind, of_torch.copied(taken) if follow else taken)
    except Exception as error:  # the others are waiting for this rank's part
        refuse(ranks, error)
        raise
    if follow:
        output, lse = of_torch.attention(inputs, shared, made, options.get("score_function"))
    else:
        call: Any = _attn.distributed_forward
        ranks, scheme, *runs = shared
        output, lse = call(ranks, tensors, made, scheme, *runs, decodes, False, kind)
        if kind == DLPACK:
            output, lse = take(output, inputs[0]), take(lse, inputs[0])
    return (output, lse) if both else output


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
