"""Experiments on a language model that reads a text: heads switched off, steps changed, and what follows."""

from __future__ import annotations

import os

from attn import _attn
from attn._arguments import Unchanging, integer, listed
from attn._module_input import path_name, refuse
from attn.encoders import Encoder
from attn.language_models import LanguageModel, _listed, load

TYPE_CHECKING = False  # typing itself takes a third of the import's time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from attn._types import Array
    from attn.plots import Figure

__all__ = ["Experiment", "experiment"]


def _subject(model: Any) -> Any:
    """Of an attn.LanguageModel, an attn.Encoder or a path; or of a Hugging Face model, which is written and read again."""
    if isinstance(model, LanguageModel):
        if model.weights != "float32":
            refuse("experiment", "a model with weights in float32", model.weights, 'attn.load(path, weights="float32")')
        return model._model
    if isinstance(model, Encoder):
        return model._encoder
    if isinstance(model, (str, os.PathLike)):
        path = path_name("experiment", model)
        return Encoder(path)._encoder if _attn.is_encoder(path) else load(path, weights="float32")._model
    if not hasattr(model, "save_pretrained"):
        raise TypeError(
            "[experiment] expected an attn.LanguageModel, an attn.Encoder, a model's path, or a Hugging Face model; found "
            f"{type(model).__name__}"
        )
    import tempfile

    for name, part in model.named_modules():
        if part._forward_hooks or part._forward_pre_hooks:
            where = name or type(model).__name__
            refuse("experiment", "a model without forward hooks, whose weights alone are taken", f"one of {where}")
        if "forward" in part.__dict__ and not hasattr(part, "_hf_hook"):  # accelerate's moves weights alone
            where = name or type(model).__name__
            refuse("experiment", "a model whose weights say all that it computes", f"another forward() of {where}")
    _check_weights(model)
    with tempfile.TemporaryDirectory() as folder:
        _in_floats(model).save_pretrained(folder)
        try:
            if model.config.model_type == "bert":
                return Encoder(folder)._encoder
            return load(folder, weights="float32")._model
        except ValueError as error:  # nobody can look into a folder that is gone
            raise ValueError(str(error).replace(f'"{folder}/config.json"', "model.config").replace(f"{folder}/", "")) from None


def _in_floats(model: Any) -> Any:
    """The model itself; or, where transformers has read it from a GGUF file, one that does not say so any more: its weights
    are floats by now, and transformers refuses to write it."""
    quantizer = getattr(model, "hf_quantizer", None)
    method = getattr(getattr(quantizer, "quantization_config", None), "quant_method", None)
    if getattr(method, "value", method) != "gguf":
        return model
    import copy

    floats = copy.copy(model)
    floats.hf_quantizer, floats.config = None, copy.deepcopy(model.config)
    del floats.config.quantization_config
    return floats


def _check_weights(model: Any) -> None:
    """What would fail in save_pretrained(), or in the file that it wrote, in words about that file."""
    if any(p.is_meta for p in model.parameters()):
        refuse("experiment", "a model with its weights", "parameters on the device meta", "load them")
    if model.config.model_type != "bert" and model.get_output_embeddings() is None:
        found = type(model).__name__
        refuse("experiment", "a model that gives logits of tokens", found, "pass the ForCausalLM of its family")


def _that_writes(subject: Any) -> Any:
    if isinstance(subject, _attn.Encoder):
        refuse("experiment", "a language model", "an encoder, of which there are steps(), changes() and rollout()")
    return subject


class Experiment(Unchanging):
    """A model, a text, and what is changed. Methods that change something return another experiment.

        >>> e = attn.experiment("SmolLM2.gguf", "The capital of France is")
        >>> e.without((3, 1), by="mean").loss() - e.loss()
        >>> e.effects()["after"]                        # (layers, heads): the loss without each head

    Layers, heads and tokens count from 0. Arrays are NumPy's. Tables (layers, heads) have as many columns as the layer of
    most heads, with NaN where a layer has fewer. Of an encoder, which has no logits, there are steps(), changes() and
    rollout(). Errors are ValueErrors that say what was expected; a step that is not there is one, too.
    """

    _instead = "whose model lies in this one's memory; make it there by attn.experiment(path, text)"

    def __init__(self, subject: Any, ids: list[int], tokenizer: Any, edits: list[Any], text: str | None = None) -> None:
        self._subject, self.ids, self._tokenizer, self._edits, self._text = subject, ids, tokenizer, edits, text

    def __repr__(self) -> str:
        return f"<attn.Experiment: {len(self.ids)} tokens, {len(self._edits)} changes>"

    @property
    def _lm(self) -> Any:
        return _that_writes(self._subject)

    def _unchanged(self) -> Experiment:
        return Experiment(self._subject, self.ids, self._tokenizer, [], self._text)

    def _with(self, *edit: Any) -> Experiment:
        return Experiment(self._subject, self.ids, self._tokenizer, [*self._edits, edit], self._text)

    def _token(self, id: int) -> str:
        if self._tokenizer is not None:
            return self._tokenizer.decode([id])
        try:
            return self._subject.decode([id], False)
        except ValueError:  # a model has more tokens than its tokenizer, where its vocabulary is padded
            return f"#{id}"

    def _id(self, token: int | str) -> int:
        if not isinstance(token, str):
            return _listed([token], "experiment")[0]
        ids = _encode(self._lm, self._tokenizer, token, False)
        if len(ids) != 1:
            raise ValueError(f"[experiment] expected a text of one token; found {len(ids)} for {token!r}")
        return ids[0]

    def _pair(self, tokens: Any) -> list[int]:
        pair = listed(tokens, "experiment", "tokens as two of them")
        if len(pair) != 2 or isinstance(tokens, str):
            refuse("experiment", "tokens as two of them", repr(tokens))
        return [self._id(token) for token in pair]

    @property
    def tokens(self) -> list[str]:
        """The text's tokens."""
        return [self._token(id) for id in self.ids]

    # ---- what is changed

    def without(
        self, head: tuple[int, int] | int, *, by: str = "zero", over: Sequence[str | Sequence[int]] | None = None
    ) -> Experiment:
        """Switches off a head (layer, head), or all heads of a layer.

        Args:
            by: what it gives then: "zero", its "mean" over the text, what it gives by "uniform" weights, or what it gives
                in another "text".
            over: texts, or their ids, whose mean it is with by="mean", in place of this text's; or with by="text" that
                one text, of as many tokens.
        """
        layer, *rest = _head(head, or_layer=True)
        others = self._contexts(by, over)
        kind = "without" if rest else "without layer"
        if others is None:
            return self._with(kind, layer, *rest, by)
        if not 0 <= layer < len(others) or (rest and not 0 <= rest[0] < len(others[layer])):
            return self._with(kind, layer, *rest, "zero")  # whose error names the layers and heads that there are
        return self._with(kind + " to", layer, *rest, others[layer][rest[0]] if rest else others[layer])

    def keep_only(
        self, *heads: tuple[int, int], by: str = "zero", over: Sequence[str | Sequence[int]] | None = None
    ) -> Experiment:
        """Switches off all heads but these; by and over as for without()."""
        pairs = [tuple(_head(head)) for head in heads]
        others = self._contexts(by, over)
        return self._with("keep", by, *pairs) if others is None else self._with("keep to", others, *pairs)

    def _contexts(self, by: str, over: Sequence[str | Sequence[int]] | None) -> Any:
        """What each layer's heads give in other texts, (heads, head_dim) or (heads, t, head_dim), or None for no texts."""
        if not isinstance(by, str):
            raise TypeError(f"[experiment] expected by as a string; found {type(by).__name__}")
        if over is None and by != "text":
            return None
        if by not in ("mean", "text"):
            refuse("experiment", 'by="mean" or by="text" beside over', f"by={by!r}")
        if over is None or isinstance(over, str):
            refuse("experiment", "over as a list of texts", "none" if over is None else "one text", "write over=[text]")
        texts = [_encode(self._subject, self._tokenizer, text, True) for text in over]
        if by == "text" and [len(text) for text in texts] != [len(self.ids)]:
            counts = ", ".join(str(len(text)) for text in texts) or "no text"
            refuse("experiment", f"over as one text of {len(self.ids)} tokens", counts)
        return self._subject.contexts(texts, by == "mean")

    def scale(self, head: tuple[int, int], factor: float) -> Experiment:
        """Multiplies what a head gives."""
        return self._with("scale", *_head(head), _factor(factor))

    def weights(self, head: tuple[int, int], name: str) -> Experiment:
        """A head's weights: "uniform" on what each query sees, all on the "previous" token, or "none"."""
        return self._with("weights", *_head(head), name)

    def hide(self, token: int, head: tuple[int, int] | int | None = None) -> Experiment:
        """Hides a token from all heads, from one head (layer, head), or from all heads of a layer."""
        return self._with("hide", integer(token, "experiment", "token"), *([] if head is None else _head(head, or_layer=True)))

    def skip(self, layer: int, part: str = "") -> Experiment:
        """Skips a layer, or its "attention" or "mlp"."""
        if part not in ("", "attention", "mlp"):
            raise ValueError(f'[experiment] expected part "attention" or "mlp", or none; found {part!r}')
        return self._with(f"skip {part}".strip(), integer(layer, "experiment", "layer"))

    def step(self, name: str, change: float | Array, head: int | None = None) -> Experiment:
        """A step, by its name in steps(), is multiplied by a number or replaced by an array; or one head of it."""
        head = None if head is None else integer(head, "experiment", "head")
        if isinstance(change, bool):
            refuse("experiment", "a factor, or an array", str(change))
        if getattr(change, "ndim", 0) == 0 and hasattr(change, "__float__"):
            return self._with("step", name, _factor(change), head)
        return self._with("replace", name, change, head)

    def reading(self, text: str | Sequence[int]) -> Experiment:
        """The same model with the same changes, on another text.

            >>> e.reading("The capital of Italy is").loss() - e.loss()

        Args:
            text: a text, or its ids.

        Raises:
            ValueError: a text of no tokens.
        """
        ids = _ids(self._subject, self._tokenizer, text)
        return Experiment(self._subject, ids, self._tokenizer, self._edits, text if isinstance(text, str) else None)

    # ---- what follows

    def logits(self) -> Array:
        """Logits (t, vocabulary)."""
        return self._lm.logits(self.ids, self._edits)

    def losses(self) -> Array:
        """-log of the probability of each token after the first, (t - 1)."""
        return self._lm.losses(self.ids, self._edits)

    def loss(self) -> float:
        """Their mean."""
        return float(self.losses().mean())  # type: ignore[attr-defined]

    def next(self, count: int = 10) -> list[tuple[str, float]]:
        """The likeliest next tokens and their probabilities."""
        import numpy as np

        count = integer(count, "next", "count")
        if count < 1:
            refuse("next", "count of at least 1", str(count))
        chances = self._chances()
        return [(self._token(int(i)), float(chances[i])) for i in np.argsort(-chances, kind="stable")[:count]]

    def _chances(self) -> Any:
        """The probabilities of all next tokens, float64."""
        import numpy as np

        last = np.asarray(self.logits())[-1].astype(np.float64)
        chances = np.exp(last - last.max())
        return chances / chances.sum()

    def steps(self) -> dict[str, Array]:
        """Every step of the pass as changed, by name."""
        return self._subject.steps(self.ids, self._edits)

    def changes(self) -> Array:
        """How much each head gives otherwise than without changes, (layers, heads): |z' - z| / |z|."""
        return self._subject.changes(self.ids, self._edits)

    def effects(
        self, *, by: str = "zero", over: Sequence[str | Sequence[int]] | None = None,
        tokens: tuple[int | str, int | str] | None = None, exact: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Every head switched off in turn: "before", and "after" (layers, heads), of the loss.

        Args:
            by, over: as for without().
            tokens: two tokens, whose logit difference at the last position is measured in place of the loss.
            exact: how many heads are switched off, where not all are: those of the largest estimates, by the gradient of
                one pass (attribution patching, Nanda 2023). "after" is NaN for the others, and there are "estimates"
                (layers, heads) of all, which are right for small changes, and "error", the mean of |estimates - after|
                over the heads that have both. In a model of many layers all heads take many passes, 140 for SmolLM2's
                270, and exact=8 fewer than 12.

        Raises:
            ValueError: estimates beside other changes, whose derivatives are unknown, or of a model that has layers with a
                state or with latents.
        """
        pair = [] if tokens is None else self._pair(tokens)
        others = self._contexts(by, over)
        before, after, estimates, error = self._lm.effects(
            self.ids, self._edits, by if others is None else "zero", pair, exact, others
        )
        found = {"before": before, "after": after}
        return found if estimates is None else {**found, "estimates": estimates, "error": error}

    def compare(self, model: Any) -> dict[str, Any]:
        """Another model, or another checkpoint, on the same text with the same changes.

        Args:
            model: as for experiment(), a language model of as many layers, heads and tokens in its vocabulary.

        Returns:
            "losses" and "other_losses" (t - 1); "next" and "other_next" (vocabulary), the log probabilities of what
            follows the text; "heads" (layers, heads), how much each head gives otherwise in the other: |z' - z| / |z|.

        Raises:
            ValueError: a model of other sizes, or whose own tokenizer has other tokens or gives the text other ids.
        """
        mine, other = self._lm, _that_writes(_subject(model))
        if self._tokenizer is None:  # one that was given is that of both
            self._require_same_tokens(other)
        return mine.compared(other, self.ids, self._edits)

    def _require_same_tokens(self, other: Any) -> None:
        try:
            differs = self._subject.first_other_token(other)
        except (OSError, ValueError):
            if self._text is not None:
                raise
            return  # ids alone, of models that come without a tokenizer
        if differs:
            id, mine, its = differs
            refuse("compare", f"a model with the same tokens, whose {id} is {mine!r}", repr(its))
        ids = self.ids if self._text is None else _encode(other, None, self._text, True)
        if ids != self.ids:
            refuse("compare", f"a model that cuts the text into the ids {self.ids[:8]}", f"{ids[:8]}")

    def lens(self) -> dict[str, Any]:
        """The logit lens: "tokens" and their "probability" (layers + 1, t), and "losses" (layers + 1, t - 1)."""
        tokens, probability, losses = self._lm.lens(self.ids, self._edits)
        if losses is None:  # of one token
            losses = probability[:, :0]
        return {"tokens": tokens, "probability": probability, "losses": losses}

    def attribution(self, token: int | str, less: int | str | None = None, *, position: int | None = None) -> dict[str, Any]:
        """What each part adds to a token's logit, or to its difference from another's: "heads" (layers, heads),
        "biases" and "feed_forwards" (layers), "embedding", "bias", their "sum", and the model's "logit". Logits are
        those before a softcap."""
        other = None if less is None else self._id(less)
        return self._lm.attribution(self.ids, self._edits, self._id(token), other, position)

    def rollout(self) -> Array:
        """Attention rollout (layers, t, t)."""
        return self._subject.rollout(self.ids, self._edits)

    def scores(self) -> dict[str, Any]:
        """TransformerLens's scores on the text, read twice: "previous", "duplicate", "induction" (layers, heads)."""
        return dict(zip(("previous", "duplicate", "induction"), self._lm.scores(self.ids * 2, self._edits)))

    def patch_from(self, text: str | Sequence[int], tokens: tuple[int | str, int | str]) -> dict[str, Any]:
        """Parts of the text patched into a pass on another of as many tokens: the logit differences "clean" and
        "corrupt", and what share comes back by "stream" (layers, t) and "heads" (layers, heads). Changes act in every
        pass, before what is patched."""
        ids = _encode(self._subject, self._tokenizer, text, True)
        a, b = self._pair(tokens)
        return dict(zip(("clean", "corrupt", "stream", "heads"), self._lm.patching(self.ids, self._edits, ids, a, b)))

    def plot(
        self, what: str, *arguments: Any, table: str | None = None, title: str = "", colours: str = "viridis", **options: Any
    ) -> Figure:
        """What a method answers, drawn as the command draws it.

            e.plot("effects", by="mean").save("effects.svg")
            e.plot("patch_from", "The capital of Italy is", (" Paris", " Rome"), table="heads")

        Args:
            what: "losses" (before and after the changes, where there are some), "next" (likewise), "changes", "effects"
                (less "before"; the estimates where there are some), "compare" (what the other adds to the losses),
                "lens", "attribution", "rollout" (of the last layer), "scores" or "patch_from": the method.
            arguments, options: the method's.
            table: of scores "induction", the default, "previous" or "duplicate"; of patch_from "stream", the default, or
                "heads".
            title: written above. Default: what is drawn.
            colours: "viridis", "cividis" or "grey".

        Raises:
            ValueError: another name, and as the method. Layers, heads and tokens of a figure count from 1.
        """
        from attn._experiment_figures import figure

        return figure(self, what, arguments, table, title, colours, options)


def _head(head: Any, or_layer: bool = False) -> list[int]:
    """A layer and a head, or with `or_layer` also a layer alone."""
    parts = [head] if isinstance(head, str) or not hasattr(head, "__iter__") else list(head)
    counts = all(hasattr(part, "__index__") and not isinstance(part, bool) for part in parts)
    if not counts or not (len(parts) == 2 or (or_layer and len(parts) == 1)):
        named = [int(part) - 1 for part in str(head).split(".") if part.isdecimal()]
        how = f"here heads count from 0, and {head} of pages and the command is {tuple(named)}" if len(named) == 2 else ""
        refuse("experiment", "a head as (layer, head)" + (", or a layer" if or_layer else ""), repr(head), how)
    return [int(part) for part in parts]


def _factor(value: Any) -> float:
    """A number that float32 can hold."""
    try:
        factor = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"[experiment] expected a factor as a number; found {type(value).__name__}") from None
    if not abs(factor) < 2.0**128:
        refuse("experiment", "a finite factor of float32", f"{factor:g}")
    return factor


def _encode(subject: Any, tokenizer: Any, text: str | Sequence[int], special: bool) -> list[int]:
    if not isinstance(text, str):
        return _listed(text, "experiment")
    if tokenizer is None:
        return subject.encode(text) if isinstance(subject, _attn.Encoder) else subject.encode(text, special)
    return list(tokenizer.encode(text, add_special_tokens=special))


def _ids(subject: Any, tokenizer: Any, text: str | Sequence[int]) -> list[int]:
    ids = _encode(subject, tokenizer, text, True)
    if not ids:
        refuse("experiment", "a text of at least one token", "none")
    return ids


def experiment(model: Any, text: str | Sequence[int], tokenizer: Any = None) -> Experiment:
    """Experiments on a model that reads a text.

        >>> attn.experiment(model, text, tokenizer).without((3, 1), by="mean").effects()

    Args:
        model: an attn.LanguageModel with weights in float32, or an attn.Encoder; a path of one
            of these, read in float32; or a Hugging Face model in memory, of a family that attn reads.
        text: a text, or its ids.
        tokenizer: a Hugging Face tokenizer; the path's own unless given. A text for a model in memory needs one,
            unless its tokens are bytes.

    Raises:
        OSError: a file that cannot be read.
        ValueError: a family that is not supported, or a text that the model does not take.
        TypeError: what is no model.
    """
    in_memory = hasattr(model, "save_pretrained")
    if isinstance(text, str) and tokenizer is None and in_memory and model.config.vocab_size != 256:  # else it is bytes
        how = "attn.experiment(model, text, tokenizer)"
        refuse("experiment", "a tokenizer beside a Hugging Face model and a text", "none", how)
    subject = _subject(model)
    ids = _ids(subject, tokenizer, text)
    return Experiment(subject, ids, tokenizer, [], text if isinstance(text, str) else None)
