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
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function, sdpa_mask

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
    wants_weights = output_attentions or _collected()
    if isinstance(attention_mask, CausalMask):
        if attention_mask.seen is not None and not wants_weights and attention_mask.packs():
            options.update(attention_mask.options(), dropout_p=dropout)
            return _without_padding(query, key, value, attention_mask.seen, options), None
        if attention_mask.seen is None:
            options.update(attention_mask.options())
        attention_mask, is_causal = (None, True) if attention_mask.seen is None else (attention_mask.values(), False)

    def call(**more: Any) -> Any:
        return scaled_dot_product_attention(query, key, value, attention_mask, is_causal=is_causal, **options, **more)

    output, weights = call(dropout_p=dropout), None
    if wants_weights:
        with torch.no_grad():
            weights = call(return_weights=True)[1].to(query.dtype)
    return output.transpose(1, 2).contiguous(), weights


def _without_padding(query: Any, key: Any, value: Any, seen: Any, options: dict[str, Any]) -> Any:
    """The output (b, tq, hq, dv) of the tokens that are seen, as sequences one after the other; zeros for padding."""
    asks = seen[:, seen.shape[1] - query.shape[2] :]

    def packed(x: Any, kept: Any) -> Any:  # (1, h, tokens of all texts, d)
        return x.transpose(1, 2)[kept].transpose(0, 1)[None]

    def starts(kept: Any) -> Any:
        return torch.nn.functional.pad(kept.sum(1).cumsum(0), (1, 0))

    found = scaled_dot_product_attention(
        packed(query, asks), packed(key, seen), packed(value, seen), is_causal=True,
        cu_seqlens_q=starts(asks), cu_seqlens_k=starts(seen), **options,
    )  # fmt: skip
    output = found.new_zeros(*asks.shape, *found.shape[1::2])
    output[asks] = found[0].transpose(0, 1)
    return output


def _collected() -> bool:
    """Whether a model's caller asked for weights: some models do not hand output_attentions on to their attention."""
    collector = getattr(getattr(transformers.utils, "output_capturing", None), "_active_collector", None)
    return any("attentions" in name for name in (collector and collector.get()) or ())


def _biased(mask: Any, bias: Any) -> Any:
    if mask is None:
        return bias
    return torch.where(mask, bias, float("-inf")) if mask.dtype == torch.bool else mask + bias


class CausalMask(torch.Tensor):
    """A boolean mask (b, 1, tq, tk) as what it is made of, until other code than ours reads its values.

    The last query stands at the last key, and each sees the keys up to its own place: `keys` of them, or all where that
    is None; of these the ones that `seen` (b, tk) does not call padding, where that is not None.
    """

    keys: int | None
    seen: Any

    @staticmethod
    def of(shape: tuple[int, ...], keys: int | None, seen: Any = None) -> CausalMask:
        mask = torch.zeros((), dtype=torch.bool).expand(shape).as_subclass(CausalMask)
        mask.keys, mask.seen = keys, seen
        return mask

    def options(self) -> dict[str, Any]:
        window = {} if self.keys is None else {"window": (self.keys - 1, -1)}
        return {"causal_alignment": "bottom_right", **window}

    def packs(self) -> bool:
        """Whether its texts may be packed. That is worth it for many queries; a window counts what is left out, too."""
        if self.shape[-2] == 1:
            return False
        begins = torch.nn.functional.pad(self.seen, (1, 0))
        return self.keys is None or bool(((begins[:, 1:] & ~begins[:, :-1]).sum(1) <= 1).all())

    def values(self) -> Any:
        tq, tk = self.shape[-2:]
        behind = torch.arange(tk - tq, tk)[:, None] - torch.arange(tk)
        values = behind >= 0 if self.keys is None else (behind >= 0) & (behind < self.keys)
        return (values if self.seen is None else values & self.seen[:, None, None]).expand(self.shape)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _WITHOUT_VALUES:
            return super().__torch_function__(func, types, args, kwargs)
        if func is torch.Tensor.__setitem__ and isinstance(args[0], cls):
            raise ValueError(
                "[attn.transformers] expected a mask that is not changed in place; found a model that does so; "
                'use attn_implementation="sdpa" for it'
            )
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
    mask_function: Any = causal_mask_function,
    attention_mask: Any = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    config: Any = None,
    **rest: Any,
) -> Any:
    """The mask as for "sdpa", but causal masks, their windows and padding stay what they are."""
    end = kv_offset + kv_length
    causal = (
        allow_is_causal_skip  # nothing else changes the mask; but it may be in chunks
        and (mask_function is causal_mask_function or local_size is not None)
        and getattr(config, "attention_chunk_size", None) is None
        and not torch.compiler.is_compiling()
        and isinstance(q_offset, int)  # not of a static cache
        and q_offset + q_length == end
        and (attention_mask is None or (attention_mask.ndim == 2 and attention_mask.shape[1] == end))
    )
    window = local_size if local_size is not None and kv_length >= local_size else None
    padded = causal and attention_mask is not None and not bool(attention_mask[:, kv_offset:].all())
    if padded:
        seen = attention_mask[:, kv_offset:].bool()
        return CausalMask.of((batch_size, 1, q_length, kv_length), window, seen)
    if causal and window is not None:
        return CausalMask.of((batch_size, 1, q_length, kv_length), window)
    return sdpa_mask(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function,
        attention_mask=None if causal else attention_mask, local_size=None if causal else local_size,
        allow_is_causal_skip=allow_is_causal_skip, config=config, **rest,
    )  # fmt: skip


AttentionInterface.register("attn", attention_forward)
AttentionMaskInterface.register("attn", mask)
