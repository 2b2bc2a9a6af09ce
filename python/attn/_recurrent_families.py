"""use_recurrences: transformers' delta rules and short convolutions by this library. A part of attn.transformers."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from attn._arguments import flag
from attn.torch import causal_convolution, gated_delta_rule

# MiniMax's lightning attention is written out in its layer: there is no function to take the place of.
_FAMILIES = (
    "bailing_hybrid", "glm5_next", "kimi_linear", "lara_mini", "olmo_hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_next",
    "qwen4_exp",
)  # fmt: skip
_theirs: dict[tuple[str, str], Any] = {}


def use_recurrences(on: bool = True) -> list[str]:
    """From now on gated delta rules, Kimi's rule and the convolutions before them are computed by this library.

    In place of transformers' functions in PyTorch, in models that exist and in those to come: Qwen3-Next, Qwen3.5, OLMo
    Hybrid, Kimi Linear, GLM-5.3, Ling 3 and Lara; gradients flow, and packed texts (cu_seq_lens_q) stay apart, which
    transformers refuses without packages for GPUs. Several of them take use_cache=False: where a model has a cache, its
    masks take a row for one text. `on=False` gives transformers' own back.

    Returns:
        The families of this version of transformers that have such functions.
    """
    on = flag(on, "use_recurrences", "on")
    found = []
    for family in _FAMILIES:
        name = f"transformers.models.{family}.modeling_{family}"
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        found.append(family)
        for function, ours in _OURS.items():
            if not hasattr(module, function):
                continue
            theirs = _theirs.setdefault((name, function), getattr(module, function))
            setattr(module, function, functools.wraps(theirs)(functools.partial(ours, theirs)) if on else theirs)
    return found


def _rule(
    theirs: Any, query: Any, key: Any, value: Any, g: Any, beta: Any, chunk_size: int = 64, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Any = None, **rest: Any,
) -> Any:  # fmt: skip
    """What else is handed over, transformers' own functions pass over too. They compute all in float32."""
    dtype = query.dtype
    if not dtype == key.dtype == value.dtype:
        query, key, value = query.float(), key.float(), value.float()
    starts = _starts(cu_seqlens, rest)
    _refuse_cache(starts, output_final_state)
    output, state = gated_delta_rule(
        query, key, value, g, beta, initial_state=initial_state, output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, cu_seqlens=starts,
    )  # fmt: skip
    return output.to(dtype), state


def _refuse_cache(starts: Any, keeps_state: bool) -> None:
    """A model with a cache tells packed texts apart in no mask: its layers of softmax attention would mix them."""
    if keeps_state and starts is not None and len(starts) > 2:
        raise ValueError(
            "[attn.transformers] expected packed texts without a cache, which keeps one text a row; found "
            f"{len(starts) - 1} texts and a cache; pass use_cache=False"
        )


def _starts(cu_seqlens: Any, rest: dict[str, Any]) -> Any:
    """Where packed texts begin, by any of the names that transformers hands it over; they must not contradict each other."""
    texts, starts = rest.get("seq_idx"), rest.get("cu_seq_lens_q") if cu_seqlens is None else cu_seqlens
    if texts is None:
        return starts
    if len(texts) > 1:
        raise ValueError(f"[attn.transformers] expected seq_idx of a batch of 1; found {tuple(texts.shape)}")
    by_texts = torch.nn.functional.pad(texts[0].unique_consecutive(return_counts=True)[1].cumsum(0), (1, 0))
    if starts is not None and starts.tolist() != by_texts.tolist():
        raise ValueError(
            "[attn.transformers] expected seq_idx and cu_seq_lens_q of the same texts; found texts that begin at "
            f"{by_texts.tolist()} and at {starts.tolist()}"
        )
    return by_texts


def _step(
    theirs: Any, query: Any, key: Any, value: Any, g: Any, beta: Any, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Any = None, chunk_size: int = 64,
    **rest: Any,
) -> Any:  # fmt: skip
    return _rule(
        theirs, query, key, value, g, beta, chunk_size, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens, **rest
    )


def _fits(weight: Any, activation: Any) -> bool:
    return activation in (None, "silu", "swish") and weight.shape[-1] <= 8


def _convolution(
    theirs: Any, hidden_states: Any, weight: Any, bias: Any = None, activation: Any = None, **rest: Any
) -> Any:
    """hidden_states (b, c, t)."""
    if not _fits(weight, activation):
        return theirs(hidden_states, weight, bias, activation, **rest)
    starts, silu = _starts(None, rest), activation is not None
    return causal_convolution(hidden_states.transpose(1, 2), weight, bias, silu=silu, cu_seqlens=starts).transpose(1, 2)


def _convolution_step(
    theirs: Any, hidden_states: Any, conv_state: Any, weight: Any, bias: Any = None, activation: Any = None
) -> Any:
    """conv_state (b, c, k) has the tokens before, and is changed."""
    if not _fits(weight, activation) or conv_state.shape[-1] < weight.shape[-1] - 1:
        return theirs(hidden_states, conv_state, weight, bias, activation)
    before = conv_state[..., conv_state.shape[-1] - weight.shape[-1] + 1 :].to(hidden_states.dtype, copy=True)
    conv_state.copy_(torch.cat([conv_state, hidden_states.to(conv_state.dtype)], -1)[..., -conv_state.shape[-1] :])
    x, silu = hidden_states.transpose(1, 2), activation is not None
    return causal_convolution(x, weight, bias, silu=silu, initial_state=before).transpose(1, 2)


_OURS: dict[str, Any] = {
    "torch_chunk_gated_delta_rule": _rule, "torch_recurrent_gated_delta_rule": _step,
    "chunk_kimi_delta_attention": _rule, "recurrent_kimi_delta_attention": _step,
    "causal_conv1d_fn": _convolution, "causal_conv1d_update": _convolution_step,
}  # fmt: skip
