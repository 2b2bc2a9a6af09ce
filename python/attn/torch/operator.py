"""torch.ops.attn.attention: the operator and its gradient, as torch.compile, export and autograd know them.

In eager mode the same two functions run under a torch.autograd.Function, which costs less than an operator of Python's.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from attn import _attn
from attn._attention import TORCH

# Everything by position, in the order of attn._attn. query (b, hq, tq, d), key (b, hkv, tk, d), value (b, hkv, tk, dv):
# output (b, hq, tq, dv) and lse (b, hq, tq). Gradients are those of query, key, value, a float attn_mask and sinks.
OPTIONS = (
    "Tensor? attn_mask, Tensor? sinks, Tensor? alibi_slopes, Tensor? key_lengths, Tensor? query_starts, "
    "Tensor? key_starts, Tensor? block_mask, Tensor? dropout_key, float dropout_p, bool is_causal, float? scale, "
    "int window_left, int window_right, int block_query, int block_key, float softcap, "
    "str causal_alignment, str precision, int[]? score_function"
)
FORWARD = f"(Tensor query, Tensor key, Tensor value, {OPTIONS}) -> (Tensor, Tensor)"
BACKWARD = (
    f"(Tensor d_output, Tensor query, Tensor key, Tensor value, Tensor output, Tensor lse, {OPTIONS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    """FORWARD."""
    tensors, dropout_key, rest = bare(arguments[:10]), arguments[10], arguments[11:]
    call: Any = _attn.forward
    output, lse, _ = call(*tensors, number(dropout_key), *rest, True, True, False, None, TORCH)
    return output, lse


def backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
    """BACKWARD, but for None where there is no gradient."""
    tensors, dropout_key, rest = bare(arguments[:13]), arguments[13], arguments[14:]
    call: Any = _attn.backward
    return call(*tensors, number(dropout_key), *rest, TORCH)


_api = getattr(Tensor, "__dlpack_c_exchange_api__", None)
EXCHANGE = _api is not None and _attn.use_exchange(Tensor, _api)


def bare(tensors: tuple[Optional[Tensor], ...]) -> Any:
    """As the C++ side takes them fastest: as they are, or before PyTorch 2.10 as DLPack capsules."""
    return tensors if EXCHANGE else map(_capsule, tensors)


def _capsule(tensor: Optional[Tensor]) -> Any:
    if tensor is None:
        return None
    try:
        return to_dlpack(tensor.resolve_neg())
    except (BufferError, RuntimeError) as error:
        raise ValueError(
            "[scaled_dot_product_attention] expected dense tensors in the CPU's memory; "
            f"found {tensor.layout} on {tensor.device}: {error}"
        ) from error


def number(dropout_key: Optional[Tensor]) -> Optional[int]:
    return None if dropout_key is None else int(dropout_key) & 0xFFFFFFFFFFFFFFFF


class Attention(torch.autograd.Function):
    """(query, key, value, attn_mask, sinks, a tuple of the other options, what to keep alive): output and lse."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        tensors, ctx.rest, ctx.keep = args[:5], args[5], args[6]
        output, lse = forward(*tensors, *ctx.rest)
        ctx.save_for_backward(*tensors, output, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return output, lse

    @staticmethod
    def backward(ctx: Any, d_output: Optional[Tensor], _: Any) -> tuple[Any, ...]:
        if d_output is None:
            return (None,) * 7
        return (_backward_of_graph if torch.is_grad_enabled() else _backward)(ctx, d_output)


def _backward(ctx: Any, d_output: Tensor) -> tuple[Any, ...]:
    *qkv, mask, sinks, output, lse = ctx.saved_tensors
    return (*backward(d_output, *qkv, output, lse, mask, sinks, *ctx.rest), None, None)


# create_graph=True: the gradients say, when asked for theirs, that there are none.
_backward_of_graph = torch.autograd.function.once_differentiable(_backward)


# --- for torch.compile and torch.export --------------------------------------------------------------------------------

@torch.library.custom_op("attn::attention", mutates_args=(), device_types="cpu", schema=FORWARD)
def attention(*arguments: Any) -> tuple[Tensor, Tensor]:
    """Row-major, as the fake says; the library's own result may have tokens before heads, as query has."""
    output, lse = forward(*arguments)
    return output.contiguous(), lse


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    b, h, tq, _ = query.shape
    lse = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty((b, h, tq, value.shape[-1])), query.new_empty((b, h, tq), dtype=lse)


@torch.library.custom_op("attn::attention_backward", mutates_args=(), device_types="cpu", schema=BACKWARD)
def attention_backward(*arguments: Any) -> tuple[Tensor, ...]:
    """Row-major. An operator returns tensors, never None: an absent gradient is an empty one."""
    return tuple(arguments[0].new_empty(0) if d is None else d.contiguous() for d in backward(*arguments))


@attention_backward.register_fake
def _(d_output: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    query, key, value, _, _, mask, sinks = arguments[:7]
    return tuple(
        tensor.new_empty(tensor.shape) if _has_gradient(tensor) else d_output.new_empty(0)
        for tensor in (query, key, value, mask, sinks)
    )


def _has_gradient(tensor: Optional[Tensor]) -> bool:
    return tensor is not None and tensor.dtype.is_floating_point


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:11], *output)
    ctx.options = inputs[11:]
    ctx.mark_non_differentiable(output[1])


def _backward_of_operator(ctx: Any, d_output: Tensor, _: Any) -> tuple[Any, ...]:
    *tensors, output, lse = ctx.saved_tensors
    gradients = attention_backward(d_output, *tensors[:3], output, lse, *tensors[3:], *ctx.options)
    of_tensors = (d if _has_gradient(tensor) else None for d, tensor in zip(gradients, tensors))
    return (*of_tensors, *(None,) * (6 + len(ctx.options)))


attention.register_autograd(_backward_of_operator, setup_context=_setup_context)
