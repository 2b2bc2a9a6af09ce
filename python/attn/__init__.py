"""Attention on the CPU: fused kernels, forward and backward, for NumPy, PyTorch and JAX.

    >>> import attn
    >>> out = attn.scaled_dot_product_attention(q, k, v, is_causal=True)

Modules by the names of the book's notebooks (MultiHeadAttention, …) are here for NumPy arrays; attn.torch has them as
torch.nn modules, and attn.transformers registers attn_implementation="attn" for Hugging Face models.
"""

from attn._attention import scaled_dot_product_attention
from attn._attn import __version__

__all__ = ["__version__", "scaled_dot_product_attention"]
