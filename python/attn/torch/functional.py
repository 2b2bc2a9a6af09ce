"""scaled_dot_product_attention for PyTorch's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, overload

import torch
import torch.overrides
from torch import Tensor

from attn import _attn
from attn._arguments import TORCH, addresses, asked_for, dtype_name, int64, pair_of, rows_of, window_of
from attn.scores import ScoreFunction
from attn.torch import modes, operator

if TYPE_CHECKING:
    from typing import Unpack

    from attn._types import DType, Integers, Rows, TensorOptions

if TYPE_CHECKING:

    @overload
    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        return_lse: Literal[False] = False, return_weights: Literal[False] = False, **options: Unpack[TensorOptions],
    ) -> Tensor: ...  # fmt: skip

    @overload
    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        return_lse: Literal[True], return_weights: Rows = False, **options: Unpack[TensorOptions],
    ) -> tuple[Tensor, ...]: ...  # fmt: skip

    @overload
    def scaled_dot_product_attention(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
        return_lse: bool = False, return_weights: Literal[True] | Integers, **options: Unpack[TensorOptions],
    ) -> tuple[Tensor, ...]: ...  # fmt: skip


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: tuple[int, int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    relative_bias: Tensor | None = None,
    relative_bidirectional: bool = True,
    relative_max_distance: int = 128,
    key_lengths: Integers | None = None,
    cu_seqlens_q: Integers | None = None,
    cu_seqlens_k: Integers | None = None,
    block_mask: Tensor | None = None,
    block_size: int | tuple[int, int] = 64,
    causal_alignment: str = "top_left",
    precision: str = "highest",
    score_function: ScoreFunction | None = None,
    query_offset: int | Integers | None = None,
    key_offset: int | Integers | None = None,
    output_dtype: DType | None = None,
    return_lse: bool = False,
    return_weights: Rows = False,
    generator: torch.Generator | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """attn.scaled_dot_product_attention, which says what the arguments are, on tensors.

    Gradients flow to query, key, value, a float attn_mask, sinks and relative_bias; lse and weights have none. dropout is
    drawn from torch's own generator (torch.manual_seed), or from `generator`, a torch.Generator. Under torch.compile one operator,
    torch.ops.attn.attention, without a graph break; keep a score_function alive there. Gradients of gradients are not
    there.
    """
    inputs = (query, key, value, attn_mask, sinks, relative_bias)
    if torch.overrides.has_torch_function(inputs):
        given = {name: value for name, value in locals().items() if name != "inputs"}
        return torch.overrides.handle_torch_function(cast(Any, scaled_dot_product_attention), inputs, **given)
    if torch.is_autocast_enabled("cpu"):
        inputs = modes.autocast(inputs)
    dropout_key = None
    if dropout_p > 0:
        dropout_key = torch.randint(-(2**63), 2**63 - 1, (), generator=generator)
    left, right = window_of(window)
    starts_q = _int64(cu_seqlens_q, "cu_seqlens_q")
    block_query, block_key = pair_of(block_size)
    others = (
        _tensor(alibi_slopes, "alibi_slopes"),
        _int64(key_lengths, "key_lengths"),
        starts_q,
        starts_q if cu_seqlens_k is None else _int64(cu_seqlens_k, "cu_seqlens_k"),
        _tensor(block_mask, "block_mask"),
        dropout_key,
        _int64(query_offset, "query_offset"),
        _int64(key_offset, "key_offset"),
    )
    numbers = {
        "block_query": block_query,
        "block_key": block_key,
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
        "window_left": left,
        "window_right": right,
        "softcap": softcap,
        "causal_alignment": causal_alignment,
        "precision": precision,
        "score_function": addresses(score_function),
        "output_dtype": dtype_name(output_dtype),
        "relative_bidirectional": relative_bidirectional,
        "relative_max_distance": relative_max_distance,
    }
    tensors = (*inputs, *others)
    traced = torch.compiler.is_compiling()
    if traced or not modes.direct(tensors):
        _are_tensors(inputs)
        modes.refuse_gradient(alibi_slopes)
        if return_weights is not False:
            raise NotImplementedError(_NO_WEIGHTS)
        output, lse = _with_gradients(tensors, enable_gqa, numbers, score_function, traced)
        return (output, lse) if return_lse else output
    weights = rows_of(return_weights)
    given, call = operator.options(others, numbers), cast(Any, _attn.forward)
    result = call(*operator.bare(tensors[:operator.INPUT_COUNT]), given, enable_gqa, return_lse, weights, TORCH)
    return asked_for(result, query, TORCH, return_lse, weights)


def _int64(values: Any, what: str) -> Tensor | None:
    if type(values) is int and abs(values) < 2**63:
        return torch.tensor(values)  # by way of NumPy would break torch.compile's graph
    return values if values is None or type(values) is Tensor else torch.as_tensor(int64(values, what))


def _tensor(values: Any, what: str) -> Tensor | None:
    if values is None or isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        found = type(values).__name__
        raise TypeError(f"[scaled_dot_product_attention] expected {what} as torch.Tensor; found {found}") from None


_NO_WEIGHTS = (
    "[scaled_dot_product_attention] expected return_weights without gradients, and not under torch.compile, torch.func or "
    "a tensor of another class; found one of them; use torch.no_grad(), and call again without return_weights for the "
    "gradients"
)


def _are_tensors(inputs: tuple[Any, ...]) -> None:
    for at, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            if tensor is None and at > 2:
                continue
            raise TypeError(f"[scaled_dot_product_attention] expected torch.Tensor; found {type(tensor).__name__}")
        if tensor.is_nested:
            raise NotImplementedError(
                "[scaled_dot_product_attention] expected no nested tensors; found one; put the sequences one after the "
                "other, with cu_seqlens_q and cu_seqlens_k"
            )


def _with_gradients(tensors: tuple[Any, ...], grouped: bool, numbers: dict[str, Any], keep: Any, traced: bool) -> Any:
    query, key, value, mask, *others = tensors
    if traced:
        modes.refuse_forward_mode()  # a compiler would lose the derivative
    leading = None
    if not _in_order(query, key, value, grouped):
        query, key, value, (mask, others[6]), leading = _four(query, key, value, (mask, others[6]), grouped)
    given = (query, key, value, mask, *others)
    if traced and not modes.transformed():
        output, lse = operator.called(given, numbers)
    else:
        output, lse = operator.Attention.apply(*given, numbers, keep)
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
    q, k, v = (
        t.expand(*lead, *t.shape[-2:]).reshape(-1, *lead[-1:], *t.shape[-2:])
        if t.numel()
        else t.new_empty(*lead, *t.shape[-2:]).reshape(_product(lead[:-1]), lead[-1], *t.shape[-2:])
        for t, lead in ((q, of_q), (k, of_kv), (v, of_kv))
    )
    folded = [
        mask[(None,) * (rank - mask.dim())].expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
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
