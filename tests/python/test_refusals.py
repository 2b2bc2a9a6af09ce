"""What no call can mean is refused by name, and never passed over: the entries that read a model or a module."""

import inspect
import pathlib
import re

import numpy as np
import pytest

import attn

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "lm" / "data" / "llama"
IDS = [3, 1, 4, 1, 5, 9]
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
WEIGHTS = np.full((3, 5, 5), 0.2, np.float32)


@pytest.fixture(scope="module")
def llama():
    return attn.load(FOLDER)


MODULE = attn.MultiHeadAttention(4, 4, 5, 0.0, 2)


@pytest.mark.parametrize("call, expected, found", [
    (lambda m: attn.experiment(m, []), "a text of at least one token", "none"),
    (lambda m: attn.experiment(m, IDS).scale(3, 2.0), "a head as (layer, head)", "3"),
    (lambda m: attn.experiment(m, IDS).without("1.2"), "a head as (layer, head)", "'1.2'; here heads count from 0"),
    (lambda m: attn.experiment(m, IDS).hide(0, (1, 2, 3)), "a head as (layer, head), or a layer", "(1, 2, 3)"),
    (lambda m: attn.experiment(m, IDS).without((0, 1), over=[IDS]), 'by="mean" or by="text" beside over', "by='zero'"),
    (lambda m: attn.experiment(m, IDS).without((0, 1), by="text"), "over as a list of texts", "none; write over=[text]"),
    (lambda m: attn.experiment(m, IDS).keep_only((0, 1), by="mean", over="a"), "over as a list of texts", "one text"),
    (lambda m: attn.experiment(m, IDS).keep_only((0, 1), by="text", over=[[1]]), "over as one text of 6 tokens", "1"),
    (lambda m: attn.experiment(m, IDS).step("weights", True), "a factor, or an array", "True"),
    (lambda m: attn.experiment(m, IDS).scale((0, 1), 1e39), "a finite factor of float32", "1e+39"),
    (lambda m: attn.experiment(m, IDS).next(0), "count of at least 1", "0"),
    (lambda m: attn.experiment(m, IDS).effects(tokens=[3, [4]]), "ids of one text", "shape (1, 1)"),
    (lambda m: attn.experiment(m, IDS).effects(tokens=[3]), "tokens as two of them", "[3]"),
    (lambda m: attn.experiment(m, IDS).patch_from([1, 2, 3, 4, 5, 6], "ab"), "tokens as two of them", "'ab'"),
    (lambda m: attn.experiment(m, IDS).plot("all"), "one of losses, next", "'all'"),
    (lambda m: attn.experiment(m, IDS).plot("losses", table="heads"), "no table for losses, which has one", "'heads'"),
    (lambda m: attn.experiment(m, [3]).plot("losses"), "a text of at least two tokens", "1"),
    (lambda m: m.steps([]), "a text of at least one token", "an empty one"),
    (lambda m: m.steps([IDS]), "ids of one text", "shape (1, 6)"),
    (lambda m: m.generate(IDS, seed=-1), "seed from 0 to 2**64 - 1", "-1"),
    (lambda m: m.generate(IDS, seed=2**64), "seed from 0 to 2**64 - 1", "18446744073709551616"),
    (lambda m: attn.load("\ud800"), "a path in UTF-8", r"'\ud800'"),
    (lambda m: attn.report(MODULE, X, layer=1), "layer 0 of a module, which is one layer", "1"),
    (lambda m: attn.explain(MODULE, X, source=X), "one input", "a source beside it; CrossAttention takes two"),
    (lambda m: attn.explain(MODULE, X, head=2), "head from 0 to 1", "2"),
    (lambda m: attn.explain(MODULE, X, key=5), "key from 0 to 4", "5"),
    (lambda m: attn.explain(MODULE, X, query=-1), "query from 0 to 4", "-1"),
    (lambda m: attn.explain(MODULE, X, tokens=["a"]), "tokens for 5 rows", "1"),
    (lambda m: attn.plot(WEIGHTS, item=1), "item 0 of weights without a batch", "1"),
    (lambda m: attn.plot(WEIGHTS).save("w.svg", dpi=96), "dpi for a path that ends in .png", "'w.svg'"),
    (lambda m: attn.plot(WEIGHTS).save("w.gif"), "a path that ends in .svg, .png or .html", "'w.gif'"),
])  # fmt: skip
def test_a_call_without_a_meaning_is_refused(llama, call, expected, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = rf"expected {re.escape(expected)}.*; found {re.escape(found)}"
    with pytest.raises(ValueError, match=words):
        call(llama)
    assert not list(tmp_path.iterdir())


WRONG = [None, object(), [3], "x", 1.5, {}, True, b"a", np.float32(2), [[1]], -1, 10**30, float("nan")]
ARGUMENTS = {"token": 3, "tokens": [3, 4], "text": [1, 2, 3, 4, 5, 6], "head": (0, 1), "factor": 2.0, "name": "uniform",
             "layer": 0, "change": 0.5, "what": "losses", "ids": [3, 1], "prompt": [3, 1], "step": "weights"}  # fmt: skip


def methods():
    for kind in (type(attn.experiment(attn.load(FOLDER), IDS)), attn.LanguageModel):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") or name == "__call__":
                parameters = list(inspect.signature(method).parameters.values())[1:]
                of_its_own = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
                yield from (pytest.param(kind, name, of_its_own, wrong, id=f"{name}-{wrong.name}") for wrong in of_its_own)


# A binding's own error would list its C++ signature, and Python's would tell of a line within the package.
@pytest.mark.parametrize("kind, name, parameters, wrong", list(methods()))
def test_every_argument_is_checked_before_it_is_used(llama, kind, name, parameters, wrong):
    method = getattr(llama if kind is attn.LanguageModel else attn.experiment(llama, IDS), name)
    for value in WRONG:
        positional, named = [], {}
        for p in parameters:
            if p is not wrong and p.default is not p.empty:
                continue
            given = value if p is wrong else llama if p.name == "model" else ARGUMENTS[p.name]
            if p.default is p.empty:
                positional.append(given)
            else:
                named[p.name] = given
        try:
            method(*positional, **named)
        except (TypeError, ValueError, OSError) as error:
            assert re.match(r"\[[\w ]+\] expected .*; found ", str(error)), (value, str(error))
