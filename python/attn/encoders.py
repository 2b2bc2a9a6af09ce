"""Encoder: vectors of sentences by BERT and models of its kind."""

from __future__ import annotations

from attn import _attn
from attn._arguments import Unchanging
from attn._module_input import path_name, refuse
from attn.language_models import _listed

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any

    from attn._types import Array

__all__ = ["Encoder"]


class Encoder(Unchanging):
    """An encoder (BERT, Devlin et al. 2019) read from its files.

        >>> encoder = attn.Encoder("all-MiniLM-L6-v2")
        >>> vectors = encoder.embed(["A cat sits.", "A kitten rests."])     # (2, 384)

    Args:
        folder: a Hugging Face folder of the family bert, with a config.json and a model.safetensors; texts need its
            tokenizer.json too. Or a GGUF file of the architecture bert, whose vectors are divided by their length
            unless `normalised` says otherwise.

    Raises:
        OSError: a file that cannot be read.
        ValueError: another family, a part that is not supported, or tensors that are not the config's.
    """

    _instead = "whose weights lie in this one's memory; hand over its folder, and call attn.Encoder(folder) there"

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._encoder = _attn.Encoder(path_name("Encoder", folder))

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the special tokens that the tokenizer puts around it."""
        return self._encoder.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return self._encoder.decode(_listed(ids, "decode"), False)

    def embed(
        self, texts: Sequence[str] | Sequence[Sequence[int]], *, pooling: str | None = None, normalised: bool | None = None
    ) -> Array:
        """The vectors of texts, float32 (n, width): each is the one that its text has alone.

        Args:
            texts: of any lengths up to the model's context; or the ids of each. A longer text is cut, with a
                UserWarning, where files of sentence-transformers say how long texts may be.
            pooling: "mean" of all tokens' hidden states (Reimers & Gurevych 2019), or the "first" token's; what the
                folder's files of sentence-transformers say unless given.
            normalised: whether vectors are divided by their length; likewise.

        Raises:
            TypeError: one text in place of a sequence, or items of another kind.
            ValueError: no text, an empty list of ids, ids outside of the vocabulary, or a text that is too long.
        """
        return self._encoder.embed(texts, pooling, normalised)  # type: ignore[return-value]

    def __call__(self, ids: Any) -> Array:
        """Hidden states, float32 (..., t, width), of ids: an integer array (t) or (b, t), without padding."""
        return self._encoder.hidden(ids)  # type: ignore[return-value]

    def steps(self, text: str | Sequence[int]) -> dict[str, Array]:
        """Every head's steps on one text, by name: "encoder.layer.0.attention.weights" (heads, t, t), and the others."""
        return self._encoder.steps(self._ids(text, "steps"), [])

    def _ids(self, text: Any, op: str) -> list[int]:
        """A text's ids, at least one."""
        ids = self.encode(text) if isinstance(text, str) else _listed(text, op)
        if not ids:
            refuse(op, "a text of at least one token", "an empty one")
        return ids
