"""What Experiment.plot() draws of each of its answers: a table of numbers, the names of its rows and columns, and a title."""

from __future__ import annotations

from attn import _attn
from attn._arguments import listed
from attn._module_input import refuse
from attn.plots import Figure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLES = {"scores": ("induction", "previous", "duplicate"), "patch_from": ("stream", "heads")}  # the first unless one is named


def _numbers(count: int) -> list[str]:
    return [str(i + 1) for i in range(count)]


def _seen(token: str) -> str:
    """With spaces and line ends that are seen."""
    return token.replace("\n", "⏎").replace(" ", "␣")


def _tokens(experiment: Any) -> list[str]:
    return [_seen(token) for token in experiment.tokens]


def _of_heads(table: Any, unit: str, scale: str) -> tuple[Any, ...]:
    layers, heads = table.shape
    return table, ("layers", "heads", unit), _numbers(layers), _numbers(heads), scale


def _losses(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    import numpy as np

    passes = [("as it is", found)]
    if experiment._edits:
        passes = [("as it is", experiment._unchanged().losses()), ("changed", found)]
    names, rows = zip(*passes)
    if found.size == 0:
        refuse("plot", "a text of at least two tokens, for its losses", "one")
    return np.stack(rows), ("passes", "tokens", "loss"), list(names), _tokens(experiment)[1:], "linear"


def _next(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    import numpy as np

    passes = [("as it is", experiment._unchanged() if experiment._edits else experiment)]
    if experiment._edits:
        passes.append(("changed", experiment))
    names, chances = zip(*((name, one._chances()) for name, one in passes))
    count = len(found)
    ids = list(dict.fromkeys(int(i) for row in chances for i in np.argsort(-row, kind="stable")[:count]))
    tokens = [_seen(experiment._token(i)) for i in ids]
    return np.stack([row[ids] for row in chances]), ("passes", "tokens", "chance"), list(names), tokens, "linear"


def _compare(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    added = found["other_losses"] - found["losses"]
    if added.size == 0:
        refuse("plot", "a text of at least two tokens, for its losses", "one")
    return added[None], ("loss", "tokens", "loss"), ["difference"], _tokens(experiment)[1:], "diverging"


def _changes(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    return _of_heads(found, "change", "linear")


def _effects(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    after = found.get("estimates", found["after"])
    return _of_heads(after - found["before"], "logit difference" if options.get("tokens") else "loss", "diverging")


def _lens(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    chance = found["probability"]
    layers = [*_numbers(len(chance) - 1), "out"]
    return chance, ("layers", "tokens", "chance"), layers, _tokens(experiment), "linear"


def _attribution(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    return _of_heads(found["heads"], "logit", "diverging")


def _rollout(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    tokens = _tokens(experiment)
    return found[-1], ("queries", "keys", "share"), tokens, tokens, "auto"


def _scores(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    return _of_heads(found[options["table"]], options["table"], "linear")


def _patch_from(experiment: Any, found: Any, options: Any) -> tuple[Any, ...]:
    if options["table"] == "heads":
        return _of_heads(found["heads"], "share", "linear")
    stream = found["stream"]
    return stream, ("layers", "tokens", "share"), _numbers(len(stream)), _tokens(experiment), "linear"


FIGURES = {
    "losses": (_losses, "Loss of each token, in nats: -log of the chance that the model gave it"),
    "next": (_next, "Chances of the next token"),
    "compare": (_compare, "Loss of each token, in nats, and what the other model adds to it"),
    "changes": (_changes, "How much each head gives otherwise: |z' - z| / |z|"),
    "effects": (_effects, "What switching off a head adds"),
    "lens": (_lens, "The logit lens: what the last norm and the head read in each layer"),
    "attribution": (_attribution, "What each head adds to the logit, at the last token"),
    "rollout": (_rollout, "Attention rollout: where each token of the last layer comes from"),
    "scores": (_scores, "Scores of heads on the text, read twice; the figure shows induction"),
    "patch_from": (_patch_from, "What share of the logit difference comes back"),
}


def figure(experiment: Any, what: str, arguments: Any, table: str | None, title: str, colours: str, options: Any) -> Figure:
    """The figure of what the method `what` answers to the arguments and options."""
    if not isinstance(what, str) or what not in FIGURES:
        refuse("plot", f"one of {', '.join(FIGURES)}", repr(what))
    tables = TABLES.get(what, ())
    if table is not None and table not in tables:
        refuse("plot", f"table as one of {', '.join(tables)}" if tables else f"no table for {what}, which has one", repr(table))
    found = getattr(experiment, what)(*arguments, **options)
    make, known = FIGURES[what]
    if table is not None:
        known = known.replace("induction", table)
    shown = {**options, "table": table or (tables[0] if tables else "")}
    matrix, axes, rows, columns, scale = make(experiment, found, shown)
    names = listed(rows, "plot", "rows"), listed(columns, "plot", "columns")
    return Figure(_attn.figure_of_table(matrix, list(axes), *names, scale, title or known, colours))
