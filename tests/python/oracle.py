"""Attention in NumPy and float64, a step at a time: what the tests compare with."""

import numpy as np


def attention(q, k, v, *, mask=None, is_causal=False, scale=None, window=(-1, -1), softcap=0.0, alibi_slopes=None,
              sinks=None, key_lengths=None, causal_alignment="top_left", query_offset=None,
              key_offset=None):  # fmt: skip
    """q (b, h, tq, d), k (b, hkv, tk, d), v (b, hkv, tk, dv): output, lse, weights. Offsets are (b) or a number."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    tq, tk = q.shape[2], k.shape[2]
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    lengths = np.full(q.shape[0], tk) if key_lengths is None else np.asarray(key_lengths)
    shift = lengths - tq if causal_alignment == "bottom_right" else np.zeros_like(lengths)
    if query_offset is not None or key_offset is not None:
        first_query, first_key = (np.asarray(0 if x is None else x) for x in (query_offset, key_offset))
        shift = shift + first_query - first_key
    centre = np.arange(tq)[:, None] + shift[:, None, None, None]  # (b, 1, tq, 1)
    j = np.arange(tk)
    seen = np.ones((q.shape[0], 1, tq, tk), bool)
    if is_causal:
        seen = seen & (j <= centre)
    if window[0] >= 0:
        seen = seen & (j >= centre - window[0])
    if window[1] >= 0:
        seen = seen & (j <= centre + window[1])
    seen = seen & (j < lengths[:, None, None, None])
    if alibi_slopes is not None:
        scores = scores - np.asarray(alibi_slopes, np.float64)[:, None, None] * np.abs(centre - j)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    scores = np.where(seen, scores, -np.inf)
    extra = np.full((*scores.shape[:3], 1), -np.inf)
    if sinks is not None:
        extra[:] = np.asarray(sinks, np.float64)[:, None, None]
    every = np.concatenate([scores, extra], -1)
    top = every.max(-1, keepdims=True)
    top[top == -np.inf] = 0
    weights = np.exp(every - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    weights = (weights / np.where(total == 0, 1, total))[..., :-1]
    return weights @ v, lse, weights
