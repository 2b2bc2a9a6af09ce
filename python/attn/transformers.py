"""attn_implementation="attn" for Hugging Face models: import this module, then load a model with it.

    import attn.transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attn")
    attn.transformers.use_recurrences()    # and linear attention, of Qwen3.5, OLMo Hybrid, Kimi Linear and others
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

import torch
import transformers.utils
from torch.utils._pytree import tree_map_only
from transformers import AttentionInterface
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
    eager_mask,
    sdpa_mask,
)

from attn._recurrent_families import use_recurrences
from attn.torch import scaled_dot_product_attention

__all__ = ["attention_forward", "mask", "use_recurrences"]  # the mask's class has PyTorch's members, which the reference need not repeat


def attention_forward(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, softcap: float | None = None, s_aux: Any = None,
    position_bias: Any = None, output_attentions: bool = False, sliding_window: int | None = None, **rest: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """query (b, hq, tq, d), key and value (b, hkv, tk, d): output (b, tq, hq, d), and weights where they are asked for.

    Masks come from mask(), or as for "sdpa": a boolean (or additive) attention_mask, or none where the layer's is_causal
    says all; a layer without that attribute is not causal, as for "eager". Weights (b, hq, tq, tk) are those before
    dropout, without gradients. What else a layer hands over is passed over, as "eager" does, but for what would change
    the result, which is a ValueError.
    """
    _refuse(module, s_aux, rest)
    _check_mask(attention_mask, query, key, sliding_window, rest.get("cu_seq_lens_q"))
    if is_causal is None:  # mask() writes what is causal, so that a layer without a mask is so where it says it itself
        is_causal = query.shape[2] > 1 and getattr(module, "is_causal", False)
    is_causal = is_causal and attention_mask is None
    if position_bias is not None:
        attention_mask = _biased(attention_mask, position_bias)
    options = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux, "enable_gqa": True}
    wants_weights = output_attentions or _collected()
    if isinstance(attention_mask, LazyMask):
        if attention_mask.says_all() and not wants_weights:
            return _by_parameters(query, key, value, attention_mask, {**options, "dropout_p": dropout}), None
        attention_mask, is_causal = attention_mask.values(), False

    def call(**more: Any) -> Any:
        return scaled_dot_product_attention(query, key, value, attention_mask, is_causal=is_causal, **options, **more)

    output, weights = call(dropout_p=dropout), None
    if wants_weights:
        with torch.no_grad():
            weights = call(return_weights=True)[1].to(query.dtype)
    return output.transpose(1, 2).contiguous(), weights


_EAGER = 'load it with attn_implementation="eager"'
_INSTEAD = 'use attn_implementation="eager" or "sdpa" for it'
_REFUSED = {
    "cache": "a paged cache", "indices": "keys that an indexer has chosen", "block_indices": "blocks that were chosen",
    "sinks": "sinks of each token", "head_mask": "head_mask",
}  # fmt: skip


@functools.lru_cache(maxsize=None)
def _read_by_eager(module: str) -> frozenset[str]:
    """The arguments that a file's eager attention names: its others cannot change its result."""
    eager = getattr(sys.modules.get(module), "eager_attention_forward", None)
    parameters = inspect.signature(eager).parameters if eager else {}
    return frozenset(parameters) - {"kwargs"}


def _refuse(module: Any, s_aux: Any, rest: dict[str, Any]) -> None:
    found = [_REFUSED[name] for name in _REFUSED if rest.get(name) is not None]
    if rest and not torch.compiler.is_compiling():
        read = _read_by_eager(type(module).__module__)
        found += [name for name, value in rest.items() if value is not None and name in read and name not in _REFUSED]
    if s_aux is None and getattr(module, "sinks", None) is not None:
        found.append("a layer with sinks that hands over no s_aux")
    if found:
        raise ValueError(f"[attn.transformers] expected nothing more that changes attention; found {found[0]}; {_INSTEAD}")


def _check_mask(mask: Any, query: Any, key: Any, window: int | None, starts: Any) -> None:
    """The mask has a column for each key, and says what windows and packed texts say."""
    keys = key.shape[2]
    if mask is not None and mask.shape[-1] != keys and (isinstance(mask, LazyMask) or mask.shape[-1] != 1):
        raise ValueError(
            f"[attn.transformers] expected a mask with a column for each of {keys} keys; found {tuple(mask.shape)}"
        )
    if mask is None and window is not None and keys > window:
        raise ValueError(f"[attn.transformers] expected a mask that says sliding_window={window}; found none; {_INSTEAD}")
    packed = starts is not None and len(starts) > 2
    if packed and (mask is None or (isinstance(mask, LazyMask) and mask.sequences is None)):
        raise ValueError(
            "[attn.transformers] expected packed texts that the model's mask tells apart; found cu_seq_lens_q, and a mask for "
            "one text; pass position_ids that begin again, and use_cache=False, or to a model that makes its masks without "
            "them, as gpt-oss does, the texts as rows of a padded batch"
        )


def _by_parameters(query: Any, key: Any, value: Any, mask: LazyMask, options: dict[str, Any]) -> Any:
    """The output (b, tq, hq, dv) without the mask's values."""
    options = {**options, **mask.options()}
    key, value = key[:, :, : mask.filled], value[:, :, : mask.filled]
    if mask.sequences is not None:
        return _packed(query, key, value, mask.sequences, options)
    if mask.seen is not None:
        key, value = _padding_last(key, value, mask.begins)
        options |= mask.places()
    return scaled_dot_product_attention(query, key, value, **options).transpose(1, 2).contiguous()


def _padding_last(key: Any, value: Any, begins: Any) -> tuple[Any, Any]:
    """Keys and values with each text's first token in front: key_lengths then says what is padding."""
    if not begins.any():
        return key, value
    tokens = key.shape[2]
    at = (begins[:, None] + torch.arange(tokens)).clamp(max=tokens - 1)[:, None, :, None]
    moved = (x.gather(2, at.expand(*x.shape[:2], tokens, x.shape[3])) for x in (key, value))
    return next(moved), next(moved)


def _packed(query: Any, key: Any, value: Any, sequences: Any, options: dict[str, Any]) -> Any:
    """The texts of all rows, one after the other."""

    def joined(x: Any) -> Any:  # (1, h, tokens of all rows, d)
        return x.transpose(0, 1).flatten(1, 2)[None]

    rows = torch.arange(len(sequences))[:, None] * sequences.shape[1]  # a text does not go on in the next row
    lengths = (sequences + rows).flatten().unique_consecutive(return_counts=True)[1]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    found = scaled_dot_product_attention(
        joined(query), joined(key), joined(value), cu_seqlens_q=starts, cu_seqlens_k=starts, **options
    )
    return found[0].transpose(0, 1).unflatten(0, sequences.shape).contiguous()


def _collected() -> bool:
    """Whether a model's caller asked for weights: some models do not hand output_attentions on to their attention."""
    collector = getattr(getattr(transformers.utils, "output_capturing", None), "_active_collector", None)
    return any("attentions" in name for name in (collector and collector.get()) or ())


def _biased(mask: Any, bias: Any) -> Any:
    if mask is None:
        return bias
    return torch.where(mask, bias, float("-inf")) if mask.dtype == torch.bool else mask + bias


class LazyMask(torch.Tensor):
    """A boolean mask (b, 1, tq, tk) as what it is made of, until other code than ours reads its values.

    The last query stands at key filled - 1; the keys after it are a static cache's, not written yet. Each query sees the
    keys up to its own place, or all where it is not `causal`; of these the ones at most `reach` away, where that is not
    None; the ones that `seen` (b, filled) does not call padding; and those of its own text by `sequences` (b, t), the
    numbers of packed texts.
    """

    causal: bool
    reach: int | None
    seen: Any
    sequences: Any
    filled: int

    @staticmethod
    def of(
        shape: tuple[int, ...], reach: int | None, seen: Any = None, *, causal: bool = True, sequences: Any = None,
        filled: int | None = None,
    ) -> LazyMask:  # fmt: skip
        mask = torch.zeros((), dtype=torch.bool).expand(shape).as_subclass(LazyMask)
        mask.causal, mask.reach, mask.seen, mask.sequences = causal, reach, seen, sequences
        mask.filled = shape[-1] if filled is None else filled
        return mask

    def options(self) -> dict[str, Any]:
        window = {} if self.reach is None else {"window": (self.reach, -1 if self.causal else self.reach)}
        aligned = {"causal_alignment": "bottom_right"} if self.causal else {}
        return {"is_causal": self.causal, **aligned, **window}

    def says_all(self) -> bool:
        """Whether parameters say it: not where there is padding within a text. One query's row of booleans costs less."""
        if self.seen is None:
            return True
        if self.shape[-2] == 1:
            return False
        ends = self.filled - self.seen.flip(1).int().argmax(1)
        return bool((self.seen.sum(1) == torch.where(self.seen.any(1), ends - self.begins, 0)).all())

    @property
    def begins(self) -> Any:
        """Where each text's first token is, (b)."""
        return self.seen.int().argmax(1)

    def places(self) -> dict[str, Any]:
        """Parameters for keys of which each text's first one is in front. Queries that are padding see what they may."""
        lengths = {"key_lengths": self.seen.sum(1)}
        if not self.causal and self.reach is None:
            return lengths  # which may be another text's: cross-attention
        offsets = {"query_offset": self.filled - self.shape[-2], "key_offset": self.begins}
        return {**lengths, **offsets, "causal_alignment": "top_left"}

    def values(self) -> Any:
        tq, tk = self.shape[-2:]
        behind = torch.arange(self.filled - tq, self.filled)[:, None] - torch.arange(tk)
        values = behind >= 0 if self.causal else torch.ones_like(behind, dtype=torch.bool)
        if self.reach is not None:
            values = values & (behind.abs() <= self.reach)
        if self.seen is not None:
            values = values & torch.nn.functional.pad(self.seen, (0, tk - self.filled))[:, None, None]
        if self.sequences is not None:
            values = values & (self.sequences[:, None, :, None] == self.sequences[:, None, None])
        return values.expand(self.shape)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _WITHOUT_VALUES:
            return super().__torch_function__(func, types, args, kwargs)
        if func in _ADDS and any(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args):
            raise ValueError(  # to scores, to which True would add 1
                "[attn.transformers] expected a layer whose attention goes by transformers' interface; found one that adds its "
                f"mask; {_EAGER}"
            )
        if func is torch.Tensor.__setitem__ and isinstance(args[0], cls):
            raise ValueError(
                "[attn.transformers] expected a mask that is not changed in place; found a model that does so; "
                'use attn_implementation="sdpa" for it'
            )
        args, kwargs = tree_map_only(cls, cls.values, (args, kwargs or {}))
        return func(*args, **kwargs)


_ADDS = {torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__radd__, torch.Tensor.__iadd__}
_WITHOUT_VALUES = {getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device")}


def _inside(function: Any, maker: str, called: str = "inner_mask") -> dict[str, Any]:
    """The variables of a function that `maker` of transformers.masking_utils has made; none of any other's."""
    name = (getattr(function, "__module__", ""), getattr(function, "__qualname__", ""))
    if name != ("transformers.masking_utils", f"{maker}.<locals>.{called}"):
        return {}
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__)))


def _pattern(function: Any) -> tuple[bool, int | None, Any] | None:
    """`causal`, `reach` and `sequences` of a LazyMask; None where a mask function says anything else."""
    if function in (causal_mask_function, bidirectional_mask_function):
        return function is causal_mask_function, None, None
    parts = _inside(function, "and_masks", "and_mask").get("mask_functions", ())
    if len(parts) != 2:
        return None
    if parts[1] is causal_mask_function and (window := _inside(parts[0], "sliding_window_overlay")):
        return True, window["sliding_window"] - 1, None
    if parts[1] is bidirectional_mask_function and (window := _inside(parts[0], "sliding_window_bidirectional_overlay")):
        return False, window["sliding_window"], None
    for first, second in (parts, parts[::-1]):  # transformers joins them in the other order from 5.24 on
        texts = _inside(first, "packed_sequence_mask_function")
        within = _inside(second, "remap_positions_for_packed_sequence")
        if texts and within:
            of_each = _pattern(within["mask_function"])
            return of_each and (*of_each[:2], texts["packed_sequence_mask"])
    return None


_FILES: dict[type, tuple[str | None, bool]] = {}


@torch.compiler.assume_constant_result
def _own_attention(config: type) -> tuple[str | None, bool]:
    """The file of a config's models that makes masks for attention of its own alone, such as modeling_bloom, or None; and
    whether a file that knows the interface, too, may have layers beside it, as modeling_git."""
    if config not in _FILES:
        _FILES[config] = _files_with_their_own(config)
    return _FILES[config]


def _files_with_their_own(config: type) -> tuple[str | None, bool]:
    package, _, _ = config.__module__.rpartition(".")
    mixed = False
    for name, module in list(sys.modules.items()):
        made = vars(module) if name.startswith(f"{package}.modeling_") else {}
        if any(getattr(value, "_supports_attention_backend", False) is True for value in made.values()):
            continue
        if any(value.startswith("create_") and value.endswith("_mask") for value in made):
            if "ALL_ATTENTION_FUNCTIONS" not in made:
                return name.rpartition(".")[2], False
            mixed = True
    return None, mixed


def mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0, *,
    mask_function: Any = causal_mask_function, attention_mask: Any = None, local_size: int | None = None,
    allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, **rest: Any,
) -> Any:  # fmt: skip
    """The mask as for "sdpa", but what parameters say is not written out. A ValueError for a model with attention of its
    own, which would take it for another kind."""
    own, mixed = _own_attention(type(rest.get("config")))
    if own:
        raise ValueError(
            "[attn.transformers] expected a model whose attention goes by transformers' interface; found one with its own, "
            f"in {own}; {_EAGER}"
        )
    pattern = None if torch.compiler.is_compiling() else _pattern(mask_function)
    causal, reach, sequences = pattern or (None, None, None)
    if causal:  # a skip is forbidden where something else changes the mask; packed texts, which are known, forbid it too
        known, filled = allow_is_causal_skip or sequences is not None, int(q_offset) + q_length - kv_offset
    else:
        square = q_length == kv_length and not isinstance(q_offset, torch.Tensor) and q_offset == kv_offset
        known, filled = allow_is_bidirectional_skip and (reach is None or square), kv_length
    length = None if attention_mask is None or attention_mask.ndim != 2 else attention_mask.shape[1] - kv_offset
    if pattern and length is not None and length not in (filled, kv_length):
        raise ValueError(
            f"[attn.transformers] expected an attention_mask with a column for each of {filled + kv_offset} keys; found "
            f"{tuple(attention_mask.shape)}"
        )
    if (
        pattern and known and filled <= kv_length
        and (attention_mask is None or length in (filled, kv_length))
    ):  # fmt: skip
        seen = None if attention_mask is None else attention_mask[:, kv_offset : kv_offset + filled].bool()
        seen = None if seen is None or bool(seen.all()) else seen.expand(batch_size, -1)
        reach = reach if reach is not None and reach < kv_length else None
        all_of_them = filled == kv_length and (not causal or q_length == 1)
        if seen is not None or reach is not None or sequences is not None or not all_of_them:
            return LazyMask.of((batch_size, 1, q_length, kv_length), reach, seen, causal=bool(causal), sequences=sequences,
                               filled=filled)  # fmt: skip
        attention_mask = local_size = None
    write: Any = eager_mask if mixed else sdpa_mask  # numbers are right for layers that add them to scores, too
    return write(
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        local_size=local_size, allow_is_causal_skip=allow_is_causal_skip and q_length == 1,
        allow_is_bidirectional_skip=allow_is_bidirectional_skip, **rest,
    )  # fmt: skip


AttentionInterface.register("attn", attention_forward)
AttentionMaskInterface.register("attn", mask)
