"""The report: every step of a forward pass as one HTML page to look at."""

from __future__ import annotations

from attn import _attn
from attn._arguments import flag, integer
from attn._module_input import module_and_input, path_name, refuse
from attn._pictures import read_by, steps_of, words_of
from attn.encoders import Encoder
from attn.language_models import LanguageModel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any

    from attn._types import Array, Inputs, Model, TokenizerLike, Weights
    from attn.modules import Module


class Drawn:
    """What Jupyter shows; save() writes it; str() gives its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<attn.{type(self).__name__}>"


class Report(Drawn):
    """A self-contained HTML page. Jupyter shows it; save() writes it; str() gives it."""

    def _repr_html_(self) -> str:
        import html

        page = html.escape(self._text, quote=True)
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:80vh;border:0"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to the file `path`, whole or not at all."""
        save_whole(path, self._text)


def save_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """A file is written whole or not at all; links are followed, and a pipe or a device is written to."""
    name = path_name("save", path)
    _attn.save("./-" if name == "-" else name, content.encode() if isinstance(content, str) else content)


def report(
    what: Module | LanguageModel | Encoder | Model | Weights, x: Inputs | None = None, source: Array | TokenizerLike | None = None, *,
    tokenizer: TokenizerLike | None = None, tokens: Sequence[str] = (), key_tokens: Sequence[str] = (),
    title: str = "", item: int = 0, layer: int | None = None, head: int | None = None, live: bool = False,
    checkpoints: bool = False,
) -> Report:  # fmt: skip
    """A page of attention: of a module, of a language model, or of attention weights alone.

        attn.report(mha, x, tokens=words)             # every step; modules of attn and attn.torch
        attn.report(mha, "The cat sat.")              # of words that attn.embed_words makes vectors of
        attn.report(model, "Once upon", tokenizer)    # all layers and heads of a Hugging Face model, and what each does
        attn.report(attn.load("model.gguf"), "Once")  # the page of `attn report --model`
        attn.report(weights, tokens=words)            # (layers, heads, queries, keys), or a model's attentions

    Args:
        what: a module; a Hugging Face model; an attn.LanguageModel or an attn.Encoder; or weights of NumPy, PyTorch or
            JAX: (queries, keys), (heads, queries, keys), (layers, heads, queries, keys), (layers, batch, heads, queries,
            keys), or a tuple with an array (batch, heads, queries, keys) or (heads, queries, keys) for each layer.
        x: a module's input (tokens, d_in) or (batch, tokens, d_in), or a text; a model's text, token numbers, or what its
            tokenizer returned.
        source: CrossAttention's second input; of a model, its tokenizer.
        tokenizer: of a Hugging Face model: makes token numbers of a text, and names them.
        tokens: a word for each query.
        key_tokens: a word for each key, where they are not the queries'.
        title: the page's title; else the text, or the tokens.
        item: which text of a batch is shown, from 0.
        layer: which layer is shown first, from 0; else the one of the strongest head that has a name, or the first.
        head: which head is shown first, from 0; else the strongest that has a name, or the first.
        live: the page holds the module, or the model's or encoder's files, and computes: it reads what is typed, and
            later steps follow each number that is changed (docs/live.md). Of a module in eval mode, or without dropout,
            and one text; of a model what `attn report --live --model` takes.
        checkpoints: beside live, of a model that `attn train --keep-every N` wrote: a slider puts the weights that the
            run has kept in the place of the model's.

    A UserWarning tells of weights that cannot be: below 0, NaN, or with a row that sums to more than 1.

    Raises:
        ValueError: what cannot be shown: shapes that do not fit, not one token for each row, no such item; a model that
            no page computes by.
        TypeError: what is no array, module or model; weights of a dtype that is not floating.
    """
    item = integer(item, "report", "item")
    live, checkpoints = flag(live, "report", "live"), flag(checkpoints, "report", "checkpoints")
    if live and title:
        refuse("report", "the text as the title of a page that computes", "title")
    if checkpoints and not (live and isinstance(what, LanguageModel)):
        refuse("report", "checkpoints=True beside live=True of an attn.LanguageModel", "another" if live else "live=False")
    title = title or (x if isinstance(x, str) else "")
    if isinstance(what, (LanguageModel, Encoder)):
        if live and not (isinstance(x, str) and not tokens and not key_tokens):
            refuse("report", "a text alone beside live=True", "tokens" if isinstance(x, str) else type(x).__name__)
        ids, words = read_by("report", what, x, source if tokenizer is None else tokenizer, item)
        rows, columns = words_of("report", tokens, key_tokens, None, None)
        of_it = ids, rows or words, columns, title, layer, head, live
        if isinstance(what, Encoder):
            return Report(what._encoder.page(*of_it))
        return Report(what._model.page(*of_it, checkpoints))
    module, inputs, second = module_and_input("report", what, x, source)
    labels = words_of("report", tokens, key_tokens, *((x, source) if module else (None, None)))
    if module is None:
        if live:
            refuse("report", "live=True of a module, an attn.LanguageModel or an attn.Encoder", "another model or weights")
        shown = steps_of("report", what, x, source if tokenizer is None else tokenizer, item)
        words = labels[0] or shown.tokens
        twice = shown.read_twice() if shown.read_twice else ([], [])
        return Report(_attn.page_of_steps(shown.steps, words, labels[1], title, 0, layer, head, *twice))
    if layer not in (None, 0):
        refuse("report", "layer 0 of a module, which is one layer", str(layer))
    return Report(module._layer.page(inputs, second, *labels, title, item, head, live))
