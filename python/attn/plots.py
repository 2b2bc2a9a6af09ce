"""The command's figures, drawn inline: attention weights and other steps as SVG."""

from __future__ import annotations

from attn import _attn
from attn._arguments import integer
from attn._module_input import module_and_input, path_name, refuse
from attn._pictures import steps_of, words_of
from attn.reports import Drawn, save_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any

    from attn.encoders import Encoder
    from attn.language_models import LanguageModel
    from attn._types import Array, Inputs, Model, TokenizerLike, Weights
    from attn.modules import Module


class Figure(Drawn):
    """A drawing. Jupyter shows it; save() writes it as .svg, .png or .html; str() gives the SVG."""

    def _repr_svg_(self) -> str:
        return self._text

    def save(self, path: str | os.PathLike[str], dpi: float | None = None) -> None:
        """Writes the drawing to the file `path`, which ends in .svg, .png or .html (a page), whole or not at all.

        Args:
            path: a PNG needs librsvg on this system, and the error says so where it is missing.
            dpi: pixels an inch of a PNG, from 24 to 1200. Default: 192. It is refused for other files.
        """
        name = path_name("plot", path)
        if name.lower().endswith(".png"):
            return save_whole(path, _attn.png(self._text, 192 if dpi is None else dpi))
        if dpi is not None:
            refuse("plot", "dpi for a path that ends in .png", repr(name))
        if name.lower().endswith(".html"):
            return save_whole(path, _attn.figure_page(self._text))
        if not name.lower().endswith(".svg"):
            refuse("plot", "a path that ends in .svg, .png or .html", repr(name))
        save_whole(path, self._text)


def plot(
    what: Module | LanguageModel | Encoder | Model | Weights, x: Inputs | None = None, source: Array | TokenizerLike | None = None, *,
    figure: str = "", step: str = "", tokenizer: TokenizerLike | None = None, tokens: Sequence[str] = (),
    key_tokens: Sequence[str] = (), title: str = "", item: int = 0, layer: int | None = None, head: int | None = None,
    scale: str = "auto", colours: str = "viridis",
) -> Figure:  # fmt: skip
    """One of the figures that `attn plot` draws, of what report() takes.

        attn.plot(mha, x, tokens=words)                         # all heads side by side
        attn.plot(weights, layer=0, head=3, tokens=words)       # one head, with labels and legend
        attn.plot(mha, x, figure="lines")                       # lines from each query to its keys

    Args:
        what: a module, a language model, or attention weights, as in report().
        x: a module's or a model's input, as in report().
        source: CrossAttention's second input; of a model, its tokenizer.
        figure: "heatmap", "heads", "lines", "space" (words as points in 3-D), "arrows" (as vectors) or "steps" (every
            step as a strip). Default: heads where there are several and none is chosen, else a heatmap.
        step: which step is drawn: "weights", "scores", "queries", … Default: weights; of space and arrows, the inputs.
        tokenizer: of a Hugging Face model.
        tokens: a word for each query.
        key_tokens: a word for each key, where they are not the queries'.
        title: written above the figure. Default: the layer and the head, counted from 1, where there are several.
        item: which text of a batch, from 0.
        layer: which layer, from 0. Default: all for heads, else the first.
        head: which head, from 0. Default: all, or the first.
        scale: "linear" from 0 to the largest; "row", each row to its own largest; "log"; "diverging", with 0 in
            the middle; "auto": row from 12 tokens on.
        colours: "viridis", "cividis" or "grey".

    Raises:
        ValueError, TypeError: as report(); for an argument that the figure would not use; and for heads of several
            layers that differ in number, where no layer is chosen.
    """
    module, inputs, second = module_and_input("plot", what, x, source)
    words, key_words = words_of("plot", tokens, key_tokens, *((x, source) if module else (None, None)))
    item = integer(item, "plot", "item")
    if module is None:
        shown = steps_of("plot", what, x, source if tokenizer is None else tokenizer, item)
        steps, words, item = shown.steps, words or shown.tokens, 0
    else:
        steps = list(module._computed(inputs, second, True)[1].items())
    labels = words, key_words
    return Figure(_attn.figure_of_steps(steps, figure, step, title, scale, colours, item, layer, head, *labels))
