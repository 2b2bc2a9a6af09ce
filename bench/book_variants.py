"""Causal multi-head attention with projections, in seven of the nine ways that the bonus notebook of the book's chapter 3 compares, on PyTorch.

All are (batch, tokens, d) -> (batch, tokens, d), queries, keys and values without bias, out_proj with one, no dropout.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


def causal_mask(tokens):
    """True above the diagonal: what a query must not see."""
    return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)


class OneHead(nn.Module):
    """A single causal head, as the wrapper keeps many of."""

    def __init__(self, d, head_dim, tokens):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d, head_dim, bias=False) for _ in range(3))
        self.register_buffer("mask", causal_mask(tokens))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        scores = scores.masked_fill(self.mask, -torch.inf) / math.sqrt(self.query.out_features)
        return scores.softmax(-1) @ self.value(x)


class Wrapper(nn.Module):
    """Heads one after the other, concatenated."""

    def __init__(self, d, heads, tokens):
        super().__init__()
        self.heads = nn.ModuleList(OneHead(d, d // heads, tokens) for _ in range(heads))
        self.out_proj = nn.Linear(d, d)

    def forward(self, x):
        return self.out_proj(torch.cat([head(x) for head in self.heads], dim=-1))


class Heads(nn.Module):
    """What the batched variants share: the heads' split and merge, and the plain steps between."""

    def __init__(self, d, heads, tokens):
        super().__init__()
        self.d, self.num_heads, self.head_dim = d, heads, d // heads
        self.out_proj = nn.Linear(d, d)
        self.register_buffer("mask", causal_mask(tokens))

    def split(self, x):
        return x.view(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def merge(self, x):
        return self.out_proj(x.transpose(1, 2).reshape(x.shape[0], x.shape[2], self.d))

    def attend(self, q, k, v):
        scores = (q @ k.transpose(2, 3)).masked_fill(self.mask, -torch.inf)
        return (scores / math.sqrt(self.head_dim)).softmax(-1) @ v


class WeightSplit(Heads):
    """Three projections, each split into heads."""

    def __init__(self, d, heads, tokens):
        super().__init__(d, heads, tokens)
        self.query, self.key, self.value = (nn.Linear(d, d, bias=False) for _ in range(3))

    def forward(self, x):
        return self.merge(self.attend(self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))))


class CombinedQkv(Heads):
    """One projection to queries, keys and values at once."""

    def __init__(self, d, heads, tokens):
        super().__init__(d, heads, tokens)
        self.qkv = nn.Linear(d, 3 * d, bias=False)

    def parts(self, x):
        qkv = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, self.head_dim)
        return qkv.permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x):
        return self.merge(self.attend(*self.parts(x)))


class Sdpa(CombinedQkv):
    """The same, with PyTorch's fused operator."""

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Einsum(Heads):
    """Bare weight matrices and einsum."""

    def __init__(self, d, heads, tokens):
        super().__init__(d, heads, tokens)
        bound = 1 / math.sqrt(d)
        self.query, self.key, self.value = (
            nn.Parameter(torch.empty(d, d).uniform_(-bound, bound)) for _ in range(3))

    def forward(self, x):
        q, k, v = (self.split(torch.einsum("btd,od->bto", x, w)) for w in (self.query, self.key, self.value))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k).masked_fill(self.mask, -torch.inf)
        weights = (scores / math.sqrt(self.head_dim)).softmax(-1)
        return self.merge(torch.einsum("bhqk,bhkd->bhqd", weights, v))


class Builtin(nn.Module):
    """nn.MultiheadAttention, which by default also returns its weights."""

    def __init__(self, d, heads, tokens, need_weights=True):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
        self.need_weights = need_weights
        self.register_buffer("mask", causal_mask(tokens))

    def forward(self, x):
        return self.attention(x, x, x, attn_mask=self.mask, need_weights=self.need_weights,
                              is_causal=not self.need_weights)[0]


def without_weights(d, heads, tokens):
    return Builtin(d, heads, tokens, need_weights=False)


VARIANTS = {
    "wrapper": Wrapper,
    "weight-split": WeightSplit,
    "combined QKV": CombinedQkv,
    "einsum": Einsum,
    "SDPA": Sdpa,
    "nn.MultiheadAttention": Builtin,
    "nn.MHA, no weights": without_weights,
}
