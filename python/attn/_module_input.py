"""A module of attn or attn.torch, and what it is called with: a text's words become vectors."""

from __future__ import annotations

from attn import modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any, NoReturn


def refuse(op: str, expected: str, found: str, hint: str = "") -> NoReturn:
    raise ValueError(f"[{op}] expected {expected}; found {found}" + (f"; {hint}" if hint else ""))


def path_name(op: str, path: str | os.PathLike[str]) -> str:
    """A path's name as the library takes it, which would end at a null character."""
    import os

    try:
        name = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"[{op}] expected a path as a string or os.PathLike; found {type(path).__name__}") from None
    if "\0" in name:
        refuse(op, "a path without a null character", repr(name))
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        refuse(op, "a path in UTF-8", ascii(name))
    return name


def is_model(what: Any) -> bool:
    """Has it layers, as torch.nn.Module? PyTorch itself is not imported for the question."""
    return any(base.__module__ == "torch.nn.modules.module" for base in type(what).__mro__)


def book_hint(what: Any) -> str:
    """What to do with the book's class, or one like it; empty for anything else."""
    name = type(what).__name__
    if name not in modules.__all__:
        return ""
    return f"make an attn.torch.{name} with the same arguments, and give it load_state_dict(module.state_dict())"


def _require_as_made(op: str, what: Any) -> None:
    """Throws where forward() of a module of attn.torch does more than its weights tell."""
    from torch import nn

    of_all = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
    for name, part in what.named_modules():
        kind, where = type(part), f"{type(what).__name__}.{name}".rstrip(".")
        if of_all or part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part):
            refuse(op, "a module without hooks or another forward(), which steps would miss", f"one of {where}")
        drops = name.endswith("dropout") and kind in (nn.Dropout, nn.Identity)  # which eval mode passes over
        if not kind.__module__.startswith("attn.torch") and kind not in (nn.Linear, nn.ModuleList) and not drops:
            found = f"{where} as {kind.__module__}.{kind.__qualname__}"
            refuse(op, "the torch.nn.Linear layers that the module was made with", found)


def attn_module(op: str, what: Any) -> modules.Module | None:
    """One of attn's modules: `what` itself, or for a module of attn.torch the same with its weights, in eval mode."""
    if isinstance(what, modules.Module):
        return what
    if not type(what).__module__.startswith("attn.torch"):
        return None
    _require_as_made(op, what)
    kind = type(what).__name__
    if kind == "SelfAttention_v1":
        copy: modules.Module = modules.SelfAttention_v1(*what.W_query.shape)
    else:
        first = what.heads[0] if kind == "MultiHeadAttentionWrapper" else what
        size = first.W_query.in_features, first.W_query.out_features
        bias = first.W_query.bias is not None
        if kind == "SelfAttention_v2":
            copy = modules.SelfAttention_v2(*size, qkv_bias=bias)
        else:
            heads = {"MultiHeadAttentionWrapper": lambda: len(what.heads), "MultiHeadAttention": lambda: what.num_heads}
            more = (heads[kind](),) if kind in heads else ()
            copy = getattr(modules, kind)(*size, first.context_length, 0.0, *more, qkv_bias=bias)
    copy.load_state_dict({name: weight.float() for name, weight in what.state_dict().items()})
    if what._random():
        copy._layer.call_random()
    return copy.eval()


def module_and_input(op: str, what: Any, x: Any, source: Any) -> tuple[modules.Module | None, Any, Any]:
    """attn_module(), its input and its source; a text's words as vectors, a tensor of PyTorch as float32 alone."""
    module = attn_module(op, what)
    if module is None:
        return None, x, source
    if x is None:
        raise TypeError(f"[{op}] expected an input x beside {type(what).__name__}; found none; attn.{op}(module, x)")
    if isinstance(module, modules.CrossAttention) and source is None:
        refuse(op, "x and source for CrossAttention", "no source")
    module._since[:] = [f"attn.{op}()"]  # a forward pass of its own
    x = x.detach().float() if is_model(what) and hasattr(x, "detach") else x
    return module, module._embedded(x), module._embedded(source)
