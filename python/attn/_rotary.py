"""rotary: rotary positions (Su et al. 2021, "RoFormer"), for any framework, and the frequencies of released models."""

from __future__ import annotations

from collections import namedtuple
from numbers import Real

from attn import _attn
from attn._arguments import DLPACK, TORCH, framework, int64, take, without_gradient

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from typing import Any

    from attn._types import A, Array, Config, Integers

RotaryFrequencies = namedtuple("RotaryFrequencies", ["inv_freq", "attention_factor"], defaults=[1.0])
RotaryFrequencies.__doc__ = (
    "How fast each pair turns: inv_freq (rotary_dim / 2) in radians a token; and what cos and sin are multiplied by."
)


def rotary_frequencies(config: dict[str, Any] | Config, layer_type: str = "", *, length: int = 0) -> RotaryFrequencies:
    """The frequencies of a model, as transformers computes them: default, linear, dynamic, yarn, llama3, longrope.

    Args:
        config: what config.json says, as a dict or as Hugging Face's config object: head_dim (or hidden_size and
            num_attention_heads), rope_theta and rope_scaling, or rope_parameters; and what their rope_type needs.
        layer_type: "full_attention", "sliding_attention", …: which of the parameters, where they differ by layer.
        length: how many positions they are to serve. dynamic and longrope depend on it.

    Raises:
        ValueError: what is no such config, another rope_type, or numbers that give no finite frequencies.
    """
    import json

    if not isinstance(config, dict) and not hasattr(config, "to_dict"):
        wanted = "config as a dict, or Hugging Face's config object"
        raise TypeError(f"[rotary_frequencies] expected {wanted}; found {type(config).__name__}")
    written = config if isinstance(config, dict) else config.to_dict()
    try:
        text = json.dumps({key: written[key] for key in _KEYS if key in written}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"[rotary_frequencies] expected a config of finite numbers, texts and lists; {error}") from error
    return RotaryFrequencies(*_attn.rotary_frequencies(text, layer_type, length))


_KEYS = (
    "head_dim", "hidden_size", "num_attention_heads", "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq",
    "partial_rotary_factor", "max_position_embeddings", "original_max_position_embeddings",
)  # fmt: skip


def rotary(
    x: A, positions: Integers | None = None, *, offset: int = 0, theta: float = 10000.0,
    rotary_dim: int | None = None, interleaved: bool = False, frequencies: RotaryFrequencies | None = None,
    cos: Array | None = None, sin: Array | None = None,
) -> A:  # fmt: skip
    """x with its pairs of numbers turned by angles that grow with the position, so that query · key depends on the distance.

    Computed in float32 whatever x is (in float64 for float64). The result is of x's framework; with PyTorch's tensors
    gradients flow to x, of any order.

    Args:
        x: (…, tokens, head_dim): queries or keys, (b, h, t, d) say, of any strides.
        positions: integers (t), or (b, t) where b is x's first size; default `offset` and what follows.
        offset: the first token's position, where neither positions nor cos say it.
        theta: pair i turns by theta^(-2i / rotary_dim) radians a token.
        rotary_dim: how many of a vector's first numbers turn; default all.
        interleaved: numbers 2i and 2i + 1 are a pair; else i and i + rotary_dim / 2, as Hugging Face's models have them.
        frequencies: of rotary_frequencies(config), or RotaryFrequencies(inv_freq): in place of theta and rotary_dim.
        cos: what to turn by, (t, rotary_dim / 2) or (b, t, rotary_dim / 2); with positions (n, rotary_dim / 2), a row a
            position. In place of theta, rotary_dim and frequencies.
        sin: likewise.

    Raises:
        TypeError: what is no array, or has a dtype that does not fit.
        ValueError: a shape or an option that does not fit, or a position below 0 or past the rows of cos.
    """
    kind = framework(x)
    if (cos is None) != (sin is None):
        raise ValueError("[rotary] expected cos and sin, or neither; found one of them")
    turns = "cos and sin" if cos is not None else "frequencies" if frequencies is not None else ""
    others = {"theta": theta != 10000.0, "rotary_dim": rotary_dim is not None}
    _alone(turns, others | {"frequencies": frequencies is not None and cos is not None})
    _alone("positions" if positions is not None else "cos and sin" if cos is not None else "", {"offset": offset != 0})
    inv_freq, factor = None, 1.0
    if cos is None:
        if frequencies is None:
            frequencies = _of_theta(theta, _width(x) if rotary_dim is None else rotary_dim)
        elif not isinstance(frequencies, RotaryFrequencies):
            raise TypeError(f"[rotary] expected frequencies as RotaryFrequencies; found {type(frequencies).__name__}")
        inv_freq, factor = frequencies
    given = (inv_freq, factor, cos, sin, int64(positions, "positions", "rotary"), offset, interleaved)
    if kind == TORCH:
        from attn.torch.rotary import turned

        return turned(x, given)
    for array in (cos, sin, inv_freq):
        without_gradient(array, "rotary", "pass x as a tensor of PyTorch, or .detach()")
    result: Any = _attn.rotary(x, *given, False, kind)
    return take(result, x) if kind == DLPACK else result


def _alone(given: str, others: dict[str, bool]) -> None:
    """Refuses what would have no effect beside `given`, if that is something."""
    for name, there in others.items():
        if given and there:
            raise ValueError(f"[rotary] expected {given} without {name}, in whose place they are; found both")


def _width(x: Any) -> int:
    try:
        return x.shape[-1]
    except (AttributeError, IndexError):
        found = type(x).__name__
        raise TypeError(f"[rotary] expected x as an array (…, tokens, head_dim); found {found}") from None


def _of_theta(theta: float, rotary_dim: Any) -> RotaryFrequencies:
    if not isinstance(theta, Real):
        raise TypeError(f"[rotary] expected theta as a number; found {type(theta).__name__}")
    if not isinstance(rotary_dim, int):
        raise TypeError(f"[rotary] expected rotary_dim as an integer; found {type(rotary_dim).__name__}")
    if rotary_dim < 2 or rotary_dim % 2:
        raise ValueError(f"[rotary] expected rotary_dim as an even integer of at least 2; found {rotary_dim!r}")
    return rotary_frequencies({"head_dim": rotary_dim, "rope_theta": float(theta)})
