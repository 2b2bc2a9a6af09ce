"""scaled_dot_product_attention: PyTorch's signature and meaning, and this library's options, for any framework."""

from __future__ import annotations

from attn import _attn

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from typing import Any

    from attn.scores import ScoreFunction

NUMPY, TORCH, DLPACK = range(3)  # Framework of src/arrays.hpp
NO_WINDOW = -1, -1


def framework(array: Any) -> int:
    """Whose array it is: what it gets as a result."""
    module = type(array).__module__
    if module == "numpy":
        return NUMPY
    if module == "torch" or module.startswith("torch."):
        return TORCH
    return DLPACK if hasattr(array, "__array_namespace__") else _by_class(array)


def _by_class(array: Any) -> int:
    return TORCH if any(base.__module__ == "torch" for base in type(array).__mro__) else NUMPY


def take(result: Any, like: Any) -> Any:
    """A result of framework DLPACK as an array of `like`'s framework."""
    return None if result is None else like.__array_namespace__().from_dlpack(result)


def int64(values: Any) -> Any:
    """Lengths and row numbers: an int64 array as it is; a list, or other integers, converted."""
    if values is None or str(getattr(values, "dtype", "")) in ("int64", "torch.int64"):
        return values
    import numpy

    array = numpy.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"[scaled_dot_product_attention] expected integers; found dtype {array.dtype}")
    return array.astype(numpy.int64)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: tuple[int, int] | None = None,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    sinks: Any = None,
    key_lengths: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    block_mask: Any = None,
    block_size: int | tuple[int, int] = 64,
    causal_alignment: str = "top_left",
    precision: str = "highest",
    score_function: ScoreFunction | None = None,
    return_lse: bool = False,
    return_weights: Any = False,
    generator: Any = None,
) -> Any:
    """softmax(mask(query · keyᵀ · scale)) · value, by fused kernels: memory linear in the number of tokens.

    The first eight arguments are those of torch.nn.functional.scaled_dot_product_attention and mean the same; a
    query that may see no key gets zeros. Arrays of NumPy (bfloat16 by ml_dtypes), PyTorch, JAX, or any other with
    DLPack, in the CPU's memory; the result is of query's framework. Nothing is copied, except an input whose last
    dimension is not contiguous, or whose leading dimensions beyond (b, h) no single stride can walk. With PyTorch's
    tensors gradients flow (attn.torch). The GIL is released.

    Args:
        query: (…, h, tq, d), float32, bfloat16, float16; float64 by the plain reference, which holds the scores.
        key: (…, h, tk, d).
        value: (…, h, tk, dv).
        attn_mask: broadcastable to (…, h, tq, tk): boolean, True takes part; or floating, added to the scores.
        dropout_p: probability that a weight is dropped, drawn by Philox from one number of `generator`
            (torch's own generator for torch's tensors): the same for any number of threads.
        is_causal: query i sees keys up to i; together with every other mask.
        scale: default 1/√d.
        enable_gqa: query's heads may be a multiple of key's and value's.
        window: (left, right): query i sees keys from i - left to i + right; -1 is no limit.
        softcap: scores become cap · tanh(scores / cap); 0 is none.
        alibi_slopes: (h): adds -slope · |i - j|.
        sinks: (h): one more score a head, which takes weight but has no value.
        key_lengths: (b) integers: batch item b has this many keys, the rest is padding.
        cu_seqlens_q: (n + 1) integers, 0 first: sequence s is queries cu_seqlens_q[s] to cu_seqlens_q[s + 1] - 1 of the
            one batch item, and sees its own keys alone. Causal and window masks count within the sequence.
        cu_seqlens_k: the same for the keys; default cu_seqlens_q.
        block_mask: boolean, broadcastable to (…, h, ⌈tq / bq⌉, ⌈tk / bk⌉): a block that is False costs no time.
        block_size: (bq, bk), or one number for both.
        causal_alignment: "top_left", or "bottom_right": query i stands at key i + tk - tq (diagonal, window, ALiBi),
            where tk is the item's own length under key_lengths.
        precision: what products of float32 may be made of, by PyTorch's names: "highest", "high", "medium".
        score_function: an attn.ScoreFunction: changes scores inside the kernels, after softcap, before biases and masks.
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
        import attn.torch as of_torch

        return of_torch.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa,
            window=window, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks, key_lengths=key_lengths,
            cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, block_mask=block_mask, block_size=block_size,
            causal_alignment=causal_alignment, precision=precision, score_function=score_function,
            return_lse=return_lse, return_weights=return_weights, generator=generator,
        )  # fmt: skip
    dropout_key = _dropout_key(generator) if dropout_p > 0 else None
    left, right = NO_WINDOW if window is None else window_of(window)
    weights, rows = rows_of(return_weights)
    starts_q = int64(cu_seqlens_q)
    starts_k = starts_q if cu_seqlens_k is None else int64(cu_seqlens_k)
    block_query, block_key = pair_of(block_size)
    result = _attn.forward(
        query, key, value, attn_mask, sinks, alibi_slopes, int64(key_lengths), starts_q, starts_k, block_mask,
        dropout_key, dropout_p, is_causal, scale, left, right, block_query, block_key, softcap, causal_alignment, precision, addresses(score_function), enable_gqa, return_lse, weights,
        rows, kind,
    )  # fmt: skip
    return asked_for(result, query, kind, return_lse, weights)


def asked_for(result: Any, query: Any, kind: int, return_lse: bool, weights: bool) -> Any:
    """The output, or a tuple of it and what was asked for, as arrays of query's framework."""
    output, lse, some = (take(each, query) for each in result) if kind == DLPACK else result
    if not (return_lse or weights):
        return output
    return (output, *([lse] if return_lse else []), *([some] if weights else []))


def addresses(score_function: ScoreFunction | None) -> Any:
    if score_function is None:
        return None
    try:
        return score_function.addresses
    except AttributeError:
        found = type(score_function).__name__
        raise TypeError(
            f"[scaled_dot_product_attention] expected score_function as attn.ScoreFunction; found {found}"
        ) from None


def rows_of(return_weights: Any) -> tuple[bool, Any]:
    if return_weights is False or return_weights is True:
        return return_weights, None
    return True, int64(return_weights)


def window_of(window: Any) -> tuple[int, int]:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise TypeError(
            f"[scaled_dot_product_attention] expected window as (left, right); found {window!r}"
        ) from None
    return left, right


def pair_of(size: int | tuple[int, int]) -> tuple[int, int]:
    if not isinstance(size, tuple | list):
        return size, size
    query, key = size
    return query, key


def _dropout_key(generator: Any) -> int:
    if generator is None:
        from attn._random import default_generator as generator
    return int(generator.next_u64())
