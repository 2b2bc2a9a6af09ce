"""attn.distributed.attention with gradients."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch
from torch import Tensor

from attn import _attn
from attn._arguments import TORCH
from attn._ranks import refuse
from attn.torch import modes, operator


def prepared(inputs: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], bool]:
    """The inputs as autocast has them, and whether derivatives are followed: those of forward mode are refused then."""
    modes.refuse_gradient(options.get("alibi_slopes"))
    if torch.is_autocast_enabled("cpu"):
        inputs = modes.autocast(inputs)
    follows = torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in inputs)
    return inputs, follows or modes.transformed()


def copied(options: dict[str, Any]) -> dict[str, Any]:
    """The options with arrays of their own, as the backward pass reads them again, whatever became of the caller's."""
    own = {name: value.detach().clone() for name, value in options.items() if isinstance(value, Tensor)}
    return options | own | {name: value.copy() for name, value in options.items() if isinstance(value, np.ndarray)}


def _bare(ranks: Any, tensors: Any) -> Any:
    try:
        return operator.bare(tuple(tensors))
    except Exception as error:  # the others are waiting for this rank's part
        refuse(ranks, error)
        raise


class Attention(torch.autograd.Function):
    """(query, key, value, attn_mask, sinks, relative_bias, (ranks, scheme, layouts' runs), options, what to keep alive):
    output and lse. Both passes are calls of all ranks."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        *inputs, ctx.given, ctx.options, ctx.keep = args
        ranks, scheme, *runs = ctx.given
        call: Any = _attn.distributed_forward
        output, lse = call(ranks, _bare(ranks, inputs), ctx.options, scheme, *runs, False, True, TORCH)
        ctx.save_for_backward(*inputs, output, lse)
        ctx.mark_non_differentiable(lse)
        return output, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_output: Tensor, _: Any) -> tuple[Optional[Tensor], ...]:
        *inputs, output, lse = ctx.saved_tensors
        ranks, scheme, *runs = ctx.given
        call: Any = _attn.distributed_backward
        d, output, lse, *bare = _bare(ranks, (d_output, output, lse, *inputs))
        return (*call(ranks, d, tuple(bare), output, lse, ctx.options, scheme, *runs, TORCH), None, None, None)


@torch.compiler.disable
def attention(inputs: Any, given: Any, options: Any, keep: Any) -> tuple[Tensor, Tensor]:
    """Of attn.distributed, which checked them. A break in a graph of torch.compile."""
    return Attention.apply(*inputs, given, options, keep)
