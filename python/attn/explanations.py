"""The command's explanation of one query, with the arithmetic written out."""

from __future__ import annotations

from attn._arguments import integer
from attn._module_input import book_hint, module_and_input, refuse
from attn._pictures import words_of
from attn.modules import CrossAttention

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from attn._types import Array
    from attn.modules import Module

__all__ = ["explain"]


class Explanation(str):
    """A text that shows itself as it is."""

    def __repr__(self) -> str:
        return str(self)


def explain(
    module: Module | Any, x: Array | str, source: Array | str | None = None, *, query: int | None = None, head: int = 0,
    key: int | None = None, tokens: Sequence[str] = (), key_tokens: Sequence[str] = (),
) -> str:  # fmt: skip
    """One query's way through a module, in the words of `attn explain`: every step with its arithmetic.

        >>> attn.explain(mha, "The cat chased a mouse.", query=1, head=1)

    Args:
        module: a module of attn or attn.torch, which is run once; attn.torch's in eval mode.
        x: its input (tokens, d_in) or (batch, tokens, d_in), of which the first item is explained; or a text.
        source: CrossAttention's second input.
        query: the token that asks, from 0; default 1, or the only one. The text itself counts from 1.
        head: which head, from 0.
        key: a key, from 0, that is shown even where a long text has others that matter more.
        tokens: a word for each query; default those of a text.
        key_tokens: a word for each key of a source; likewise.

    Raises:
        ValueError: a query, a head or a key that is not there, an empty input, or not one token for each row.
        TypeError: what is no module.
    """
    own, inputs, second = module_and_input("explain", module, x, source)
    if own is None:
        hint = book_hint(module)
        found = type(module).__name__ + (f"; {hint}" if hint else "")
        raise TypeError(f"[explain] expected a module of attn or attn.torch; found {found}")
    if source is not None and not isinstance(own, CrossAttention):
        refuse("explain", "one input", "a source beside it", "CrossAttention takes two")
    if not hasattr(inputs, "shape"):
        raise TypeError(f"[explain] expected x as an array, or a text; found {type(inputs).__name__}")
    shape = tuple(inputs.shape)
    if len(shape) not in (2, 3) or 0 in shape:
        refuse("explain", "an input (tokens, d_in) or (batch, tokens, d_in) that is not empty", f"shape {shape}")
    asks = min(1, shape[-2] - 1) if query is None else integer(query, "explain", "query")
    if not 0 <= asks < shape[-2]:
        refuse("explain", f"query from 0 to {shape[-2] - 1}", str(asks))
    heads = own._layer.heads()
    if not 0 <= integer(head, "explain", "head") < heads:
        refuse("explain", f"head from 0 to {heads - 1}", str(head))
    keys = shape[-2] if second is None else second.shape[-2]
    if key is not None and not 0 <= integer(key, "explain", "key") < keys:
        refuse("explain", f"key from 0 to {keys - 1}", str(key))
    words, key_words = words_of("explain", tokens, key_tokens, x, source)
    if source is None and not key_words:
        key_words = words
    _fit("tokens", words, shape[-2])
    _fit("key_tokens", key_words, keys)
    named = "the text" if isinstance(x, str) else "x", "another text" if isinstance(source, str) else "source"
    return Explanation(own._layer.explained(inputs, second, *named, words, key_words, asks, head, key))


def _fit(what: str, words: list[str], rows: int) -> None:
    if words and len(words) != rows:
        refuse("explain", f"{what} for {rows} rows", str(len(words)))
