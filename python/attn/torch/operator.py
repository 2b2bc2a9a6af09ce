"""The operator and its gradient for PyTorch: as autograd, torch.func, torch.compile and export know them.

Ordinary tensors go to the kernels under a torch.autograd.Function, which costs less than an operator of Python's. What
stands for a tensor (a fake, a meta tensor, a subclass) or watches operators (a mode of dispatch) meets the operators
torch.ops.attn.attention and attention_backward.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack
from torch.utils.flop_counter import register_flop_formula

from attn import _attn
from attn._arguments import TORCH
from attn._options import OPTIONS
from attn.torch.modes import batched, one_by_one, ordinary, refuse_context_parallel, refuse_forward_mode, transformed

# query (b, hq, tq, d), key (b, hkv, tk, d), value (b, hkv, tk, dv): output (b, hq, tq, dv) and lse (b, hq, tq). Gradients
# are those of INPUTS. An operator of PyTorch with gradients takes tensors by position, and numbers by name.
INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor? sinks, Tensor? relative_bias"
INPUT_COUNT = 6
TENSORS = (*(name for name in OPTIONS if OPTIONS[name].type == "Tensor?"), "dropout_key")
TENSOR_NAMES = frozenset(TENSORS)
TENSOR_COUNT = INPUT_COUNT + len(TENSORS)
_TENSORS = ", ".join(f"Tensor? {name}" for name in TENSORS)
_NUMBERS = ", ".join(f"{each.type} {name}={each.default!r}" for name, each in OPTIONS.items() if name not in TENSOR_NAMES)
FORWARD = f"({INPUTS}, {_TENSORS}, *, {_NUMBERS}) -> (Tensor, Tensor)"
BACKWARD = (
    f"(Tensor d_output, {INPUTS}, {_TENSORS}, Tensor output, Tensor lse, *, {_NUMBERS}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def options(given: dict[str, Any]) -> Any:
    """The library's."""
    if not EXCHANGE:
        given = {name: _capsule(value) if isinstance(value, Tensor) else value for name, value in given.items()}
    return _attn.Options(TORCH, given)


def _options(tensors: Any, numbers: dict[str, Any]) -> Any:
    return options({**dict(zip(TENSORS, tensors)), **numbers})


_api = getattr(Tensor, "__dlpack_c_exchange_api__", None)
# PyTorch leaves graphs that live at the interpreter's end, and their options with them: that is no leak of ours.
_attn.set_leak_warnings(False)
EXCHANGE = _api is not None and _attn.use_exchange(Tensor, _api)


def bare(tensors: tuple[Any, ...]) -> Any:
    """As the C++ side takes them fastest: as they are, or before PyTorch 2.10 as DLPack capsules."""
    return tensors if EXCHANGE else tuple(map(_capsule, tensors))


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


# --- the kernels ------------------------------------------------------------------------------------------------------

def _forward(tensors: Any, numbers: dict[str, Any]) -> Any:
    """Of INPUTS and TENSORS: output and lse."""
    given = _options(tensors[INPUT_COUNT:], numbers)
    return _attn.forward(bare((*tensors[:INPUT_COUNT],)), given, True, True, False, TORCH)[:2]


def _backward(d_output: Tensor, tensors: Any, numbers: dict[str, Any]) -> Any:
    """Gradients of INPUTS, None where there is none. tensors are INPUTS, TENSORS, and forward's results."""
    given = _options(tensors[INPUT_COUNT:TENSOR_COUNT], numbers)
    d, output, lse = bare((d_output, *tensors[TENSOR_COUNT:]))
    return _attn.backward(d, bare((*tensors[:INPUT_COUNT],)), output, lse, given, TORCH)


def _gradients(d_output: Tensor, *given: Any) -> Any:
    *tensors, numbers = given
    if ordinary((d_output, *tensors)) and not batched(d_output):
        return _backward(d_output, tensors, numbers)
    return attention_backward(d_output, *tensors, **numbers)


def has_gradient(tensor: Optional[Tensor]) -> bool:
    return tensor is not None and tensor.dtype.is_floating_point


# --- for torch.compile and torch.export, and whatever else meets operators ----------------------------------------------

@torch.library.custom_op("attn::attention", mutates_args=(), device_types="cpu", schema=FORWARD)
def attention(*tensors: Any, **numbers: Any) -> tuple[Tensor, Tensor]:
    """Row-major, as the fake says; the library's own result may have tokens before heads, as query has."""
    refuse_forward_mode()  # torch.func would lose the derivative
    refuse_context_parallel("scaled_dot_product_attention")
    output, lse = _forward(tensors, numbers)
    return output.contiguous(), lse


def called(tensors: Any, numbers: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The operator, which is strict about numbers."""
    for name in numbers.keys() & {"dropout_p", "softcap", "scale"}:
        if isinstance(numbers[name], Tensor) and numbers[name].requires_grad:
            raise TypeError(f"[scaled_dot_product_attention] expected {name} as a number; found Tensor with requires_grad")
        if isinstance(numbers[name], str):
            raise TypeError(f"[scaled_dot_product_attention] expected {name} as a number; found str")
        numbers[name] = None if numbers[name] is None else float(numbers[name])
    return attention(*tensors, **numbers)


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *tensors: Any, **numbers: Any) -> tuple[Tensor, Tensor]:
    _fits(query, key, value, tensors)
    b, h, tq, _ = query.shape
    lse = torch.float64 if query.dtype == torch.float64 else torch.float32
    named = numbers.get("output_dtype")
    dtype = query.dtype if named is None else getattr(torch, named)
    return query.new_empty((b, h, tq, value.shape[-1]), dtype=dtype), query.new_empty((b, h, tq), dtype=lse)


def _fits(query: Tensor, key: Tensor, value: Tensor, tensors: Any) -> None:
    """What the kernels would refuse of query, key and value, where there are no numbers yet."""
    devices = {tensor.device.type for tensor in (query, key, value, *tensors) if tensor is not None}
    if len(devices) > 1 or not devices <= {"cpu", "meta"}:
        raise NotImplementedError(
            "[scaled_dot_product_attention] expected all tensors on the CPU, or all on the meta device; found "
            f"{' and '.join(sorted(devices))}; copy them with .cpu()"
        )
    dtypes = [tensor.dtype for tensor in (query, key, value)]
    if len(set(dtypes)) > 1 or not query.dtype.is_floating_point:
        raise RuntimeError(
            f"[scaled_dot_product_attention] expected query, key and value of one floating dtype; found {dtypes}"
        )
    (b, _, _, d), (bk, hk, tk, dk), (bv, hv, tv, _) = query.shape, key.shape, value.shape
    for alike in (b == bk, b == bv, hk == hv, tk == tv, d == dk):
        torch._check_value(
            alike,
            lambda: "[scaled_dot_product_attention] expected query (b, h, tq, d), key (b, hkv, tk, d), value (b, hkv, tk, "
            f"dv); found {tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}",
        )


@torch.library.custom_op("attn::attention_backward", mutates_args=(), device_types="cpu", schema=BACKWARD)
def attention_backward(d_output: Tensor, *tensors: Any, **numbers: Any) -> tuple[Tensor, ...]:
    """Row-major. An operator returns tensors, never None: an absent gradient is an empty one."""
    gradients = _backward(d_output, tensors, numbers)
    return tuple(d_output.new_empty(0) if d is None else d.contiguous() for d in gradients)


@attention_backward.register_fake
def _(d_output: Tensor, *tensors: Any, **numbers: Any) -> tuple[Tensor, ...]:
    return tuple(
        tensor.new_empty(tensor.shape) if has_gradient(tensor) else d_output.new_empty(0)
        for tensor in tensors[:INPUT_COUNT]
    )


def _scores(query: Tensor, key: Tensor, tensors: Any) -> int:
    """How many there are, masked ones too, as PyTorch counts its own attention: of packed sequences those within each."""
    packed = dict(zip(TENSORS, tensors))
    starts_q, starts_k = (packed[name] for name in ("cu_seqlens_q", "cu_seqlens_k"))
    pairs = query.shape[-2] * key.shape[-2]
    if starts_q is not None and not starts_q.is_meta:
        starts_k = starts_q if starts_k is None else starts_k
        pairs = int((starts_q.diff() * starts_k.diff()).sum())
    return query.shape[0] * query.shape[1] * pairs


@register_flop_formula(torch.ops.attn.attention, get_raw=True)
def _(query: Tensor, key: Tensor, value: Tensor, *tensors: Any, out_val: Any, **numbers: Any) -> int:
    """Of the two products, for torch.utils.flop_counter."""
    both = query.shape[-1] + value.shape[-1]
    return 2 * _scores(query, key, tensors[INPUT_COUNT - 3 :]) * both


@register_flop_formula(torch.ops.attn.attention_backward, get_raw=True)
def _(d_output: Tensor, query: Tensor, key: Tensor, value: Tensor, *tensors: Any, out_val: Any, **numbers: Any) -> int:
    """Of the scores again, and of the gradients of weights, query, key and value."""
    both = 3 * query.shape[-1] + 2 * value.shape[-1]
    return 2 * _scores(query, key, tensors[INPUT_COUNT - 3 :]) * both


# --- autograd and torch.func ------------------------------------------------------------------------------------------

class Attention(torch.autograd.Function):
    """(*INPUTS, *TENSORS, NUMBERS by name, what to keep alive): output and lse."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        *tensors, numbers, _ = args
        return _forward(tensors, numbers) if ordinary(tensors) else called(tensors, numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.numbers, ctx.keep = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, d_output: Optional[Tensor], _: Any) -> tuple[Any, ...]:
        if d_output is None:
            return (None,) * (TENSOR_COUNT + 2)
        saved = ctx.saved_tensors  # once: checkpointing computes them anew for each time that they are asked for
        # With create_graph=True, and within transforms, the gradients say when asked for theirs that there are none.
        call: Any = Gradient.apply if torch.is_grad_enabled() or transformed() else _gradients
        gradients = call(d_output, *saved, ctx.numbers)
        of_inputs = (d if has_gradient(tensor) else None for d, tensor in zip(gradients, saved[:INPUT_COUNT]))
        return (*of_inputs, *(None,) * (TENSOR_COUNT - INPUT_COUNT + 2))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(Attention.apply)(info, in_dims, *args)


class Dual(Attention):
    """The same within a level of forward mode. Elsewhere torch.compile takes no Function that has a jvp."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode()


class Plain(torch.autograd.Function):
    """The same where no transform is active: what torch.func needs takes PyTorch 20 us a call."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        output = Attention.forward(*args)
        Attention.setup_context(ctx, args, output)
        return output

    backward = staticmethod(Attention.backward)


class Gradient(torch.autograd.Function):
    """(d_output, *INPUTS, *TENSORS, output, lse, NUMBERS by name): gradients of INPUTS, empty where there is none."""

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        return tuple(args[0].new_empty(0) if d is None else d for d in _gradients(*args))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            "[scaled_dot_product_attention] expected derivatives of first order; found a gradient that is differentiated "
            "twice, which is not there; use torch.nn.functional.scaled_dot_product_attention under "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(Gradient.apply)(info, in_dims, *args)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    Attention.setup_context(ctx, (*inputs, keyword_only_inputs, None), output)


def _gradients_of_operator(ctx: Any, d_output: Optional[Tensor], _: Any) -> tuple[Any, ...]:
    return Attention.backward(ctx, d_output, _)[:TENSOR_COUNT]


attention.register_autograd(_gradients_of_operator, setup_context=_setup_context)
attention.register_vmap(one_by_one(attention))
attention_backward.register_vmap(one_by_one(attention_backward))
