"""What report() and plot() draw: named steps, of a module, of a model or of attention weights alone."""

from __future__ import annotations

import os

from attn import _attn
from attn._arguments import TORCH, framework, listed
from attn._module_input import book_hint, is_model, refuse
from attn.encoders import Encoder
from attn.language_models import LanguageModel
from attn.words import split_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

FIELDS = "encoder_attentions", "decoder_attentions", "cross_attentions"  # of models with two stacks


MOST_REPEATED = 64  # tokens


class Steps:
    """(name, array) in the order of the data, and a word for each row where they are known.

    read_twice() gives the same of a model that reads the text twice, and the text's token numbers.
    """

    def __init__(self, steps: list[tuple[str, Any]], tokens: Sequence[str] = ()) -> None:
        self.steps, self.tokens = steps, list(tokens)
        self.read_twice: Callable[[], tuple[list[tuple[str, Any]], list[int]]] | None = None


def words_of(op: str, tokens: Any, key_tokens: Any, x: Any, source: Any) -> tuple[list[str], list[str]]:
    """Labels of queries and keys: those given, or the words of texts that a module reads."""
    words = listed(tokens, op, "tokens as a list of strings")
    key_words = listed(key_tokens, op, "key_tokens as a list of strings")
    return (
        words or (split_words(x) if isinstance(x, str) else []),
        key_words or (split_words(source) if isinstance(source, str) else []),
    )


def steps_of(op: str, what: Any, x: Any, tokenizer: Any, item: int) -> Steps:
    """The steps of a language model's run on x, or of weights."""
    if isinstance(what, (LanguageModel, Encoder)):
        ids, words = read_by(op, what, x, tokenizer, item)
        return Steps(list(what.steps(ids).items()), words)
    if is_model(what):
        return _of_model(op, what, x, tokenizer, item)
    if isinstance(what, (str, os.PathLike)):
        refuse(op, "a model", "a path", "pass attn.load(path), or attn.Encoder(path)")
    if x is not None:
        refuse(op, "a module of attn or attn.torch, or a Hugging Face model, with an input", type(what).__name__,
               "attention weights alone take no input")  # fmt: skip
    shown = _of_weights(op, what, item)
    if doubt := _attn.doubt_about(shown.steps, op):
        import warnings

        warnings.warn(doubt, stacklevel=3)
    return shown


def read_by(op: str, model: LanguageModel | Encoder, x: Any, tokenizer: Any, item: int) -> tuple[list[int], list[str]]:
    """The ids that a model of attn reads, and a word for each where it has a tokenizer."""
    if x is None:
        refuse(op, "a text or its ids beside the model", "none", f"attn.{op}(model, text)")
    if item != 0:
        refuse(op, "item 0 of a model, which reads one text", str(item))
    ids = model._ids(x, op)
    if tokenizer is None and not isinstance(x, str):
        return ids, [str(i) for i in ids]
    if tokenizer is None:
        tokenizer = model if isinstance(model, Encoder) else model.tokenizer
    return ids, [tokenizer.decode([i]) for i in ids]


def _of_weights(op: str, weights: Any, item: int) -> Steps:
    if isinstance(weights, list | tuple):
        layers = [(i, layer) for i, layer in enumerate(weights) if layer is not None]
        if not weights:
            refuse(op, "attention weights of some layer", f"an empty {type(weights).__name__}")
        if not layers:
            refuse(op, "attention weights of some layer", f"None for all of {len(weights)} layers",
                   'load the model with attn_implementation="attn" and call it with output_attentions=True')  # fmt: skip
        if op == "plot" and len(layers) < len(weights):  # a figure counts layers, where a page names them
            refuse(op, "weights of every layer", f"None for {len(weights) - len(layers)} of {len(weights)} layers",
                   "pass those that are not None, or call attn.report")  # fmt: skip
        return Steps([(f"layers.{i}.weights", _heads(_item(op, _checked(op, w, 4), item, 3))) for i, w in layers])
    array = _item(op, _checked(op, weights, 5), item, 4)
    if len(array.shape) == 4:
        if array.shape[0] == 0:
            refuse(op, "weights of some layer", f"shape {tuple(array.shape)}")
        return Steps([(f"layers.{i}.weights", array[i]) for i in range(array.shape[0])])
    return Steps([("weights", _heads(array))])


def _heads(array: Any) -> Any:
    return array[None] if len(array.shape) == 2 else array


def _item(op: str, array: Any, item: int, rank: int) -> Any:
    """(…, heads, queries, keys) of one text: of `rank` dimensions there is no batch, of one more the first or second
    is."""
    if len(array.shape) <= rank:
        if item != 0:
            refuse(op, f"item 0 of weights without a batch, shape {tuple(array.shape)}", str(item))
        return array
    batch = 0 if rank == 3 else 1
    if not 0 <= item < array.shape[batch]:
        refuse(op, f"item from 0 to {array.shape[batch] - 1}", str(item))
    return array[item] if batch == 0 else array[:, item]


def _checked(op: str, weights: Any, most: int) -> Any:
    if type(weights).__module__ == "attn.experiments":
        raise TypeError(f'[{op}] expected what takes no question; found attn.Experiment; call its plot("effects"), say')
    if not hasattr(weights, "shape") or not hasattr(weights, "dtype"):
        raise TypeError(
            f"[{op}] expected a module, a Hugging Face model, or attention weights as an array of NumPy, PyTorch or "
            f"JAX or a tuple of them, one a layer; found {type(weights).__name__}"
        )
    if "float" not in str(weights.dtype):
        raise TypeError(
            f"[{op}] expected weights of a floating dtype; found {weights.dtype}; convert them with "
            ".astype(np.float32), or .float() in PyTorch"
        )
    if not 2 <= len(weights.shape) <= most:
        refuse(op, "weights (heads, queries, keys), (layers, heads, queries, keys) or a tuple of layers",
               f"shape {tuple(weights.shape)}")  # fmt: skip
    return weights.detach().cpu() if framework(weights) == TORCH else weights


def _of_model(op: str, model: Any, x: Any, tokenizer: Any, item: int) -> Steps:
    if not hasattr(model, "set_attn_implementation"):
        kind = f"{type(model).__name__} of {type(model).__module__}"
        hint = book_hint(model) or "of another model pass the attention weights"
        refuse(op, "a module of attn or attn.torch, or a Hugging Face model", kind, hint)
    if x is None:
        refuse(op, "a text, token numbers or the tokenizer's result beside the model", "none")
    inputs = _inputs(op, x, tokenizer)
    output = _run(op, model, inputs)
    weights = output.get("attentions")
    if not weights:
        _refuse_stacks(op, model, [name for name in FIELDS if output.get(name)], "**inputs")
    found = _of_weights(op, tuple(weights), item)
    found.steps += _sinks(model, len(weights))
    ids = inputs.get("input_ids")
    if tokenizer is not None and ids is not None:
        found.tokens = [tokenizer.decode([int(i)]) for i in ids[item]]
    if ids is not None:
        text = _text(model, ids[item], inputs.get("attention_mask"), item)
        if len(text) > 1:
            found.read_twice = lambda: _of_two_readings(op, model, text)
    return found


def _sinks(model: Any, layers: int) -> list[tuple[str, Any]]:
    """The scores of the sinks that take a part of each row's weight, of a model that has them in all layers."""
    sinks = [part.sinks for part in model.modules() if hasattr(getattr(part, "sinks", None), "detach")]
    if len(sinks) != layers:
        return []
    return [(f"layers.{i}.sinks", sink.detach().float().cpu()) for i, sink in enumerate(sinks)]


def _text(model: Any, ids: Any, mask: Any, item: int) -> Any:
    """The text's first tokens without padding, as many as the model can read twice."""
    longest = getattr(model.config, "max_position_embeddings", None) or 2 * MOST_REPEATED
    unpadded = ids if mask is None or mask.ndim != 2 else ids[mask[item].bool()]
    return unpadded[: min(MOST_REPEATED, longest // 2)]


def _of_two_readings(op: str, model: Any, text: Any) -> tuple[list[tuple[str, Any]], list[int]]:
    twice = text.repeat(2)[None]
    return _of_weights(op, tuple(_run(op, model, {"input_ids": twice})["attentions"]), 0).steps, text.tolist()


def _inputs(op: str, x: Any, tokenizer: Any) -> dict[str, Any]:
    import torch

    if isinstance(x, str):
        if tokenizer is None:
            refuse(op, "the model's tokenizer beside a text", "none", f"attn.{op}(model, text, tokenizer)")
        inputs = dict(tokenizer(x, return_tensors="pt"))
        if inputs["input_ids"].shape[-1] == 0:
            refuse(op, "a text of at least one token", repr(x))
        return inputs
    if hasattr(x, "keys"):
        return dict(x)
    try:
        ids = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        found = f"a list of {len(x)} texts" if isinstance(x, list | tuple) and x and isinstance(x[0], str) else None
        refuse(op, "one text, token numbers or the tokenizer's result", found or type(x).__name__,
               "pass one of the texts, or tokenizer(texts, ...) and item=" if found else "")  # fmt: skip
    if ids.is_floating_point() or ids.ndim not in (1, 2):
        refuse(op, "token numbers (tokens) or (batch, tokens)", f"{ids.dtype} of shape {tuple(ids.shape)}",
               f"of a model that reads no text pass attn.{op}(model(..., output_attentions=True).attentions)")  # fmt: skip
    return {"input_ids": ids if ids.ndim == 2 else ids[None]}


def _refuse_stacks(op: str, model: Any, found: Sequence[str], inputs: str) -> NoReturn:
    refuse(op, "a model that returns the attention weights of one stack",
           f"{type(model).__name__} with {', '.join(found) or 'none'}",
           f"pass one of them: attn.{op}(model({inputs}, output_attentions=True).{found[0]})" if found else "")  # fmt: skip


def _fits(op: str, model: Any, inputs: dict[str, Any], error: Exception) -> None:
    """Refuses a text that is longer than the positions that the model has learned, by which it failed."""
    longest, ids = getattr(model.config, "max_position_embeddings", None), inputs.get("input_ids")
    if longest is not None and ids is not None and ids.shape[-1] > longest:
        raise ValueError(
            f"[{op}] expected at most {longest} tokens, as {type(model).__name__} reads; found {ids.shape[-1]}; "
            "pass a shorter text"
        ) from error


def _run(op: str, model: Any, inputs: dict[str, Any]) -> Any:
    """One forward pass without dropout, by an implementation that returns weights; then the model is as it was."""
    import torch

    import attn.transformers  # noqa: F401

    before = getattr(model.config, "_attn_implementation", None)
    switched = before not in ("attn", "eager")
    if switched:
        model.set_attn_implementation("attn")
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        with torch.no_grad():
            return model(**inputs, output_attentions=True, return_dict=True)
    except ValueError:
        if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" not in inputs:
            _refuse_stacks(op, model, FIELDS, "**inputs, decoder_input_ids=ids")
        raise
    except (IndexError, RuntimeError) as error:
        _fits(op, model, inputs, error)
        raise
    finally:
        for part in training:
            part.training = True
        if switched:
            model.set_attn_implementation(before)
