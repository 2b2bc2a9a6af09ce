"""Attention for PyTorch: tensors in the CPU's memory, gradients, torch.compile, and nn.Module drop-ins."""

from attn.torch.functional import scaled_dot_product_attention
from attn.torch.modules import (
    CausalAttention,
    MultiHeadAttention,
    MultiHeadAttentionWrapper,
    SelfAttention_v1,
    SelfAttention_v2,
)
from attn.torch.recurrence import causal_convolution, gated_delta_rule, linear_attention

__all__ = [
    "CausalAttention",
    "MultiHeadAttention",
    "MultiHeadAttentionWrapper",
    "SelfAttention_v1",
    "SelfAttention_v2",
    "causal_convolution",
    "gated_delta_rule",
    "linear_attention",
    "scaled_dot_product_attention",
]
