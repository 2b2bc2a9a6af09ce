"""attn_implementation="attn" for Hugging Face models: import this module, then load a model with it.

    import attn.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attn")
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from attn.torch import scaled_dot_product_attention


def attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    position_bias: Any = None,
    cache: Any = None,
    **_: Any,
) -> tuple[Any, None]:
    """query (b, hq, tq, d), key and value (b, hkv, tk, d): output (b, tq, hq, d), and no weights.

    Masks come as for "sdpa": a boolean (or additive) attention_mask, or none where is_causal says all.
    """
    if cache is not None:
        raise ValueError('[attn.transformers] expected no paged cache; found one; use attn_implementation="sdpa" for it')
    if is_causal is None:
        is_causal = query.shape[2] > 1 and getattr(module, "is_causal", True)
    is_causal = is_causal and attention_mask is None
    if position_bias is not None:
        attention_mask = _biased(attention_mask, position_bias)
    output = scaled_dot_product_attention(
        query,
        key,
        value,
        attention_mask,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scaling,
        enable_gqa=True,
        softcap=softcap or 0.0,
        sinks=s_aux,
    )
    return output.transpose(1, 2).contiguous(), None


def _biased(mask: Any, bias: Any) -> Any:
    if mask is None:
        return bias
    return torch.where(mask, bias, float("-inf")) if mask.dtype == torch.bool else mask + bias


AttentionInterface.register("attn", attention_forward)
AttentionMaskInterface.register("attn", sdpa_mask)
