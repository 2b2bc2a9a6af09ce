"""attn.rotary for PyTorch's tensors, whose gradient is the rotation back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attn import _attn
from attn._arguments import TORCH
from attn.torch import operator


class Rotary(torch.autograd.Function):
    """(x, what it is turned by, back): the rotation is linear, so its gradient is a rotation too, the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, given: Any, back: bool) -> Tensor:
        ctx.given, ctx.back = given, back
        inv_freq, factor, *tensors, offset, interleaved = given
        cos, sin, positions = operator.bare(tensors)
        (bare_x,) = operator.bare((x,))
        call: Any = _attn.rotary
        return call(bare_x, inv_freq, factor, cos, sin, positions, offset, interleaved, back, TORCH)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        return Rotary.apply(dy, ctx.given, not ctx.back), None, None


@torch.compiler.disable
def turned(x: Tensor, given: Any) -> Tensor:
    """By (inv_freq, attention_factor, cos, sin, positions, offset, interleaved). A break in a graph of torch.compile."""
    inv_freq, factor, cos, sin, positions, offset, interleaved = given
    tensors = (None if t is None else torch.as_tensor(t).detach() for t in (cos, sin, positions))
    if isinstance(inv_freq, Tensor):
        inv_freq = inv_freq.detach()
    return Rotary.apply(x, (inv_freq, factor, *tensors, offset, interleaved), False)
