"""linear_attention, gated_delta_rule and causal_convolution for PyTorch's tensors, with gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.overrides
from torch import Tensor

from attn import _attn
from attn._arguments import TORCH, flag, int64, refuse_parts, unmasked
from attn.torch import modes, operator


class _Kernel:
    """One of the library's functions and its gradient; `name` and `gradient` are those of attn._attn."""

    def __init__(self, name: str, differentiable: int) -> None:
        self.name, self.differentiable = name, differentiable

    def forward(self, tensors: Any, options: Any) -> Any:
        self._refuse(tensors)
        return getattr(_attn, self.name)(operator.bare(tuple(tensors)), *options, TORCH)

    def gradients(self, d_output: Any, d_state: Any, tensors: Any, options: Any) -> list[Any]:
        self._refuse((d_output, d_state, *tensors))
        modes.refuse_batched(self.name, d_output, d_state)
        d_output, d_state = operator.bare((d_output, d_state))
        call = getattr(_attn, self.name + "_backward")
        found = call(d_output, d_state, operator.bare(tuple(tensors)), *options, TORCH)
        return [d if d is None else d.to(x.dtype) for d, x in zip(found, tensors)]

    def _refuse(self, tensors: Any) -> None:
        if not modes.ordinary(tensors):
            raise NotImplementedError(
                f"[{self.name}] expected PyTorch's own tensors in the CPU's memory; found a fake or meta tensor, a subclass, "
                "or a mode that watches operators"
            )


KERNELS = {"linear_attention": _Kernel("linear_attention", 6), "causal_convolution": _Kernel("causal_convolution", 4)}


class Recurrence(torch.autograd.Function):
    """(which of KERNELS, its options, *tensors): output and state."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        kernel, options, *tensors = args
        return KERNELS[kernel].forward(tensors, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kernel, ctx.options, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.output_shape = output[0].shape  # the output itself may be changed in place
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, d_output: Any, d_state: Any) -> Any:
        tensors = ctx.saved_tensors
        if d_output is None and d_state is None:
            return (None,) * (2 + len(tensors))
        d_output = tensors[0].new_zeros(ctx.output_shape) if d_output is None else d_output
        call: Any = Gradient.apply if torch.is_grad_enabled() or modes.transformed() else Gradient.forward
        found = call(ctx.kernel, ctx.options, d_output, d_state, *tensors)
        kept = [d if operator.has_gradient(x) else None for d, x in zip(found, tensors)]
        return (None, None, *kept, *(None,) * (len(tensors) - len(kept)))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        modes.refuse_forward_mode(ctx.kernel)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return modes.one_by_one(Recurrence.apply)(info, in_dims, *args)


class Gradient(torch.autograd.Function):
    """(which of KERNELS, its options, d_output, d_state, *tensors): gradients, empty where there is none."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        kernel, options, d_output, d_state, *tensors = args
        found = KERNELS[kernel].gradients(d_output, d_state, tensors, options)
        return tuple(d_output.new_empty(0) if d is None else d for d in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kernel = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            f"[{ctx.kernel}] expected derivatives of first order; found a gradient that is differentiated twice, which is not "
            "there"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return modes.one_by_one(Gradient.apply)(info, in_dims, *args)


@torch.compiler.disable
def _call(kernel: str, tensors: tuple[Any, ...], options: tuple[Any, ...]) -> Any:
    """A break in a graph of torch.compile."""
    modes.refuse_tracing(kernel)
    modes.refuse_context_parallel(kernel)
    _are_dense(kernel, tensors)
    if modes.direct(tensors):
        return KERNELS[kernel].forward(tensors, options)
    call: Any = Recurrence.apply
    return call(kernel, options, *tensors)


_NAMES = {
    "linear_attention": ("query", "key", "value", "decay", "beta", "initial_state", "lengths", "cu_seqlens"),
    "gated_delta_rule": ("query", "key", "value", "g", "beta"),
    "causal_convolution": ("x", "weight", "bias", "initial_state", "cu_seqlens"),
}


def _are_dense(op: str, tensors: tuple[Any, ...]) -> None:
    refuse_parts(*tensors)
    for name, tensor in zip(_NAMES[op], tensors):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"[{op}] expected {name} as torch.Tensor; found {type(tensor).__name__}")
        if tensor.is_nested:
            raise NotImplementedError(
                f"[{op}] expected no nested tensors; found one; put the sequences one after the other, with cu_seqlens"
            )
        if tensor.layout != torch.strided:
            raise NotImplementedError(f"[{op}] expected dense tensors; found {tensor.layout}; convert it with .to_dense()")


def _integers(values: Any, what: str, op: str) -> Any:
    if values is None:
        return None
    if isinstance(values, Tensor):
        if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
            raise TypeError(f"[{op}] expected {what} as integers; found dtype {values.dtype}")
        return values.to(torch.int64)
    return torch.as_tensor(int64(values, what, op)).clone()


def _tensor(values: Any, what: str, op: str) -> Any:
    """A tensor of its own of another array's numbers, which may be others by the time that the gradient asks for them.

    Of a list's tensors no gradient would come back.
    """
    if values is None or isinstance(values, Tensor):
        return values
    unmasked(values, what, op)
    found = type(values).__name__
    if hasattr(values, "dtype"):
        try:
            return torch.as_tensor(values.copy())  # whose strides are not negative, either
        except (AttributeError, TypeError, ValueError, RuntimeError):
            found += f" of dtype {values.dtype}"
    raise TypeError(f"[{op}] expected {what} as torch.Tensor, or an array that PyTorch reads; found {found}")


def _lowered(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return modes.autocast(tensors) if torch.is_autocast_enabled("cpu") else tensors


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, *, rule: str = "plain", decay: Any = None, beta: Any = None,
    scale: float | None = None, initial_state: Any = None, heads: str = "grouped", lengths: Any = None,
    cu_seqlens: Any = None, return_state: bool = False,
) -> Any:  # fmt: skip
    """attn.linear_attention, which says what the arguments are, on tensors.

    Gradients flow to query, key, value, decay, beta and initial_state, from the output and from the state; gradients of
    gradients are not there. Autocast lowers query, key and value. A break in the graph of torch.compile.
    """
    given = (query, key, value, decay, beta, initial_state)
    if torch.overrides.has_torch_function(given):
        call: Any = linear_attention
        return torch.overrides.handle_torch_function(
            call, given, query, key, value, rule=rule, decay=decay, beta=beta, scale=scale, initial_state=initial_state,
            heads=heads, lengths=lengths, cu_seqlens=cu_seqlens, return_state=return_state,
        )  # fmt: skip
    op = "linear_attention"
    modes.refuse_tensor(op, scale=scale)
    others = (("decay", decay), ("beta", beta), ("initial_state", initial_state))
    tensors = (*_lowered((query, key, value)), *(_tensor(x, name, op) for name, x in others),
               _integers(lengths, "lengths", op), _integers(cu_seqlens, "cu_seqlens", op))  # fmt: skip
    both = flag(return_state, op, "return_state")
    output, state = _call(op, tensors, (rule, scale, heads))
    return (output, state) if both else output


def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, g: Any = None, beta: Any = None, *, scale: float | None = None,
    initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The delta rule with tokens before heads, and the arguments that flash-linear-attention and transformers use.

    Args:
        query: (b, t, hq, d_k); hq divides hv, or is a multiple of it.
        key: (b, t, hk, d_k).
        value: (b, t, hv, d_v); hk divides hv, and neighbours share a key.
        g: (b, t, hv), the logarithm of what the state keeps, or (b, t, hv, d_k), as Kimi Delta Attention has it.
        beta: (b, t, hv), the write strength; default 1.
        scale: default 1/√d_k.
        initial_state: (n, hv, d_k, d_v).
        output_final_state: whether the state is returned; else None.
        use_qk_l2norm_in_kernel: query and key become x / √(Σ x² + 1e-6) first.
        cu_seqlens: (n + 1) integers, 0 first: sequences one after the other in the one batch item.

    Returns:
        output (b, t, max(hq, hv), d_v) of query's dtype, and the state (n, hv, d_k, d_v) in float32.
    """
    op = "gated_delta_rule"
    final, unit = flag(output_final_state, op, "output_final_state"), flag(use_qk_l2norm_in_kernel, op, "use_qk_l2norm_in_kernel")
    g, beta = _tensor(g, "g", op), _tensor(beta, "beta", op)
    _are_tokens_before_heads(op, query, key, value, g, beta)
    dtype = query.dtype
    if unit:
        query, key = _unit(query), _unit(key)
        value = value.to(query.dtype)
    decay, strength = (None if x is None else x.transpose(1, 2) for x in (g, beta))
    output, state = linear_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), rule="delta", decay=decay, beta=strength,
        scale=scale, initial_state=initial_state, cu_seqlens=cu_seqlens, return_state=True,
    )  # fmt: skip
    return output.transpose(1, 2).to(dtype), state if final else None


def _are_tokens_before_heads(op: str, query: Any, key: Any, value: Any, g: Any, beta: Any) -> None:
    """What the turned tensors could not be told by."""
    if query is None or key is None or value is None:
        raise TypeError(f"[{op}] expected query, key and value; found None")
    _are_dense(op, (query, key, value, g, beta))
    ranks = query.dim(), key.dim(), value.dim()
    if ranks != (4, 4, 4):
        found = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise ValueError(f"[{op}] expected query (b, t, hq, d_k), key (b, t, hk, d_k), value (b, t, hv, d_v); found {found}")
    for name, x, wanted in (("g", g, (3, 4)), ("beta", beta, (3,))):
        if x is not None and x.dim() not in wanted:
            last = " or (b, t, hv, d_k)" if 4 in wanted else ""
            raise ValueError(f"[{op}] expected {name} (b, t, hv){last}; found {tuple(x.shape)}")
    dtypes = [x.dtype for x in (query, key, value)]
    if len(set(dtypes)) > 1 or not query.dtype.is_floating_point:
        raise TypeError(f"[{op}] expected query, key and value of one floating dtype; found {dtypes}")


def _unit(x: Tensor) -> Tensor:
    x = x if x.dtype == torch.float64 else x.float()
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def causal_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, silu: bool = False, initial_state: Tensor | None = None,
    cu_seqlens: Any = None, return_state: bool = False,
) -> Any:  # fmt: skip
    """attn.causal_convolution, which says what the arguments are, on tensors.

    Gradients flow to x, weight, bias and initial_state. Autocast lowers these. A break in the graph of torch.compile.
    """
    given = (x, weight, bias, initial_state)
    if torch.overrides.has_torch_function(given):
        call: Any = causal_convolution
        return torch.overrides.handle_torch_function(
            call, given, x, weight, bias, silu=silu, initial_state=initial_state, cu_seqlens=cu_seqlens,
            return_state=return_state,
        )  # fmt: skip
    op = "causal_convolution"
    both = flag(return_state, op, "return_state")
    output, state = _call(op, (*_lowered(given), _integers(cu_seqlens, "cu_seqlens", op)), (silu,))
    return (output, state) if both else output
