"""What tests of attn.torch share: small tensors, and our function and PyTorch's asked the same."""

import torch
import torch.nn.functional as F

import attn.torch

ours = attn.torch.scaled_dot_product_attention
theirs = F.scaled_dot_product_attention
LOW = [torch.bfloat16, torch.float16]


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


Q, K, V = (numbers(2, 2, 5, 4, seed=seed) for seed in range(3))
MANY = numbers(3, 2, 2, 5, 4, seed=3)
SEEN = torch.ones(5, 5, dtype=torch.bool).tril()
BIAS = numbers(5, 5, seed=4)


def answer(call, f):
    """Returns what f gives, or the kind of its error."""
    try:
        return call(f)
    except Exception as error:
        return "refused" if isinstance(error, (RuntimeError, TypeError, ValueError)) else error


def same(call, **tolerances):
    want, got = answer(call, theirs), answer(call, ours)
    assert not isinstance(want, str) and not isinstance(got, str), (want, got)
    torch.testing.assert_close(got, want, **tolerances)


def book(module, f):
    """What the book's module computes with f, of the same weights."""
    def forward(x):
        heads = getattr(module, "num_heads", 1)
        q, k, v = (w(x).unflatten(-1, (heads, -1)).transpose(-3, -2) for w in (module.W_query, module.W_key, module.W_value))
        joined = f(q, k, v, is_causal=True).transpose(-3, -2).flatten(-2)
        return module.out_proj(joined) if hasattr(module, "out_proj") else joined
    return forward
