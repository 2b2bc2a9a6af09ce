"""attn_implementation="attn" for Hugging Face models: import this module, then load a model with it.

    import attn.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attn")
"""

from __future__ import annotations

from typing import Any

import torch
import transformers.utils
from torch.utils._pytree import tree_map_only
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
    output_attentions: bool = False,
    **_: Any,
) -> tuple[Any, Any]:
    """query (b, hq, tq, d), key and value (b, hkv, tk, d): output (b, tq, hq, d), and weights where they are asked for.

    Masks come from mask(), or as for "sdpa": a boolean (or additive) attention_mask, or none where is_causal says all.
    Weights (b, hq, tq, tk) are those before dropout, without gradients.
    """
    if cache is not None:
        raise ValueError('[attn.transformers] expected no paged cache; found one; use attn_implementation="sdpa" for it')
    if is_causal is None:
        is_causal = query.shape[2] > 1 and getattr(module, "is_causal", True)
    is_causal = is_causal and attention_mask is None
    if position_bias is not None:
        attention_mask = _biased(attention_mask, position_bias)
    options = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux, "enable_gqa": True}
    if isinstance(attention_mask, CausalWindow):
        options.update(window=(attention_mask.keys - 1, -1), causal_alignment="bottom_right")
        attention_mask, is_causal = None, True

    def call(**more: Any) -> Any:
        return scaled_dot_product_attention(query, key, value, attention_mask, is_causal=is_causal, **options, **more)

    output, weights = call(dropout_p=dropout), None
    if output_attentions or _collected():
        with torch.no_grad():
            weights = call(return_weights=True)[1].to(query.dtype)
    return output.transpose(1, 2).contiguous(), weights


def _collected() -> bool:
    """Whether a model's caller asked for weights: some models do not hand output_attentions on to their attention."""
    collector = getattr(getattr(transformers.utils, "output_capturing", None), "_active_collector", None)
    return any("attentions" in name for name in (collector and collector.get()) or ())


def _biased(mask: Any, bias: Any) -> Any:
    if mask is None:
        return bias
    return torch.where(mask, bias, float("-inf")) if mask.dtype == torch.bool else mask + bias


class CausalWindow(torch.Tensor):
    """The boolean mask (b, 1, tq, tk) of a causal window: two numbers, until other code than ours reads its values.

    The last query stands at the last key, and each sees `keys` keys up to its own place.
    """

    keys: int

    @staticmethod
    def of(shape: tuple[int, ...], keys: int) -> CausalWindow:
        window = torch.zeros((), dtype=torch.bool).expand(shape).as_subclass(CausalWindow)
        window.keys = keys
        return window

    def values(self) -> Any:
        tq, tk = self.shape[-2:]
        behind = torch.arange(tk - tq, tk)[:, None] - torch.arange(tk)
        return ((behind >= 0) & (behind < self.keys)).expand(self.shape)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _WITHOUT_VALUES:
            return super().__torch_function__(func, types, args, kwargs)
        args, kwargs = tree_map_only(cls, cls.values, (args, kwargs or {}))
        return func(*args, **kwargs)


_WITHOUT_VALUES = {getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device")}


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    *,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    config: Any = None,
    **rest: Any,
) -> Any:
    """The mask as for "sdpa", but for a causal window without padding, which stays a window."""
    windowed = (
        local_size is not None
        and allow_is_causal_skip  # a causal window and nothing else; or chunks
        and getattr(config, "attention_chunk_size", None) is None
        and not torch.compiler.is_compiling()
        and isinstance(q_offset, int)  # not of a static cache
        and q_offset + q_length == kv_offset + kv_length
    )
    result = sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, allow_is_causal_skip=allow_is_causal_skip,
        local_size=None if windowed else local_size, config=config, **rest,
    )  # fmt: skip
    if result is None and windowed and local_size and kv_length >= local_size:
        return CausalWindow.of((batch_size, 1, q_length, kv_length), local_size)
    return result


AttentionInterface.register("attn", attention_forward)
AttentionMaskInterface.register("attn", mask)
