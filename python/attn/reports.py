"""The report: every step of a forward pass as one HTML page to look at."""

from __future__ import annotations

from attn import _attn
from attn.modules import CrossAttention, Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any


class Report:
    """A self-contained HTML page. Jupyter shows it; save() writes it; str() gives it."""

    def __init__(self, page: str) -> None:
        self._page = page

    def __str__(self) -> str:
        return self._page

    def _repr_html_(self) -> str:
        import html

        page = html.escape(self._page, quote=True)
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:80vh;border:0"></iframe>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, whole or not at all."""
        import os

        part = f"{os.fspath(path)}.part"
        try:
            with open(part, "w", encoding="utf-8", newline="") as file:
                file.write(self._page)
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise


def report(
    what: Module | Any,
    x: Any = None,
    source: Any = None,
    *,
    tokens: Sequence[str] = (),
    key_tokens: Sequence[str] = (),
    title: str = "",
    item: int = 0,
) -> Report:
    """A page of a module's forward pass on x (CrossAttention: and source), or of bare weights (heads, tq, tk).

    Args:
        what: one of attn's modules, or weights: an array (heads, queries, keys).
        x: (tokens, d_in) or (batch, tokens, d_in).
        tokens: a word for each row of x; key_tokens: for each row of source.
        item: which text of a batch is shown, from 0.

    Raises:
        ValueError: shapes that do not fit, or not one token for each row.
    """
    if not isinstance(what, Module):
        return Report(_attn.page_of_weights(what, list(tokens), list(key_tokens), title))
    if isinstance(what, CrossAttention) and source is None:
        raise ValueError("[report] expected x and source for CrossAttention; found no source")
    return Report(what._layer.page(x, source, list(tokens), list(key_tokens), title, item))
