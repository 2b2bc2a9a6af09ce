"""What PyTorch's modes ask of a call: autocast, forward-mode derivatives, torch.func, modes and classes of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_unflatten

from attn._arguments import derivative_of

_C: Any = torch._C
_F: Any = torch.nn.functional
_PLAIN = {Tensor, torch.nn.Parameter}


def direct(tensors: Any) -> bool:
    """Whether a call may go to the kernels at once: they may read the tensors, and nothing follows a derivative."""
    follows = torch.is_grad_enabled()
    for tensor in tensors:  # any() would take three times as long
        if tensor is None:
            continue
        if type(tensor) not in _PLAIN or tensor.is_meta or tensor.is_nested or (follows and tensor.requires_grad):
            return False
    return not (transformed() or _C._len_torch_dispatch_stack())


def ordinary(tensors: Any) -> bool:
    """Whether the kernels may read them: CPU tensors of PyTorch's own class, and nothing watches operators."""
    if torch.compiler.is_compiling() or _C._len_torch_dispatch_stack():
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.is_meta):
            return False
    return True


def batched(gradient: Tensor) -> bool:
    """Whether it stands for several, by is_grads_batched of torch.autograd.grad: operators then run for each of them."""
    return _C._functorch.is_legacy_batchedtensor(gradient)


def refuse_batched(op: str, *gradients: Any) -> None:
    """Of what is no operator, so that PyTorch cannot run it for each of several gradients."""
    if any(gradient is not None and batched(gradient) for gradient in gradients):
        raise NotImplementedError(
            f"[{op}] expected one gradient at a time; found is_grads_batched=True, or jacobian(vectorize=True); use "
            "torch.func.vmap over torch.func.vjp, or a loop"
        )


def transformed() -> bool:
    """Whether a transform of torch.func or a level of forward-mode derivatives is active."""
    return _C._are_functorch_transforms_active() or forward_mode()


def forward_mode() -> bool:
    """Whether a level of forward-mode derivatives is active."""
    return forward_ad._current_level >= 0


def autocast(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """query, key, value and attn_mask in the lower dtype, as PyTorch's function takes them; the others as they are."""
    return (*(_lowered(tensor) for tensor in inputs[:4]), *inputs[4:])


def _lowered(tensor: Any) -> Any:
    if not isinstance(tensor, Tensor) or tensor.device.type != "cpu":
        return tensor
    low = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(torch.get_autocast_dtype("cpu")) if low else tensor


def refuse_gradient(alibi_slopes: Any) -> None:
    """Of what has none among the tensors."""
    if isinstance(alibi_slopes, Tensor) and alibi_slopes.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            "[scaled_dot_product_attention] expected alibi_slopes without requires_grad; found slopes that autograd follows, "
            "which would get no gradient; pass alibi_slopes.detach()"
        )


def followed(tensor: Any) -> str:
    """What asks for its derivative, in words; "" where nothing does."""
    return derivative_of(tensor) if isinstance(tensor, Tensor) else ""


def refuse_followed(op: str, **tensors: Any) -> None:
    """Of what gets no gradient."""
    for name, tensor in tensors.items():
        if by := followed(tensor):
            raise NotImplementedError(
                f"[{op}] expected {name} without {by}; found what autograd follows, which would get no gradient; "
                f"pass {name}.detach()"
            )


def refuse_tensor(op: str, **numbers: Any) -> None:
    """Numbers have no gradient."""
    for name, number in numbers.items():
        if by := followed(number):
            raise TypeError(f"[{op}] expected {name} as a number; found Tensor with {by}")


def refuse_tracing(op: str) -> None:
    """A tracer would keep the result of this call for all others."""
    if _C._get_tracing_state() is not None:
        raise NotImplementedError(
            f"[{op}] expected no tracing; found torch.jit.trace, or torch.onnx.export(dynamo=False), which cannot see into "
            "this call; use torch.export, or torch.onnx.export(dynamo=True)"
        )


def refuse_context_parallel(op: str) -> None:
    """Within it each rank has a part of the keys, and PyTorch's own function is one that exchanges them."""
    if getattr(_F.scaled_dot_product_attention, "__module__", "").startswith("torch.distributed"):
        raise NotImplementedError(
            f"[{op}] expected all keys in this process; found PyTorch's context_parallel, which cuts tensors over ranks and "
            "exchanges keys for PyTorch's own attention alone; use attn.distributed.attention, outside of it"
        )


def mask_of(bias: Any) -> Tensor:
    """A torch.nn.attention.bias.CausalBias, which holds no numbers, as a mask."""
    queries, keys = bias.seq_len_q, bias.seq_len_kv
    last = keys - queries if bias.variant.name == "LOWER_RIGHT" else 0
    return torch.ones(queries, keys, dtype=torch.bool).tril(last)


def refuse_forward_mode(op: str = "scaled_dot_product_attention") -> None:
    """Within a level of it."""
    if forward_mode():
        raise NotImplementedError(
            f"[{op}] expected derivatives in reverse mode; found forward mode AD "
            "(torch.autograd.forward_ad, torch.func.jvp, jacfwd, hessian), which is not there; use torch.autograd.grad, "
            "torch.func.grad, vjp or jacrev"
        )


def one_by_one(call: Any) -> Any:
    """A rule for vmap: the items of the mapped dimension, one after the other."""

    def rule(info: Any, in_dims: Any, *args: Any, **numbers: Any) -> Any:
        flat, structure = tree_flatten(args)
        dims = tree_flatten(in_dims)[0]

        def item(i: int) -> Any:
            own = [x if at is None else x.select(at, i) for x, at in zip(flat, dims)]
            return call(*tree_unflatten(own, structure), **numbers)

        if info.batch_size == 0:
            raise NotImplementedError("[torch.vmap] expected a mapped dimension of one item at least; found none")
        found = [item(i) for i in range(info.batch_size)]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(torch.stack(each) for each in zip(*found)), (0,) * len(found[0])

    return rule
