"""torch.ops.attn.attention: the operator and its gradient, as torch.compile, export and autograd know them.

In eager mode the same two functions run under a torch.autograd.Function, which costs a call less.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from attn import _attn
from attn._attention import TORCH


# Everything by position, tensors first: (query, key, value, attn_mask, sinks) may have gradients.
def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    sinks: Optional[Tensor],
    alibi_slopes: Optional[Tensor],
    key_lengths: Optional[Tensor],
    dropout_key: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
    window_left: int,
    window_right: int,
    softcap: float,
    causal_alignment: str,
    precision: str,
    score_function: Optional[list[int]],
) -> tuple[Tensor, Tensor]:
    """query (b, hq, tq, d), key (b, hkv, tk, d), value (b, hkv, tk, dv): output (b, hq, tq, dv) and lse (b, hq, tq)."""
    output, lse, _ = _attn.forward(
        bare(query), bare(key), bare(value), bare(attn_mask), dropout_p, number(dropout_key), is_causal, scale, True,
        (window_left, window_right), softcap, bare(alibi_slopes), bare(sinks), bare(key_lengths), causal_alignment,
        precision, score_function, True, False, None, TORCH,
    )  # fmt: skip
    return output, lse


def backward(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    attn_mask: Optional[Tensor],
    sinks: Optional[Tensor],
    alibi_slopes: Optional[Tensor],
    key_lengths: Optional[Tensor],
    dropout_key: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
    window_left: int,
    window_right: int,
    softcap: float,
    causal_alignment: str,
    precision: str,
    score_function: Optional[list[int]],
) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
    """Gradients of query, key, value, a float mask and sinks."""
    return _attn.backward(
        bare(d_output), bare(query), bare(key), bare(value), bare(output), bare(lse), bare(attn_mask), dropout_p,
        number(dropout_key), is_causal, scale, (window_left, window_right), softcap, bare(alibi_slopes), bare(sinks),
        bare(key_lengths), causal_alignment, precision, score_function, TORCH,
    )  # fmt: skip


def bare(tensor: Optional[Tensor]) -> Any:
    """A tensor's memory, as the C++ side takes it fastest: a DLPack capsule."""
    if tensor is None:
        return None
    try:
        return _capsule(tensor.resolve_neg())
    except (BufferError, RuntimeError) as error:
        raise ValueError(
            "[scaled_dot_product_attention] expected dense tensors in the CPU's memory; "
            f"found {tensor.layout} on {tensor.device}: {error}"
        ) from error


_capsule = torch.utils.dlpack.to_dlpack


def number(dropout_key: Optional[Tensor]) -> Optional[int]:
    return None if dropout_key is None else int(dropout_key) & 0xFFFFFFFFFFFFFFFF


class Attention(torch.autograd.Function):
    """(query, key, value, attn_mask, sinks, the other arguments of forward(), what to keep alive): output and lse."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        tensors, ctx.rest, ctx.keep = args[:5], args[5], args[6]
        output, lse = forward(*tensors, *ctx.rest)
        ctx.save_for_backward(*tensors, output, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return output, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_output: Optional[Tensor], _: Any) -> tuple[Any, ...]:
        if d_output is None:
            return (None,) * 7
        q, k, v, mask, sinks, output, lse = ctx.saved_tensors
        return (*backward(d_output, q, k, v, output, lse, mask, sinks, *ctx.rest), None, None)


# --- for torch.compile and torch.export --------------------------------------------------------------------------------


@torch.library.custom_op("attn::attention", mutates_args=(), device_types="cpu")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    sinks: Optional[Tensor],
    alibi_slopes: Optional[Tensor],
    key_lengths: Optional[Tensor],
    dropout_key: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
    window_left: int,
    window_right: int,
    softcap: float,
    causal_alignment: str,
    precision: str,
    score_function: Optional[list[int]],
) -> tuple[Tensor, Tensor]:
    return forward(
        query, key, value, attn_mask, sinks, alibi_slopes, key_lengths, dropout_key, dropout_p, is_causal, scale,
        window_left, window_right, softcap, causal_alignment, precision, score_function,
    )  # fmt: skip


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    b, h, tq, _ = query.shape
    lse = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty((b, h, tq, value.shape[-1])), query.new_empty((b, h, tq), dtype=lse)


# An operator returns tensors, never None: an absent gradient is an empty one.
@torch.library.custom_op("attn::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    attn_mask: Optional[Tensor],
    sinks: Optional[Tensor],
    alibi_slopes: Optional[Tensor],
    key_lengths: Optional[Tensor],
    dropout_key: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
    window_left: int,
    window_right: int,
    softcap: float,
    causal_alignment: str,
    precision: str,
    score_function: Optional[list[int]],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k, v, mask, sink = backward(
        d_output, query, key, value, output, lse, attn_mask, sinks, alibi_slopes, key_lengths, dropout_key, dropout_p,
        is_causal, scale, window_left, window_right, softcap, causal_alignment, precision, score_function,
    )  # fmt: skip
    none = query.new_empty(0)
    return q, k, v, none if mask is None else mask, none.clone() if sink is None else sink


def _has_gradient(mask: Optional[Tensor]) -> bool:
    return mask is not None and mask.dtype.is_floating_point


@attention_backward.register_fake
def _(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    attn_mask: Optional[Tensor],
    sinks: Optional[Tensor],
    *args: Any,
) -> tuple[Tensor, ...]:
    def like(tensor: Optional[Tensor]) -> Tensor:
        if not _has_gradient(tensor):
            return query.new_empty(0)
        return tensor.new_empty(tensor.shape)  # type: ignore[union-attr]

    return like(query), like(key), like(value), like(attn_mask), like(sinks)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.options = inputs[8:]
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, d_output: Tensor, _: Any) -> tuple[Any, ...]:
    *tensors, output, lse = ctx.saved_tensors
    q, k, v, mask, sinks = attention_backward(d_output, *tensors[:3], output, lse, *tensors[3:], *ctx.options)
    rest = (None,) * (3 + len(ctx.options))
    return (q, k, v, mask if _has_gradient(tensors[3]) else None, sinks if tensors[4] is not None else None, *rest)


attention.register_autograd(_backward, setup_context=_setup_context)
