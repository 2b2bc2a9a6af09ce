"""The notebooks' modules, for arrays: initial weights, names and numbers are PyTorch's, without PyTorch.

    attn.manual_seed(123)
    mha = attn.MultiHeadAttention(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
    z = mha(x)                 # x (tokens, d_in) or (batch, tokens, d_in), float32
    dx = mha.backward(dz)      # and mha.parameters()[i].grad

As in PyTorch, a module starts in train mode (dropout acts), and weights are drawn from attn.manual_seed's generator
when it is made. For a PyTorch training loop take the modules of attn.torch, which autograd knows.
"""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, TORCH, framework, named, stream_of, take
from attn._random import Generator, default_generator
from attn.words import WORD_SIZE, embed_words

__all__ = [
    "AveragePast", "CausalAttention", "CrossAttention", "DeltaNet", "GatedDeltaNet", "LatentAttention",
    "LinearAttention", "Module", "MultiHeadAttention", "MultiHeadAttentionWrapper", "Parameter", "SelfAttention_v1",
    "SelfAttention_v2", "SelfAttentionHead", "SimplifiedSelfAttention",
]  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from attn._rotary import RotaryFrequencies
    from collections.abc import Mapping
    from typing import Any, overload

    from attn._types import A, Array, B, Float32
else:

    def overload(signature):
        return signature


class Parameter:
    """One weight: name as in PyTorch's state_dict, value and grad as NumPy arrays.

    `value` is the module's own memory: change it in place (p.value -= 0.1 * p.grad). `grad` is None until backward().
    """

    def __init__(self, module: Module, name: str) -> None:
        self._module, self.name = module, name

    @property
    def value(self) -> Float32:
        """The weight itself, in the module's memory."""
        return self._module._layer.parameters()[self.name][0]

    @value.setter
    def value(self, array: Float32) -> None:
        self.value[...] = array

    @property
    def grad(self) -> Float32 | None:
        """What backward() has added up since zero_grad()."""
        return self._module._layer.parameters()[self.name][1]

    def __repr__(self) -> str:
        return f"Parameter({self.name!r}, shape={self.value.shape})"


class Module:
    """What all modules have: called with an input, they return their output.

    An input is an array, or a text, whose words become vectors by attn.embed_words.
    """

    _layer: _attn.Layer

    def _make(self, kind: str, given: dict[str, Any]) -> None:
        """`given` has the arguments of the class, by name."""
        config = {name: value for name, value in given.items() if name not in ("self", "generator")}
        generator = given.get("generator")
        self._generator = default_generator if generator is None else generator
        self._layer = _attn.Layer(kind, stream_of(self._generator, type(self).__name__), config)
        self.train()

    @overload
    def __call__(self, x: str) -> Float32: ...
    @overload
    def __call__(self, x: A) -> A: ...
    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    @overload
    def forward(self, x: str) -> Float32: ...
    @overload
    def forward(self, x: A) -> A: ...
    def forward(self, x: Any) -> Any:
        """x (tokens, d_in) or (batch, tokens, d_in), float32, of any framework; the result is of the same. Or a text."""
        return self._run(x, None, False)

    @overload
    def steps(self, x: str) -> dict[str, Float32]: ...
    @overload
    def steps(self, x: A) -> dict[str, A]: ...
    def steps(self, x: Any) -> Any:
        """Runs forward(x), and returns every step of it by name, in its order: queries, keys, values, scores, …"""
        return self._run(x, None, True)[1]

    def backward(self, d_output: A) -> A:
        """Returns the gradient of the last forward pass's input, and adds to every parameter's grad.

        A CrossAttention returns two gradients: of x, and of the source.

        Args:
            d_output: the gradient of the output, of its shape.
        """
        kind = framework(d_output)
        dx, d_source = self._layer.backward(d_output, kind)
        if kind == DLPACK:
            dx, d_source = take(dx, d_output), take(d_source, d_output)
        both: Any = dx if d_source is None else (dx, d_source)
        return both

    def parameters(self) -> list[Parameter]:
        """The weights, in the order of PyTorch's state_dict."""
        return [Parameter(self, name) for name in self._layer.parameters()]

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self._layer.zero_grad()

    def state_dict(self) -> dict[str, Float32]:
        """The weights by PyTorch's names, as NumPy arrays of the module's own memory."""
        return {name: value for name, (value, _) in self._layer.parameters().items()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Takes the weights in `state`, by PyTorch's names and of any framework.

        The book's "mask" buffers are passed over. Every weight must be there, with its shape, and nothing else.
        Otherwise ValueError is raised, and nothing is changed.
        """
        weights = {name: array for name, array in named(state).items() if name.rpartition(".")[2] != "mask"}
        self._layer.load({name: _detached(array) for name, array in weights.items()})

    def train(self, mode: bool = True) -> Module:
        """Dropout acts in train mode only."""
        self.training = mode
        self._layer.train(mode)
        return self

    def eval(self) -> Module:
        """Dropout does nothing from here on."""
        return self.train(False)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            try:
                return _part(self, name)
            except KeyError:
                pass
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        shapes = ", ".join(f"{p.name} {p.value.shape}" for p in self.parameters())
        return f"{type(self).__name__}({shapes})"

    def _embedded(self, text: Any) -> Any:
        """A text's words as vectors of as many numbers as the weights take; an array as it is."""
        if not isinstance(text, str):
            return text
        first = next(iter(self.state_dict().items()), None)  # the projection of queries: (d_in, d_out), or Linear's
        return embed_words(text, first[1].shape[first[0].endswith(".weight")] if first else WORD_SIZE)

    def _run(self, x: Any, source: Any, with_steps: bool) -> Any:
        x, source = self._embedded(x), self._embedded(source)
        if framework(x) == TORCH and x.requires_grad:
            raise ValueError(
                f"[{type(self).__name__}] expected an input that autograd does not follow; found one with "
                f"requires_grad; use attn.torch.{type(self).__name__}, or call backward() here"
            )
        kind = framework(x)
        result: Any = self._layer.forward(x, source, with_steps, kind)
        if kind != DLPACK:
            return result
        if not with_steps:
            return take(result, x)
        return take(result[0], x), {name: take(step, x) for name, step in result[1].items()}


class Linear:
    """A projection inside a module: weight (d_out, d_in), bias (d_out) or None, and y = x · weightᵀ + bias."""

    def __init__(self, module: Module, prefix: str) -> None:
        self._module, self._prefix = module, prefix

    @property
    def weight(self) -> Float32:
        """(d_out, d_in)"""
        return self._module.state_dict()[self._prefix + ".weight"]

    @property
    def bias(self) -> Float32 | None:
        """(d_out)"""
        return self._module.state_dict().get(self._prefix + ".bias")

    def __call__(self, x: Array) -> Float32:
        y: Any = _attn.matmul(x, self.weight.T)
        return y if self.bias is None else y + self.bias


class Head:
    """One head of the wrapper: its projections by name."""

    def __init__(self, module: Module, prefix: str) -> None:
        self._module, self._prefix = module, prefix

    def __getattr__(self, name: str) -> Any:
        return _part(self._module, f"{self._prefix}.{name}")


def _part(module: Module, name: str) -> Any:
    """A parameter, a Linear or the heads, by its name in the state_dict."""
    state = module.state_dict()
    if name in state:
        return state[name]
    if name + ".weight" in state:
        return Linear(module, name)
    if name == "heads" and "heads.0.W_query.weight" in state:
        count = sum(key.endswith("W_query.weight") for key in state)
        return [Head(module, f"heads.{i}") for i in range(count)]
    raise KeyError(name)


def _detached(array: Any) -> Any:
    return array.detach() if framework(array) == TORCH else array


class SimplifiedSelfAttention(Module):
    """softmax(x · xᵀ) · x, without weights."""

    def __init__(self) -> None:
        self._make("simple", locals())


class AveragePast(Module):
    """Row i becomes the mean of rows 0 to i."""

    def __init__(self) -> None:
        self._make("average", locals())


class SelfAttention_v1(Module):
    """Self-attention whose weights are torch.rand(d_in, d_out), used as x · W.

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        generator: what the weights and the dropout are drawn from; default the one that attn.manual_seed seeds.
    """

    def __init__(self, d_in: int, d_out: int, *, generator: Generator | None = None) -> None:
        self._make("self-v1", locals())


class SelfAttention_v2(Module):
    """Self-attention with nn.Linear's weights.

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        qkv_bias: whether the three projections add a bias.
        layer_order: in which order weights are drawn: "qkv" (the book), or "kqv".
        generator: what the weights and the dropout are drawn from; default the one that attn.manual_seed seeds.
    """

    def __init__(
        self, d_in: int, d_out: int, qkv_bias: bool = False, *, layer_order: str = "qkv",
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("self-v2", locals())


class SelfAttentionHead(Module):
    """One causal head, not scaled, weights drawn key, query, value.

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        generator: what the weights and the dropout are drawn from; default the one that attn.manual_seed seeds.
    """

    def __init__(self, d_in: int, d_out: int, *, generator: Generator | None = None) -> None:
        self._make("head", locals())


class CausalAttention(Module):
    """One causal head with dropout on its weights.

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        context_length: the longest input, in tokens.
        dropout: probability that a weight is dropped, in train mode.
        qkv_bias: whether the three projections add a bias.
        causal: whether a token sees itself and those before it alone.
        layer_order: in which order weights are drawn: "qkv" (the book), or "kqv".
        rope: how fast queries and keys turn by their positions (attn.rotary_frequencies); default not at all.
        generator: what the weights and the dropout are drawn from; default the one that attn.manual_seed seeds.
    """

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, qkv_bias: bool = False, *,
        causal: bool = True, layer_order: str = "qkv", rope: RotaryFrequencies | None = None,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("causal", locals())


class MultiHeadAttentionWrapper(Module):
    """num_heads CausalAttention side by side: (…, tokens, d_out · num_heads).

    Args:
        d_out: numbers of a token of one head's output.
        num_heads: heads.
        d_in, context_length, dropout, qkv_bias, causal, layer_order, rope, generator: as CausalAttention's.
    """

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False, *,
        causal: bool = True, layer_order: str = "qkv", rope: RotaryFrequencies | None = None,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("heads", locals())


class MultiHeadAttention(Module):
    """num_heads slices of one projection, and an output projection: (…, tokens, d_out).

    Args:
        num_heads: heads; d_out is a multiple of it.
        out_proj: whether an output projection follows the heads.
        d_in, d_out, context_length, dropout, qkv_bias, causal, layer_order, rope, generator: as CausalAttention's.
    """

    def __init__(
        self, d_in: int, d_out: int, context_length: int, dropout: float, num_heads: int, qkv_bias: bool = False, *,
        causal: bool = True, layer_order: str = "qkv", rope: RotaryFrequencies | None = None, out_proj: bool = True,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("multihead", locals())


class CrossAttention(Module):
    """Queries from x, keys and values from a source of any length; no mask. backward() gives (dx, d_source).

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        dropout: probability that a weight is dropped, in train mode.
        num_heads: heads; d_out is a multiple of it.
        qkv_bias: whether the three projections add a bias.
        out_proj: whether an output projection follows the heads.
        generator: what the weights and the dropout are drawn from; default the one that attn.manual_seed seeds.
    """

    def __init__(
        self, d_in: int, d_out: int, dropout: float = 0.0, num_heads: int = 1, qkv_bias: bool = False, *,
        out_proj: bool = True, generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("cross", locals())

    def __call__(self, x: A, source: B) -> A:  # type: ignore[override]
        return self.forward(x, source)

    def forward(self, x: A, source: B) -> A:  # type: ignore[override]
        """x (…, tq, d_in), source (…, tk, d_in), or two texts."""
        return self._run(x, source, False)

    if TYPE_CHECKING:

        def backward(self, d_output: A) -> tuple[A, A]: ...  # type: ignore[override]

    def steps(self, x: A, source: B) -> dict[str, A]:  # type: ignore[override]
        """Runs forward(x, source), and returns every step of it by name, in its order: queries, keys, values, …"""
        return self._run(x, source, True)[1]


class _Recurrent(Module):
    _kind: str

    def __init__(
        self, d_in: int, d_out: int, num_heads: int = 1, qkv_bias: bool = False, *, out_proj: bool = True,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make(self._kind, locals())


class LinearAttention(_Recurrent):
    """A state in place of all keys: softmax(q · k) becomes φ(q) · φ(k) over its sum, φ = elu + 1 (Katharopoulos et al. 2020).

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        num_heads: heads; d_out is a multiple of it.
        qkv_bias: whether the three projections add a bias.
        out_proj: whether an output projection follows the heads.
        generator: what the weights are drawn from; default the one that attn.manual_seed seeds.
    """

    _kind = "linear"


class DeltaNet(_Recurrent):
    """A state that a key overwrites: before a token writes, what its key recalls is taken away (Yang et al. 2024).

    Args:
        d_in, d_out, num_heads, qkv_bias, out_proj, generator: as LinearAttention's.
    """

    _kind = "delta"


class GatedDeltaNet(_Recurrent):
    """A DeltaNet whose state fades by each token's decay, and whose norm has a gate (Yang et al. 2025).

    Args:
        d_in, d_out, num_heads, qkv_bias, out_proj, generator: as LinearAttention's.
    """

    _kind = "gated-delta"


class LatentAttention(Module):
    """Softmax attention whose cache is small: all heads' keys and values are made of one latent (DeepSeek-V2, section 2.1).

    Weights have the names and shapes of DeepSeek-V3's in Hugging Face's transformers, and are drawn in its order:
    q_proj, or with a query_latent q_a_proj, q_a_layernorm and q_b_proj; kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj,
    o_proj. `steps` has "compressed" (the down-projection), "latents" (its norm), "queries", "keys", "values", …

    Args:
        d_in: numbers of a token of the input.
        d_out: numbers of a token of the output.
        num_heads: heads.
        qkv_bias: whether q_a_proj, kv_a_proj_with_mqa and o_proj add a bias (`attention_bias` in a config.json).
        latent: numbers of a token's latent (kv_lora_rank); default half of d_out, and at least 2.
        query_latent: numbers of a second latent, of which queries are made (q_lora_rank); 0 is none.
        plain: numbers of a head's query and key that do not turn (qk_nope_head_dim); default d_out / num_heads.
        value: numbers of a head's value (v_head_dim); default d_out / num_heads.
        context_length: the longest input, in tokens; 0 is any.
        dropout: probability that a weight is dropped, in train mode.
        causal: whether a token sees itself and those before it alone.
        rope: how fast the rotary part turns (attn.rotary_frequencies). It stands behind the plain part of queries and
            keys, has head_dim numbers of these frequencies (qk_rope_head_dim), and all heads' keys share it. Default: no
            such part.
        interleaved: numbers 2i and 2i + 1 of that part are a pair, as in the weights that DeepSeek released; else i and
            i + head_dim / 2.
        generator: what the weights and the dropout are drawn from; default the one that attn.manual_seed seeds.
    """

    def __init__(
        self, d_in: int, d_out: int, num_heads: int = 1, qkv_bias: bool = False, *, latent: int = 0,
        query_latent: int = 0, plain: int = 0, value: int = 0, context_length: int = 0, dropout: float = 0.0,
        causal: bool = True, rope: RotaryFrequencies | None = None, interleaved: bool = False,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("latent", locals())
