#!/usr/bin/env python3
"""Makes data/blocks.safetensors: what single blocks of released models compute in PyTorch, forward and backward.

    pip install torch transformers safetensors
    tests/lm/make_blocks.py

A case "CASE" has "CASE.x", "CASE.y", "CASE.dy" and "CASE.dx", with "CASE.parameter.NAME" and "CASE.grad.NAME" for each
parameter. Norms, feed-forward and whole layers are transformers' own classes; attention is written here from its
definition, with its options in one place, and differentiated by autograd. "CASE.y_bf16" is a norm's output where x and the
weight are rounded to bfloat16 before. The cases are in tests/lm/blocks_golden_test.cpp again, under the same names.

The committed file was made by transformers 5.23.0 and PyTorch 2.15.0.
"""

import os
import sys

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer, Gemma2RMSNorm
from transformers.models.granite.modeling_granite import GraniteDecoderLayer
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP, LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.olmo2.modeling_olmo2 import Olmo2DecoderLayer

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from kept import kept  # noqa: E402

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "blocks.safetensors")
WIDTH, BATCH, THETA = 16, 2, 50.0


class Attention(nn.Module):
    def __init__(self, heads, kv_heads, head_dim, qkv_bias=False, out_bias=False, norm=None, form=LlamaRMSNorm, window=None,
                 softcap=None, sinks=False, scale=None, turns=True):  # fmt: skip
        super().__init__()
        self.head_dim, self.group, self.norm, self.window, self.softcap = head_dim, heads // kv_heads, norm, window, softcap
        self.scale, self.turns = head_dim**-0.5 if scale is None else scale, turns
        self.q_proj = nn.Linear(WIDTH, heads * head_dim, bias=qkv_bias)
        self.k_proj = nn.Linear(WIDTH, kv_heads * head_dim, bias=qkv_bias)
        self.v_proj = nn.Linear(WIDTH, kv_heads * head_dim, bias=qkv_bias)
        self.o_proj = nn.Linear(heads * head_dim, WIDTH, bias=out_bias)
        if norm is not None:
            self.q_norm = form(head_dim * (heads if norm == "all heads" else 1), eps=1e-3)
            self.k_norm = form(head_dim * (kv_heads if norm == "all heads" else 1), eps=1e-3)
        self.sinks = nn.Parameter(torch.zeros(heads)) if sinks else None

    def normed(self, projected, norm):  # (b, t, heads · head_dim) → (b, heads, t, head_dim)
        if self.norm == "all heads":
            projected = norm(projected)
        split = projected.unflatten(-1, (-1, self.head_dim))
        return (norm(split) if self.norm == "each head" else split).transpose(1, 2)

    def forward(self, x):
        q = self.normed(self.q_proj(x), getattr(self, "q_norm", None))
        k = self.normed(self.k_proj(x), getattr(self, "k_norm", None))
        v = self.v_proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if self.turns:
            q, k = apply_rotary_pos_emb(q, k, *turns(x.shape[1], self.head_dim))
        k, v = (t.repeat_interleave(self.group, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * self.scale
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        scores = scores.masked_fill(~seen(x.shape[1], self.window), -torch.inf)
        if self.sinks is not None:  # one more key, without a value
            scores = torch.cat([scores, self.sinks[:, None, None].expand(*scores.shape[:3], 1)], dim=-1)
        weights = scores.softmax(-1)[..., : x.shape[1]]
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


def turns(tokens, head_dim):
    """cos and sin (1, tokens, head_dim) of positions 0, 1, …"""
    rates = 1 / THETA ** (torch.arange(0, head_dim, 2) / head_dim)
    angles = (torch.arange(tokens)[:, None] * rates).repeat(1, 2)[None]
    return angles.cos(), angles.sin()


def seen(tokens, window):
    behind = torch.arange(tokens)[:, None] - torch.arange(tokens)
    return (behind >= 0) & (behind < (window or tokens))


ATTENTION = {
    "own_head_dim": {"heads": 4, "kv_heads": 2, "head_dim": 6},
    "biases": {"heads": 3, "kv_heads": 3, "head_dim": 4, "qkv_bias": True, "out_bias": True},
    "norm_of_each_head": {"heads": 4, "kv_heads": 1, "head_dim": 4, "norm": "each head", "form": Gemma2RMSNorm,
                          "scale": 0.7},
    "norm_of_all_heads": {"heads": 4, "kv_heads": 2, "head_dim": 4, "norm": "all heads", "qkv_bias": True,
                          "turns": False},
    "window_and_softcap": {"heads": 2, "kv_heads": 1, "head_dim": 8, "window": 20, "softcap": 1.5, "scale": 0.9},
    "window_and_sinks": {"heads": 4, "kv_heads": 2, "head_dim": 8, "window": 3, "sinks": True},
    "all_at_once": {"heads": 6, "kv_heads": 2, "head_dim": 4, "qkv_bias": True, "out_bias": True, "norm": "each head",
                    "window": 4, "softcap": 2.0, "sinks": True, "scale": 0.6},
}  # fmt: skip
SIZES = {"hidden_size": WIDTH, "intermediate_size": 12, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 1, "attn_implementation": "eager"}  # fmt: skip
LAYERS = {
    "pre_norms": (LlamaDecoderLayer, transformers.LlamaConfig(**SIZES, head_dim=6)),
    "post_norms": (Olmo2DecoderLayer, transformers.Olmo2Config(**SIZES)),
    "pre_and_post_norms": (Gemma2DecoderLayer, transformers.Gemma2Config(
        **SIZES, head_dim=6, sliding_window=4, query_pre_attn_scalar=5, attn_logit_softcapping=2.0)),
    "residual_scale": (GraniteDecoderLayer, transformers.GraniteConfig(
        **SIZES, residual_multiplier=0.5, attention_multiplier=0.3)),
}  # fmt: skip


def record(tensors, case, module, tokens=9, **more):
    """Fills in the case `case`: module(x) of a random x, its parameters random too."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():  # biases and norms are not to be zeros and ones
            spread = 0.3 if parameter.dim() == 1 else 1 / parameter.shape[1] ** 0.5
            parameter.copy_(torch.randn_like(parameter) * spread + (parameter if parameter.dim() == 1 else 0))
            tensors[f"{case}.parameter.{name}"] = parameter.detach().clone()
    x = torch.randn(BATCH, tokens, WIDTH, requires_grad=True)
    y = module(x, **more)
    dy = torch.randn_like(y)
    y.backward(dy)
    tensors |= {f"{case}.{name}": t.detach() for name, t in {"x": x, "y": kept(y), "dy": dy, "dx": kept(x.grad)}.items()}
    tensors |= {f"{case}.grad.{name}": kept(p.grad.clone()) for name, p in module.named_parameters()}
    return x


def record_layer(tensors, case, kind, config, tokens=9):
    head_dim = getattr(config, "head_dim", None) or WIDTH // config.num_attention_heads
    hidden = ~seen(tokens, getattr(config, "sliding_window", None))
    mask = torch.zeros(tokens, tokens).masked_fill(hidden, -torch.inf)[None, None]
    record(tensors, case, kind(config, 0), position_embeddings=turns(tokens, head_dim), attention_mask=mask)


if __name__ == "__main__":
    torch.manual_seed(1)
    made = {}
    for called, kind in {"llama": LlamaRMSNorm, "gemma": Gemma2RMSNorm}.items():
        norm = kind(WIDTH, eps=1e-2)
        given = record(made, f"rms_norm.{called}", norm, tokens=40)
        with torch.no_grad():
            made[f"rms_norm.{called}.y_bf16"] = norm.bfloat16()(given.bfloat16())
    for activation, has_bias in {"silu": True, "gelu_pytorch_tanh": False, "gelu": True}.items():
        shape = transformers.LlamaConfig(**SIZES, hidden_act=activation, mlp_bias=has_bias)
        record(made, f"feed_forward.{activation}", LlamaMLP(shape))
    for called, options in ATTENTION.items():
        record(made, f"attention.{called}", Attention(**options), tokens=40 if called == "window_and_softcap" else 9)
    for called, layer in LAYERS.items():
        record_layer(made, f"block.{called}", *layer)
    save_file({name: tensor.contiguous() for name, tensor in made.items()}, FILE)
    print(len(made), "tensors,", os.path.getsize(FILE), "bytes")
