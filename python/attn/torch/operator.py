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

# query (b, hq, tq, d), key (b, hkv, tk, d), value (b, hkv, tk, dv): output (b, hq, tq, dv) and lse (b, hq, tq). Gradients
# are those of INPUTS. TENSORS and NUMBERS are the keywords of attn._attn.Options; an operator of PyTorch with gradients
# takes tensors by position.
INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor? sinks, Tensor? relative_bias"
INPUT_COUNT = 6
TENSORS = (
    "Tensor? alibi_slopes, Tensor? key_lengths, Tensor? query_starts, Tensor? key_starts, Tensor? block_mask, "
    "Tensor? dropout_key, Tensor? query_offset, Tensor? key_offset"
)
NUMBERS = (
    "int block_query, int block_key, float dropout_p, bool is_causal, float? scale, int window_left, int window_right, "
    "float softcap, str causal_alignment, str precision, int[]? score_function, str? output_dtype, "
    "bool relative_bidirectional, int relative_max_distance"
)
FORWARD = f"({INPUTS}, {TENSORS}, *, {NUMBERS}) -> (Tensor, Tensor)"
BACKWARD = (
    f"(Tensor d_output, {INPUTS}, Tensor output, Tensor lse, {TENSORS}, *, {NUMBERS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
TENSOR_NAMES = [word for word in TENSORS.replace(",", "").split() if word != "Tensor?"]


def options(named: dict[str, Any]) -> Any:
    """The library's, of TENSORS and NUMBERS by name."""
    key = named["dropout_key"]
    if key is not None:
        named = {**named, "dropout_key": int(key) & 0xFFFFFFFFFFFFFFFF}
    if not EXCHANGE:
        named = {name: _capsule(value) if isinstance(value, Tensor) else value for name, value in named.items()}
    return _attn.Options(framework=TORCH, **named)


def forward(inputs: tuple[Any, ...], given: Any) -> tuple[Tensor, Tensor]:
    """Of INPUTS and options(): output and lse."""
    call: Any = _attn.forward
    output, lse, _ = call(*bare(inputs), given, True, True, False, TORCH)
    return output, lse


def backward(d_output: Tensor, inputs: Any, results: Any, given: Any) -> tuple[Optional[Tensor], ...]:
    """Gradients of INPUTS, None where there is none; results are forward's."""
    call: Any = _attn.backward
    return call(*bare((d_output, *inputs, *results)), given, TORCH)


_api = getattr(Tensor, "__dlpack_c_exchange_api__", None)
# PyTorch leaves graphs that live at the interpreter's end, and their options with them: that is no leak of ours.
_attn.set_leak_warnings(False)
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


class Attention(torch.autograd.Function):
    """(*INPUTS, options(), what to keep alive): output and lse."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        *inputs, ctx.options, ctx.keep = args
        output, lse = forward(tuple(inputs), ctx.options)
        ctx.save_for_backward(*inputs, output, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return output, lse

    @staticmethod
    def backward(ctx: Any, d_output: Optional[Tensor], _: Any) -> tuple[Any, ...]:
        if d_output is None:
            return (None,) * (INPUT_COUNT + 2)
        return (_backward_of_graph if torch.is_grad_enabled() else _backward)(ctx, d_output)


def _backward(ctx: Any, d_output: Tensor) -> tuple[Any, ...]:
    *inputs, output, lse = ctx.saved_tensors
    return (*backward(d_output, inputs, (output, lse), ctx.options), None, None)


# create_graph=True: the gradients say, when asked for theirs, that there are none.
_backward_of_graph = torch.autograd.function.once_differentiable(_backward)


# --- for torch.compile and torch.export --------------------------------------------------------------------------------

@torch.library.custom_op("attn::attention", mutates_args=(), device_types="cpu", schema=FORWARD)
def attention(
    query: Tensor, key: Tensor, value: Tensor, *tensors: Any, **numbers: Any
) -> tuple[Tensor, Tensor]:
    """Row-major, as the fake says; the library's own result may have tokens before heads, as query has."""
    others, named = tensors[: INPUT_COUNT - 3], _named(tensors[INPUT_COUNT - 3 :], numbers)
    output, lse = forward((query, key, value, *others), options(named))
    return output.contiguous(), lse


def _named(tensors: Any, numbers: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(TENSOR_NAMES, tensors), **numbers)


def traced(*inputs: Any) -> Any:
    """attention, of INPUTS and a dict of TENSORS and NUMBERS."""
    *tensors, named = inputs
    for name in ("dropout_p", "softcap", "scale"):
        named[name] = None if named[name] is None else float(named[name])
    return attention(*tensors, **named)


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *tensors: Any, **numbers: Any) -> tuple[Tensor, Tensor]:
    b, h, tq, _ = query.shape
    lse = torch.float64 if query.dtype == torch.float64 else torch.float32
    named = numbers["output_dtype"]
    dtype = query.dtype if named is None else getattr(torch, named)
    return query.new_empty((b, h, tq, value.shape[-1]), dtype=dtype), query.new_empty((b, h, tq), dtype=lse)


@torch.library.custom_op("attn::attention_backward", mutates_args=(), device_types="cpu", schema=BACKWARD)
def attention_backward(
    d_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any,
    sinks: Any,
    relative_bias: Any,
    output: Tensor,
    lse: Tensor,
    *tensors: Any,
    **numbers: Any,
) -> tuple[Tensor, ...]:
    """Row-major. An operator returns tensors, never None: an absent gradient is an empty one."""
    inputs = (query, key, value, attn_mask, sinks, relative_bias)
    gradients = backward(d_output, inputs, (output, lse), options(_named(tensors, numbers)))
    return tuple(d_output.new_empty(0) if d is None else d.contiguous() for d in gradients)


@attention_backward.register_fake
def _(
    d_output: Tensor, *tensors: Any, **numbers: Any
) -> tuple[Tensor, ...]:
    return tuple(
        tensor.new_empty(tensor.shape) if _has_gradient(tensor) else d_output.new_empty(0)
        for tensor in tensors[:INPUT_COUNT]
    )


def _has_gradient(tensor: Optional[Tensor]) -> bool:
    return tensor is not None and tensor.dtype.is_floating_point


def _setup_context(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.numbers = keyword_only_inputs
    ctx.mark_non_differentiable(output[1])


def _backward_of_operator(ctx: Any, d_output: Tensor, _: Any) -> tuple[Any, ...]:
    *given, output, lse = ctx.saved_tensors
    inputs, tensors = given[:INPUT_COUNT], given[INPUT_COUNT:]
    gradients = attention_backward(d_output, *inputs, output, lse, *tensors, **ctx.numbers)
    of_inputs = (d if _has_gradient(tensor) else None for d, tensor in zip(gradients, inputs))
    return (*of_inputs, *(None for _ in tensors))


attention.register_autograd(_backward_of_operator, setup_context=_setup_context)
