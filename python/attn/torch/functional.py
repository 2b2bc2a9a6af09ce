"""scaled_dot_product_attention for PyTorch's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.overrides
from torch import Tensor

from attn import _attn
from attn._arguments import TORCH, asked_for, flag, refuse_parts, rows_of, unmasked
from attn._options import given, typed
from attn.torch import modes, operator

if TYPE_CHECKING:
    from attn._random import Generator
    from attn._types import Array, Rows


_OP = "scaled_dot_product_attention"  # in messages


@typed
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *, sinks: Array | None = None,
    relative_bias: Array | None = None, return_lse: bool = False, return_weights: Rows = False,
    generator: Generator | torch.Generator | None = None, **options: Any,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """attn.scaled_dot_product_attention, which says what the arguments are, on tensors.

    Gradients flow to query, key, value, a float attn_mask, sinks and relative_bias; lse and weights have none. dropout is
    drawn from torch's own generator (torch.manual_seed), or from `generator`, a torch.Generator. Under torch.compile one
    operator, torch.ops.attn.attention, without a graph break; keep a score_function alive there. Gradients of gradients
    are not there.
    """
    if type(attn_mask).__name__ == "CausalBias":
        attn_mask = modes.mask_of(attn_mask)
    inputs = (query, key, value, attn_mask, sinks, relative_bias)
    if torch.overrides.has_torch_function(inputs):
        call: Any = scaled_dot_product_attention
        return torch.overrides.handle_torch_function(
            call, inputs, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, sinks=sinks,
            relative_bias=relative_bias, return_lse=return_lse, return_weights=return_weights, generator=generator, **options,
        )  # fmt: skip
    traced = torch.compiler.is_compiling()
    if not traced:
        modes.refuse_tracing(_OP)
        modes.refuse_context_parallel(_OP)
        modes.refuse_tensor(_OP, scale=scale, softcap=options.get("softcap"), dropout_p=dropout_p)
    if torch.is_autocast_enabled("cpu"):
        inputs = modes.autocast(inputs)
    options |= {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    made = given("scaled_dot_product_attention", options, TORCH, generator)
    tensors = [*inputs]
    for name in operator.TENSOR_NAMES & made.keys():
        made[name] = _tensor(made[name], name)
        tensors.append(made[name])
    if traced or not modes.direct(tensors):
        if not traced:
            refuse_parts(*inputs)
        _are_tensors(inputs)
        for name, told in (("enable_gqa", enable_gqa), ("is_causal", is_causal)):
            if not isinstance(told, (bool, torch.SymBool)):
                raise TypeError(f"[{_OP}] expected {name} as a bool; found {type(told).__name__}")
        modes.refuse_gradient(made.get("alibi_slopes"))
        if return_weights is not False:
            raise NotImplementedError(_NO_WEIGHTS)
        both = return_lse if traced else flag(return_lse, _OP, "return_lse")
        output, lse = _with_gradients(inputs, enable_gqa, made, options.get("score_function"), traced)
        return (output, lse) if both else output
    weights, bare = rows_of(return_weights), operator.bare(inputs)
    result = _attn.forward(bare, operator.options(made), enable_gqa, return_lse, weights, TORCH)
    return asked_for(result, query, TORCH, return_lse, weights)


def _tensor(values: Any, what: str) -> Tensor | None:
    if values is None or isinstance(values, Tensor):
        return values
    unmasked(values, what, _OP)
    for each in values if isinstance(values, list | tuple) else ():
        modes.refuse_followed(_OP, **{what: each})
    try:
        return torch.as_tensor(values).clone()  # which keeps its numbers until the gradient asks for them
    except (TypeError, ValueError, RuntimeError):
        found = type(values).__name__
        raise TypeError(f"[scaled_dot_product_attention] expected {what} as torch.Tensor; found {found}") from None


_NO_WEIGHTS = (
    "[scaled_dot_product_attention] expected return_weights without gradients, and not under torch.compile, torch.func or "
    "a tensor of another class; found one of them; use torch.no_grad(), and call again without return_weights for the "
    "gradients"
)


_INPUTS = ("query", "key", "value", "attn_mask", "sinks", "relative_bias")


def _are_tensors(inputs: tuple[Any, ...]) -> None:
    for at, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            if tensor is None and at > 2:
                continue
            found = type(tensor).__name__
            raise TypeError(f"[scaled_dot_product_attention] expected {_INPUTS[at]} as torch.Tensor; found {found}")
        if tensor.is_nested:
            raise NotImplementedError(
                "[scaled_dot_product_attention] expected no nested tensors; found one; put the sequences one after the "
                "other, with cu_seqlens_q and cu_seqlens_k"
            )


def _with_gradients(inputs: tuple[Any, ...], grouped: bool, made: dict[str, Any], keep: Any, traced: bool) -> Any:
    query, key, value, mask, sinks, relative_bias = inputs
    if traced:
        modes.refuse_forward_mode()  # a compiler would lose the derivative
    leading = None
    if not _in_order(query, key, value, grouped):
        masks = mask, made.get("block_mask")
        query, key, value, (mask, made["block_mask"]), leading = _four(query, key, value, masks, grouped)
    others = [made.pop(name, None) for name in operator.TENSORS]
    given = (query, key, value, mask, sinks, relative_bias, *others)
    if traced and not modes.transformed():
        output, lse = operator.called(given, made)
    else:
        call: Any = operator.Plain
        if modes.transformed():
            call = operator.Attention if traced or not modes.forward_mode() else operator.Dual
        output, lse = call.apply(*given, made, keep)
    if leading is None:
        return output, lse
    return output.view(*leading, *output.shape[2:]), lse.view(*leading, *lse.shape[2:])


def _in_order(query: Tensor, key: Tensor, value: Tensor, grouped: bool) -> bool:
    q, k, v = query.shape, key.shape, value.shape
    return len(q) == len(k) == len(v) == 4 and q[0] == k[0] == v[0] and k[1] == v[1] and (grouped or q[1] == k[1])


def _four(query: Tensor, key: Tensor, value: Tensor, masks: tuple[Any, ...], grouped: bool) -> tuple[Any, ...]:
    """(b, h, t, d) of any leading dimensions that broadcast, by operations that autograd knows."""
    ranks = query.dim(), key.dim(), value.dim()
    if min(ranks) < 2:
        raise ValueError(f"[scaled_dot_product_attention] expected at least (t, d); found {_shapes(query, key, value)}")
    rank = max(*ranks, 4)
    q, k, v = (t[(None,) * (rank - t.dim())] for t in (query, key, value))
    try:
        batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
        if grouped and k.shape[-3] == v.shape[-3]:
            of_q, of_kv = (*batch, q.shape[-3]), (*batch, k.shape[-3])
        else:
            of_q = of_kv = (*batch, *torch.broadcast_shapes(q.shape[-3:-2], k.shape[-3:-2], v.shape[-3:-2]))
    except RuntimeError as error:
        raise ValueError(
            "[scaled_dot_product_attention] expected leading dimensions that broadcast (enable_gqa=True for grouped "
            f"heads); found {_shapes(query, key, value)}"
        ) from error
    every = _product(batch)  # not -1, which an empty tensor leaves open
    q, k, v = (
        t.expand(*lead, *t.shape[-2:]).reshape(every, lead[-1], *t.shape[-2:])
        for t, lead in ((q, of_q), (k, of_kv), (v, of_kv))
    )
    folded = [
        mask[(None,) * (rank - mask.dim())].expand(*batch, *mask.shape[-3:]).reshape(every, *mask.shape[-3:])
        if mask is not None and mask.dim() > 3 and len(batch) > 1
        else mask
        for mask in masks
    ]
    return q, k, v, folded, of_q[len(of_q) - (max(ranks) - 2) :]


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _shapes(query: Tensor, key: Tensor, value: Tensor) -> str:
    return f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
