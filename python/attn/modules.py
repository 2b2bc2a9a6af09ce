"""The notebooks' modules, for arrays: initial weights, names and numbers are PyTorch's, without PyTorch.

    attn.manual_seed(123)
    mha = attn.MultiHeadAttention(d_in=3, d_out=2, context_length=6, dropout=0.0, num_heads=2)
    z = mha(x)                 # x (tokens, d_in) or (batch, tokens, d_in), float32
    dx = mha.backward(dz)      # and mha.parameters()[i].grad

As in PyTorch, a module starts in train mode (dropout acts), and weights are drawn from attn.manual_seed's generator
when it is made. For a PyTorch training loop take the modules of attn.torch, which autograd knows.
"""

from __future__ import annotations

from attn._module import Module, Parameter

__all__ = [
    "AveragePast", "CausalAttention", "CrossAttention", "DeltaNet", "GatedDeltaNet", "LatentAttention",
    "LinearAttention", "Module", "MultiHeadAttention", "MultiHeadAttentionWrapper", "Parameter", "SelfAttention_v1",
    "SelfAttention_v2", "SelfAttentionHead", "SimplifiedSelfAttention",
]  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from attn._random import Generator
    from attn._rotary import RotaryFrequencies
    from attn._types import A, B


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
        d_in, d_out, generator: as CausalAttention's.
    """

    def __init__(self, d_in: int, d_out: int, *, generator: Generator | None = None) -> None:
        self._make("self-v1", locals())


class SelfAttention_v2(Module):
    """Self-attention with nn.Linear's weights.

    Args:
        d_in, d_out, qkv_bias, layer_order, generator: as CausalAttention's.
    """

    def __init__(
        self, d_in: int, d_out: int, qkv_bias: bool = False, *, layer_order: str = "qkv",
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("self-v2", locals())


class SelfAttentionHead(Module):
    """One causal head, not scaled, weights drawn key, query, value.

    Args:
        d_in, d_out, generator: as CausalAttention's.
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
        d_in, d_out, dropout, qkv_bias, generator: as CausalAttention's.
        num_heads, out_proj: as MultiHeadAttention's.
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
        d_in, d_out, qkv_bias, generator: as CausalAttention's.
        num_heads, out_proj: as MultiHeadAttention's.
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
        qkv_bias: whether q_a_proj, kv_a_proj_with_mqa and o_proj add a bias (`attention_bias` in a config.json).
        latent: numbers of a token's latent (kv_lora_rank); default half of d_out, and at least 2.
        query_latent: numbers of a second latent, of which queries are made (q_lora_rank); 0 is none.
        plain: numbers of a head's query and key that do not turn (qk_nope_head_dim); default d_out / num_heads.
        value: numbers of a head's value (v_head_dim); default d_out / num_heads.
        context_length: the longest input, in tokens; 0 is any.
        rope: how fast the rotary part turns (attn.rotary_frequencies). It stands behind the plain part of queries and
            keys, has head_dim numbers of these frequencies (qk_rope_head_dim), and all heads' keys share it. Default: no
            such part.
        interleaved: numbers 2i and 2i + 1 of that part are a pair, as in the weights that DeepSeek released; else i and
            i + head_dim / 2.
        num_heads: heads.
        d_in, d_out, dropout, causal, generator: as CausalAttention's.
    """

    def __init__(
        self, d_in: int, d_out: int, num_heads: int = 1, qkv_bias: bool = False, *, latent: int = 0,
        query_latent: int = 0, plain: int = 0, value: int = 0, context_length: int = 0, dropout: float = 0.0,
        causal: bool = True, rope: RotaryFrequencies | None = None, interleaved: bool = False,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        self._make("latent", locals())
