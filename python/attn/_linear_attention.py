"""linear_attention: attention beyond softmax, for any framework; and the convolution that models put before it."""

from __future__ import annotations

from attn import _attn
from attn._arguments import DLPACK, TORCH, flag, framework, int64, take, without_gradient

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from typing import Any, Literal, overload

    from attn._types import A, Array, Integers

if TYPE_CHECKING:

    @overload
    def linear_attention(
        query: A, key: A, value: A, *, rule: str = "plain", decay: Array | None = None, beta: Array | None = None,
        scale: float | None = None, initial_state: Array | None = None, heads: str = "grouped",
        lengths: Integers | None = None, cu_seqlens: Integers | None = None, return_state: Literal[False] = False,
    ) -> A: ...  # fmt: skip

    @overload
    def linear_attention(
        query: A, key: A, value: A, *, rule: str = "plain", decay: Array | None = None, beta: Array | None = None,
        scale: float | None = None, initial_state: Array | None = None, heads: str = "grouped",
        lengths: Integers | None = None, cu_seqlens: Integers | None = None, return_state: Literal[True],
    ) -> tuple[A, A]: ...  # fmt: skip


def linear_attention(
    query: A, key: A, value: A, *, rule: str = "plain", decay: Array | None = None, beta: Array | None = None,
    scale: float | None = None, initial_state: Array | None = None, heads: str = "grouped",
    lengths: Integers | None = None, cu_seqlens: Integers | None = None, return_state: bool = False,
) -> A | tuple[A, A]:  # fmt: skip
    """Attention whose keys and values are kept in a state S (d_k, d_v) of fixed size, for each token in its turn:

        S = exp(decay) · S
        S = S + k ⊗ v                       rule="plain": linear attention, RetNet, GLA, Mamba-2's form
        S = S + k ⊗ beta · (v − Sᵀ k)       rule="delta": DeltaNet, Gated DeltaNet, Kimi Delta Attention
        output = scale · Sᵀ q

    Arrays of NumPy, PyTorch, JAX, or any other with DLPack, in the CPU's memory; results are of query's framework. With
    PyTorch's tensors gradients flow (attn.torch). 16-bit arrays are widened, and the state is float32; float64 is computed
    by plain loops.

    Args:
        query: (b, hq, t, d_k); hq divides hv, or is a multiple of it.
        key: (b, hk, t, d_k); hk divides hv.
        value: (b, hv, t, d_v). There is a state for each of its heads.
        rule: "plain" or "delta". The delta rule takes away first what the state recalls for the key.
        decay: (b, hv, t), or (b, hv, t, d_k) for each row of the state: the logarithm of what is kept; default 0, all.
        beta: (b, hv, t): the delta rule's write strength; default 1.
        scale: default 1/√d_k; 0, or of magnitude from 2^-100 to 2^100.
        initial_state: (n, hv, d_k, d_v), as another call's; default zeros.
        heads: "grouped": query heads that share a state, and value heads that share a key, are neighbours; "tiled": they
            take turns.
        lengths: (b) integers: batch item b has this many tokens, and the rest is padding, whose output is 0.
        cu_seqlens: (n + 1) integers, 0 first: sequences one after the other in the one batch item, each with its state.
        return_state: also return the state after the last token.

    Returns:
        output (b, max(hq, hv), t, d_v) of query's dtype, or (output, state): state (n, hv, d_k, d_v), float32, or float64
        of float64; n is b, or the number of sequences.

    Raises:
        TypeError: what is no array, or has a dtype that does not fit.
        ValueError: a shape or an option that does not fit.
    """
    kind = framework(query)
    if kind == TORCH:
        import attn.torch

        of_torch: Any = attn.torch.linear_attention
        return of_torch(
            query, key, value, rule=rule, decay=decay, beta=beta, scale=scale, initial_state=initial_state, heads=heads,
            lengths=lengths, cu_seqlens=cu_seqlens, return_state=return_state,
        )  # fmt: skip
    op = "linear_attention"
    rows = int64(lengths, "lengths", op), int64(cu_seqlens, "cu_seqlens", op)
    inputs = (*(_unfollowed(each, op) for each in (query, key, value, decay, beta, initial_state)), *rows)
    both = flag(return_state, op, "return_state")
    found: Any = _attn.linear_attention(inputs, rule, scale, heads, kind)
    output, state = (take(each, query) for each in found) if kind == DLPACK else found
    return (output, state) if both else output


def _unfollowed(array: Any, op: str) -> Any:
    return without_gradient(array, op, "pass tensors of PyTorch alone, or .detach()")


def causal_convolution(
    x: A, weight: Array, bias: Array | None = None, *, silu: bool = False, initial_state: Array | None = None,
    cu_seqlens: Integers | None = None, return_state: bool = False,
) -> Any:  # fmt: skip
    """Each channel's last k tokens summed by weights: y[t, c] = bias[c] + Σ_j weight[c, j] · x[t − (k − 1) + j, c].

    Args:
        x: (b, t, c), of a floating dtype, which the results have.
        weight: (c, k), k from 1 to 8; its last number acts on the token itself.
        bias: (c).
        silu: whether the sum goes through x · σ(x).
        initial_state: (n, c, k − 1), the tokens before the first; default zeros.
        cu_seqlens: (n + 1) integers, 0 first: sequences one after the other in the one batch item.
        return_state: also return the last k − 1 tokens, (n, c, k − 1).

    Raises:
        TypeError: what is no array, or has a dtype that does not fit.
        ValueError: a shape or an option that does not fit.
    """
    kind = framework(x)
    if kind == TORCH:
        import attn.torch

        of_torch: Any = attn.torch.causal_convolution
        return of_torch(
            x, weight, bias, silu=silu, initial_state=initial_state, cu_seqlens=cu_seqlens, return_state=return_state
        )
    op = "causal_convolution"
    given = (_unfollowed(each, op) for each in (x, weight, bias, initial_state))
    both = flag(return_state, op, "return_state")
    found: Any = _attn.causal_convolution((*given, int64(cu_seqlens, "cu_seqlens", op)), silu, kind)
    output, state = (take(each, x) for each in found) if kind == DLPACK else found
    return (output, state) if both else output
