"""The book's classes as torch.nn modules on this library's kernels: the same constructors, parameters and numbers.

Change `class MultiHeadAttention(nn.Module)` to `from attn.torch import MultiHeadAttention`. State dicts go both ways;
the book's causal mask, a buffer named "mask", is not needed: another one is an error when loading, and none is saved.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from attn._arguments import flag, integer, probability
from attn._module_input import module_and_input
from attn.torch.functional import scaled_dot_product_attention


def _some_of(module: Any) -> tuple[Tensor, ...]:
    return tuple(p.detach().flatten()[:8].clone() for p in module.parameters())


def _rate(dropout: nn.Module | None, op: str) -> float:
    """The probability at which weights are dropped now. The kernels draw the mask, so that nothing else of it can act."""
    if dropout is None:
        return 0.0
    if type(dropout) not in (nn.Dropout, nn.Identity):
        raise TypeError(f"[{op}] expected dropout as nn.Dropout or nn.Identity; found {type(dropout).__name__}")
    if any(vars(dropout).get(name) for name in _CALLED):
        raise TypeError(
            f"[{op}] expected dropout without hooks or another forward(), since no weights are handed to it; found one; "
            "steps() has the weights"
        )
    return dropout.p if isinstance(dropout, nn.Dropout) and dropout.training else 0.0


_CALLED = ("_forward_pre_hooks", "forward", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def _context(length: Any, op: str) -> int:
    """The longest input; 0 is any."""
    length = integer(length, op, "context_length")
    if length < 0:
        raise ValueError(f"[{op}] expected context_length of at least 0 (0: any); found {length}")
    return length


def _mask_errors(mask: Any, name: str, context_length: int) -> list[str]:
    """What keeps a stored mask from being the causal one, which these modules make themselves."""
    if mask is None:
        return []
    tokens = context_length or (mask.shape[-1] if mask.ndim else 0)
    if tuple(mask.shape) != (tokens, tokens):
        return [f"expected {name} ({tokens}, {tokens}), for context_length = {context_length}; found {tuple(mask.shape)}"]
    if not torch.equal(mask.bool(), torch.ones(tokens, tokens, dtype=torch.bool, device=mask.device).triu(1)):
        return [f"expected {name} that hides the keys after each query; found another mask, which would not be used"]
    return []


class _Steps(nn.Module):
    def steps(self, x: Tensor) -> dict[str, Tensor]:
        """Every step of forward(x) by name, in its order: queries, keys, values, scores, …; without gradients or dropout.

        Args:
            x: (tokens, d_in) or (batch, tokens, d_in), or a text, whose words become vectors by attn.embed_words.
        """
        module, inputs, _ = module_and_input("steps", self, x, None)
        if module is None:
            wanted = "a module whose class is attn.torch's own"
            raise TypeError(f"[steps] expected {wanted}; found {type(self).__module__}.{type(self).__qualname__}")
        return {name: torch.as_tensor(step) for name, step in module.steps(inputs).items()}


class _Attention(_Steps):
    _drawn: tuple[Tensor, ...] = ()

    def _remember(self) -> None:
        """Some of the weights as they were drawn: reports say whether they are still random."""
        self._drawn = _some_of(self)

    def _random(self) -> bool:
        pairs = zip(self._drawn, _some_of(self))
        return bool(self._drawn) and all(
            not a.is_meta and a.dtype == b.dtype and torch.equal(a, b.cpu()) for a, b in pairs
        )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if hasattr(self, "context_length"):  # a module with a mask
            stored, tokens = state_dict.pop(prefix + "mask", None), cast(int, self.context_length)
            args[-1].extend(_mask_errors(stored, prefix + "mask", tokens))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _project(self: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _takes(self, x)
        return self.W_query(x), self.W_key(x), self.W_value(x)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        return scaled_dot_product_attention(
            q, k, v, dropout_p=_rate(getattr(self, "dropout", None), type(self).__name__), is_causal=is_causal
        )


class SelfAttention_v1(_Attention):
    """Self-attention whose weights are torch.rand(d_in, d_out)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Parameter(torch.rand(d_in, d_out)) for _ in range(3))
        self._remember()

    def forward(self, x: Tensor) -> Tensor:
        """x (…, tokens, d_in): (…, tokens, d_out)."""
        _takes(self, x)
        return self._attend(x @ self.W_query, x @ self.W_key, x @ self.W_value)


class SelfAttention_v2(_Attention):
    """Self-attention with nn.Linear's weights."""

    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False) -> None:
        super().__init__()
        bias = flag(qkv_bias, type(self).__name__, "qkv_bias")
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out, bias=bias) for _ in range(3))
        self._remember()

    def forward(self, x: Tensor) -> Tensor:
        """x (…, tokens, d_in): (…, tokens, d_out)."""
        return self._attend(*self._project(x))


class CausalAttention(SelfAttention_v2):
    """One causal head with dropout on its weights."""

    def __init__(self, d_in: int, d_out: int, context_length: int, dropout: float, qkv_bias: bool = False) -> None:
        super().__init__(d_in, d_out, qkv_bias)
        self.d_out, self.context_length = d_out, _context(context_length, "CausalAttention")
        self.dropout = nn.Dropout(probability(dropout, "CausalAttention", "dropout"))

    def forward(self, x: Tensor) -> Tensor:
        """x (…, tokens, d_in), at most context_length tokens: (…, tokens, d_out)."""
        return self._attend(*self._project(x), is_causal=True)


class MultiHeadAttentionWrapper(_Steps):
    """num_heads CausalAttention side by side: (…, tokens, d_out · num_heads)."""

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False
    ) -> None:
        super().__init__()
        num_heads = integer(num_heads, "MultiHeadAttentionWrapper", "num_heads")
        if num_heads < 1:
            raise ValueError(f"[MultiHeadAttentionWrapper] expected num_heads of at least 1; found {num_heads}")
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias) for _ in range(num_heads)
        )

    def _random(self) -> bool:
        return all(cast(CausalAttention, head)._random() for head in self.heads)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class MultiHeadAttention(_Attention):
    """num_heads slices of one projection, and an output projection: (batch, tokens, d_out)."""

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False
    ) -> None:
        super().__init__()
        d_out = integer(d_out, "MultiHeadAttention", "d_out")
        num_heads = integer(num_heads, "MultiHeadAttention", "num_heads")
        if num_heads < 1 or d_out % num_heads != 0:
            found = f"d_out = {d_out}, num_heads = {num_heads}"
            raise ValueError(f"[MultiHeadAttention] expected d_out divisible by num_heads; found {found}")
        self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
        self.context_length = _context(context_length, "MultiHeadAttention")
        self.dropout = nn.Dropout(probability(dropout, "MultiHeadAttention", "dropout"))
        bias = flag(qkv_bias, "MultiHeadAttention", "qkv_bias")
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out, bias=bias) for _ in range(3))
        self.out_proj = nn.Linear(d_out, d_out)
        self._remember()

    def forward(self, x: Tensor) -> Tensor:
        """x (…, tokens, d_in), at most context_length tokens: (…, tokens, d_out)."""
        q, k, v = (each.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2) for each in self._project(x))
        context = self._attend(q, k, v, is_causal=True)  # (…, heads, tokens, head_dim)
        return self.out_proj(context.transpose(-3, -2).flatten(-2))


def _takes(module: Any, x: Any) -> None:
    """PyTorch itself would speak of matrices m1 and m2."""
    if not isinstance(x, Tensor):
        hint = "; torch.from_numpy(attn.embed_words(text, d_in)) makes one of a text" if isinstance(x, str) else ""
        raise TypeError(f"[{type(module).__name__}] expected x as torch.Tensor; found {type(x).__name__}{hint}")
    if x.is_nested:
        raise NotImplementedError(
            f"[{type(module).__name__}] expected no nested tensor; found one; use torch.nested.to_padded_tensor, whose rows of "
            "padding a causal module's other rows do not see"
        )
    weight = getattr(module.W_query, "weight", module.W_query)  # a quantised layer's is no tensor, or one of integers
    differs = isinstance(weight, Tensor) and weight.is_floating_point() and weight.dtype != x.dtype
    if differs and not torch.is_autocast_enabled("cpu"):
        raise RuntimeError(
            f"[{type(module).__name__}] expected x of the weights' dtype, {weight.dtype}; found {x.dtype}; convert it "
            f"with .to({weight.dtype})"
        )
    if x.ndim < 2:
        raise ValueError(f"[{type(module).__name__}] expected x (…, tokens, d_in); found {tuple(x.shape)}")
    if x.shape[-2] > (getattr(module, "context_length", 0) or x.shape[-2]):
        raise ValueError(
            f"[{type(module).__name__}] expected at most context_length = {module.context_length} tokens; "
            f"found {x.shape[-2]}"
        )
