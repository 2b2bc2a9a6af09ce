"""GPT-2 in plain PyTorch: the model that this library is compared with, for train.py (golden data) and bench/train.py.

Parameters are named, shaped and ordered as the library's (attn/gpt.hpp), and drawn as it draws them.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(width, width) for _ in range(3))
        self.out_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.W_query, self.W_key, self.W_value))
        z = self.attend(q, k, v).transpose(1, 2).reshape(b, t, width)
        return self.out_proj(z)

    def attend(self, q, k, v):
        """Step by step: draws dropout as the library does."""
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return self.dropout(torch.softmax(scores.masked_fill(~keep, -math.inf), -1)) @ v


class FastAttention(Attention):
    """One product for queries, keys and values, and PyTorch's own operator: the fastest way in eager mode."""

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(width, 2))
        z = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout.p if self.training else 0.0, is_causal=True)
        return self.out_proj(z.transpose(1, 2).reshape(b, t, width))

    def __init__(self, width, heads, dropout):
        nn.Module.__init__(self)
        self.heads = heads
        self.qkv, self.out_proj, self.dropout = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Dropout(dropout)


class FeedForward(nn.Module):
    def __init__(self, width, gelu):
        super().__init__()
        self.c_fc, self.c_proj, self.gelu = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), gelu

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh" if self.gelu == "tanh" else "none"))


class Block(nn.Module):
    def __init__(self, width, heads, dropout, gelu, attention):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), attention(width, heads, dropout)
        self.ln_2, self.mlp = nn.LayerNorm(width), FeedForward(width, gelu)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    def __init__(self, vocab=256, context=256, layers=6, heads=6, width=384, dropout=0.0, gelu="tanh", tied=True,
                 attention=Attention):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads, dropout, gelu, attention) for _ in range(layers))
        self.ln_f, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.lm_head = None if tied else nn.Linear(width, vocab, bias=False)

    def draw(self, seed):
        """GPT-2's initial values, matrices drawn in order of parameters()."""
        torch.manual_seed(seed)
        for name, p in self.named_parameters():
            ends_branch = name.endswith("out_proj.weight") or name.endswith("c_proj.weight")
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * len(self.h)) if ends_branch else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        return self

    def forward(self, ids, targets=None):
        x = self.dropout(self.wte(ids) + self.wpe(torch.arange(ids.shape[-1])))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        logits = x @ self.wte.weight.T if self.lm_head is None else self.lm_head(x)
        return logits if targets is None else F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def optimizer(model, weight_decay, **options):
    """AdamW that lets matrices decay, not vectors."""
    parameters = list(model.parameters())
    return torch.optim.AdamW([{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
                              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}], **options)


def rate(step, peak, floor, warmup, steps):
    if step < warmup:
        return peak * (step + 1) / warmup
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1, (min(step, steps) - warmup) / max(steps - warmup, 1))))
