"""attn.rotary for PyTorch's tensors, whose gradient is the rotation back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attn import _attn
from attn._arguments import TORCH
from attn.torch import modes, operator


class Rotary(torch.autograd.Function):
    """(x, what it is turned by, back): linear, so its derivative is the same rotation, and its gradient the one back."""

    @staticmethod
    def forward(x: Tensor, given: Any, back: bool) -> Tensor:
        inv_freq, factor, *tensors, offset, interleaved = given
        cos, sin, positions = operator.bare(tensors)
        (bare_x,) = operator.bare((x,))
        call: Any = _attn.rotary
        return call(bare_x, inv_freq, factor, cos, sin, positions, offset, interleaved, back, TORCH)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.given, ctx.back = inputs

    @staticmethod
    def jvp(ctx: Any, dx: Tensor, *_: Any) -> Tensor:
        return Rotary.apply(dx, ctx.given, ctx.back)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        modes.refuse_batched("rotary", dy)
        return Rotary.apply(dy, ctx.given, not ctx.back), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return modes.one_by_one(Rotary.apply)(info, in_dims, *args)


@torch.compiler.disable
def turned(x: Tensor, given: Any) -> Tensor:
    """By (inv_freq, attention_factor, cos, sin, positions, offset, interleaved). A break in a graph of torch.compile."""
    inv_freq, factor, cos, sin, positions, offset, interleaved = given
    modes.refuse_tracing("rotary")
    modes.refuse_followed("rotary", cos=cos, sin=sin, inv_freq=inv_freq)
    tensors = (None if t is None else torch.as_tensor(t).detach() for t in (cos, sin, positions))
    if isinstance(inv_freq, Tensor):
        inv_freq = inv_freq.detach()
    return Rotary.apply(x, (inv_freq, factor, *tensors, offset, interleaved), False)
