"""Sentences of one's own as vectors, without a model: related words have vectors with large dot products."""

from __future__ import annotations

from attn import _attn

__all__ = ["embed_words", "split_words"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from attn._types import Float32

WORD_SIZE: int = _attn.WORD_SIZE  # numbers of a word's vector, unless a module asks for others


def split_words(text: str) -> list[str]:
    """The words of a text: cut at white space, and at , . : ; ? _ ! " ( ) ' and --, which are words of their own.

    This is the rule of the book's chapter 2.
    """
    return _attn.split_words(text)


def embed_words(text: str | Sequence[str], d_in: int = WORD_SIZE) -> Float32:
    """The vectors of a text's words, or of words, by the small embedding that ships: float32 (words, d_in).

    No model is needed, and the vectors are the same on every machine. include/attn/words.hpp defines them.

    Args:
        text: a text, which split_words() cuts; or words.
        d_in: numbers of a word.

    Raises:
        ValueError: no word, an empty one, or a d_in that is not positive.
        TypeError: what is no text, and no sequence of strings.
    """
    words = split_words(text) if isinstance(text, str) else text
    return _attn.embed_words(words, d_in)  # type: ignore[return-value]
