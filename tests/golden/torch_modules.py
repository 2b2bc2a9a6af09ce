"""The attention modules in PyTorch, composed of matmul and softmax, for generate.py."""
import math

import torch
import torch.nn as nn


def attend(q, k, v, bias=None, keep=None, scale=None, softcap=0.0, drop=lambda weights: weights):
    """(output, lse, weights) of q (..., tq, d), k (..., tk, d), v (..., tk, dv); weights are those before `drop`."""
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if keep is not None:
        scores = scores.masked_fill(~keep, -math.inf)
    # softmax of a row without any key is 0/0. The library promises zeros there. nan_to_num on the result
    # would mend the output but leave NaN in the gradients, so such rows are taken out before and after.
    dead = (scores == -math.inf).all(-1, keepdim=True)
    lse = torch.logsumexp(scores.detach(), -1)
    weights = torch.softmax(scores.masked_fill(dead, 0), -1).masked_fill(dead, 0)
    return drop(weights) @ v, lse, weights


def causal_keep(tq, tk, bottom_right=False):
    return torch.ones(tq, tk, dtype=torch.bool).tril(tk - tq if bottom_right else 0)


class SimplifiedSelfAttention(nn.Module):
    def forward(self, x):
        return torch.softmax(x @ x.transpose(-2, -1), dim=-1) @ x


class AveragePast(nn.Module):
    def forward(self, x):
        tril = torch.tril(torch.ones(x.shape[-2], x.shape[-2]))
        return (tril / tril.sum(1, keepdim=True)) @ x


class Linear(nn.Linear):
    def __init__(self, c):
        super().__init__(c["d_in"], c["d_out"], bias=bool(c["bias"]))


class SelfAttentionV1(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(c["d_in"], c["d_out"]))
        self.W_key = nn.Parameter(torch.rand(c["d_in"], c["d_out"]))
        self.W_value = nn.Parameter(torch.rand(c["d_in"], c["d_out"]))

    def forward(self, x):
        return attend(x @ self.W_query, x @ self.W_key, x @ self.W_value)[0]


class Projected(nn.Module):
    """Projections drawn in the order of c["order"], then attention over c["heads"] slices."""

    causal, unscaled, heads, has_out_proj = True, False, 1, False

    def __init__(self, c):
        super().__init__()
        for letter in c["order"]:
            name = {"q": "W_query", "k": "W_key", "v": "W_value"}[letter]
            setattr(self, name, nn.Linear(c["d_in"], c["d_out"], bias=bool(c["bias"])))
        if self.has_out_proj and c["out_proj"]:
            self.out_proj = nn.Linear(c["d_out"], c["d_out"])
        self.dropout = nn.Dropout(c["dropout"])
        self.causal = self.causal and bool(c["causal"])
        self.heads = c["heads"] if self.has_out_proj else 1
        self.scale = c["scale"] if c["scale"] != "default" else (1.0 if self.unscaled else None)

    def split(self, t):  # (..., t, d_out) -> (..., heads, t, head_dim)
        return t.unflatten(-1, (self.heads, t.shape[-1] // self.heads)).transpose(-3, -2)

    def forward(self, x, source=None):
        source = x if source is None else source
        q, k, v = self.split(self.W_query(x)), self.split(self.W_key(source)), self.split(self.W_value(source))
        keep = causal_keep(q.shape[-2], k.shape[-2]) if self.causal else None
        z = attend(q, k, v, keep=keep, scale=self.scale, drop=self.dropout)[0].transpose(-3, -2).flatten(-2)
        return self.out_proj(z) if hasattr(self, "out_proj") else z


class SelfAttentionV2(Projected):
    causal = False


class SelfAttentionHead(Projected):
    unscaled = True


class CausalAttention(Projected):
    pass


class CrossAttention(Projected):
    causal, has_out_proj = False, True


class MultiHeadAttention(Projected):
    has_out_proj = True


class MultiHeadAttentionWrapper(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = nn.ModuleList([CausalAttention(c) for _ in range(c["heads"])])

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


def build(c):
    kind = {k.__name__: k for k in (SimplifiedSelfAttention, AveragePast, Linear, SelfAttentionV1, SelfAttentionV2,
                                    SelfAttentionHead, CausalAttention, CrossAttention, MultiHeadAttention,
                                    MultiHeadAttentionWrapper)}[c["module"]]
    return kind() if c["module"] in ("SimplifiedSelfAttention", "AveragePast") else kind(c)
