"""scaled_dot_product_attention: PyTorch's signature and meaning, and this library's options, for any framework."""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, NUMPY, TORCH, asked_for, dtype_name, framework, listed, rows_of, take, without_gradient
from attn._options import given, typed

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import torch

    from attn._random import Generator
    from attn._types import A, Array, DType, Rows


@typed
def scaled_dot_product_attention(
    query: A, key: A, value: A, attn_mask: Array | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, *, sinks: Array | None = None,
    relative_bias: Array | None = None, return_lse: bool = False, return_weights: Rows = False,
    generator: Generator | torch.Generator | None = None, **options: Any,
) -> A | tuple[A, ...]:  # fmt: skip
    """softmax(mask(query · keyᵀ · scale)) · value, by fused kernels: memory linear in the number of tokens.

    The first eight arguments are those of torch.nn.functional.scaled_dot_product_attention and mean the same. A
    fully masked query returns zeros. Arrays of NumPy (bfloat16 by ml_dtypes), PyTorch, JAX, or any other with
    DLPack, in the CPU's memory; the result is of query's framework. Nothing is copied, except an input whose last
    dimension is not contiguous, or whose leading dimensions beyond (b, h) no single stride can walk. With PyTorch's
    tensors gradients flow (attn.torch). The GIL is released.

    Options that are not given are not there, unless a default is named.

    Args:
        query: (…, h, tq, d), float32, bfloat16, float16; float64 by the plain reference, which holds the scores.
        key: (…, h, tk, d).
        value: (…, h, tk, dv).
        attn_mask: broadcastable to (…, h, tq, tk): boolean, True takes part; or floating, added to the scores.
        dropout_p: probability that a weight is dropped, drawn by Philox from one number of `generator`
            (torch's own generator for torch's tensors): the same for any number of threads.
        is_causal: query i sees keys up to i; together with every other mask.
        scale: default 1/√d; 0, or of magnitude at least 2^-100, and softcap / 2^110 beside a softcap.
        enable_gqa: query's heads may be a multiple of key's and value's.
        window: (left, right): query i sees keys from i - left to i + right; -1 is no limit.
        softcap: scores become cap · tanh(scores / cap); from 2^-64 to 2^64, and 0, the default, is none.
        alibi_slopes: (h): adds -slope · |i - j|.
        sinks: (h): one more score a head, which takes weight but has no value.
        relative_bias: (buckets, h): a learned number for each head and bucket of distances, as T5's, added to the scores.
        relative_bidirectional: by default half of the buckets are for keys behind a query; else those share bucket 0.
        relative_max_distance: from here on, 128 by default, all distances are in the last bucket.
        key_lengths: (b) integers: batch item b has this many keys, the rest is padding.
        cu_seqlens_q: (n + 1) integers, 0 first: sequence s is queries cu_seqlens_q[s] to cu_seqlens_q[s + 1] - 1 of the
            one batch item, and sees its own keys alone. Causal and window masks count within the sequence.
        cu_seqlens_k: the same for the keys; default cu_seqlens_q.
        block_mask: boolean, broadcastable to (…, h, ⌈tq / bq⌉, ⌈tk / bk⌉): a block that is False costs no time.
        block_size: (bq, bk), or one number for both; default 64.
        causal_alignment: "top_left", the default, or "bottom_right": query i stands at key i + tk - tq (diagonal, window,
            ALiBi), where tk is the item's own length under key_lengths.
        precision: what products of float32 may be made of, by PyTorch's names: "highest", the default, "high", "medium".
        score_function: an attn.ScoreFunction: changes scores inside the kernels, after softcap, before biases and masks.
        query_offset: for a piece of a longer sequence: the position of its first query, or (b) integers, one for each
            batch item. Causal masks, windows, biases by distance, dropout and score functions then see positions.
        key_offset: the same for the first key; 0 if only query_offset is given.
        output_dtype: "float32" for results of 16-bit arrays that attn.merge will put together.
        return_lse: also return log Σ exp of the scores, (…, h, tq).
        return_weights: True, or the numbers of some rows: also return the weights before dropout, (…, h, rows, tk).
        generator: an attn.Generator; default the one that attn.manual_seed seeds.

    Returns:
        output (…, h, tq, dv), or a tuple (output, lse, weights) of what was asked for.

    Raises:
        TypeError: what is no array, or has a dtype that does not fit.
        ValueError: a shape or an option that does not fit.
    """
    kind = framework(query)
    if kind == TORCH:
        import attn.torch

        of_torch: Any = attn.torch.scaled_dot_product_attention
        return of_torch(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, sinks=sinks, relative_bias=relative_bias,
            return_lse=return_lse, return_weights=return_weights, generator=generator, **options,
        )  # fmt: skip
    for array in (key, value, attn_mask, sinks, relative_bias, options.get("alibi_slopes")):
        without_gradient(array, "scaled_dot_product_attention", "pass a query of PyTorch, or .detach()")
    options |= {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    made = _attn.Options(kind, given("scaled_dot_product_attention", options, kind, generator))
    weights = rows_of(return_weights)
    inputs = query, key, value, attn_mask, sinks, relative_bias
    result = _attn.forward(inputs, made, enable_gqa, return_lse, weights, kind)
    return asked_for(result, query, kind, return_lse, weights)


def merge(outputs: Sequence[A], lses: Sequence[A], dtype: DType | None = None) -> tuple[A, A]:
    """One result of several: of the same queries over pieces of the keys that do not overlap.

    outputs are arrays (…, dv) of one dtype and shape, lses (…) what return_lse gave with them. The parts are weighed by
    exp(lse) and summed in float64; where an lse is -inf, its part counts for nothing. Sinks belong to one piece alone.
    No gradient flows.

    Returns:
        output (…, dv) of `dtype`, by default that of the parts, and lse (…).
    """
    hint = "merge under torch.no_grad(), or pass .detach()"
    parts, sums = (
        [without_gradient(array, "merge", hint) for array in listed(arrays, "merge", f"{what} as a list of arrays")]
        for arrays, what in ((outputs, "outputs"), (lses, "lses"))
    )
    kind = framework(parts[0]) if parts else NUMPY
    result = _attn.merge(parts, sums, dtype_name(dtype), kind)
    return tuple(take(each, parts[0]) for each in result) if kind == DLPACK else result
