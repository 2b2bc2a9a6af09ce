"""Experiment.plot() draws what `attn experiment` draws."""

import html
import re
import subprocess
import sys

import numpy as np
import pytest

import attn

MODEL, TEXT, OTHER = "examples/data/licences.safetensors", "You may copy it.", "You can copy it."
CASES = {
    "losses": ([], ("losses",), {}),
    "next": (["--next", "--count", "4"], ("next", 4), {}),
    "changes": (["--changes"], ("changes",), {}),
    "effects": (["--effects"], ("effects",), {}),
    "lens": (["--lens"], ("lens",), {}),
    "rollout": (["--rollout"], ("rollout",), {}),
    "scores": (["--scores"], ("scores",), {}),
    "attribution": (["--attribution", "--tokens", "a", "b"], ("attribution", "a", "b"), {}),
    "stream": (["--patch-from", OTHER, "--tokens", "a", "b"], ("patch_from", OTHER, ("a", "b")), {}),
    "heads": (["--patch-from", OTHER, "--tokens", "a", "b", "--heads"], ("patch_from", OTHER, ("a", "b")), {"table": "heads"}),
}


@pytest.fixture(scope="module")
def changed():
    """A head switched off, since without changes nothing gives otherwise."""
    return attn.experiment(MODEL, TEXT).without((1, 0))


@pytest.mark.no_sanitizer  # the command
@pytest.mark.parametrize("name", CASES)
def test_a_figure_is_the_commands(tmp_path, changed, name):
    flags, arguments, options = CASES[name]
    path = tmp_path / "figure.svg"
    command = [sys.executable, "-m", "attn", "experiment", "--model", MODEL, "--text", TEXT, "--without", "2.1", *flags]
    subprocess.run([*command, "--output", str(path)], check=True, capture_output=True)
    want = path.read_text(encoding="utf-8")
    title = html.unescape(re.search("<title>(.*)</title>", want)[1])
    assert str(changed.plot(*arguments, title=title, **options)) == want
    own = str(changed.plot(*arguments, **options))
    assert (own == want) == (name in ("losses", "next", "changes", "lens", "rollout", "scores"))


@pytest.mark.no_sanitizer  # the command
def test_what_another_model_adds_is_the_commands(tmp_path, changed):
    content = bytearray(open(MODEL, "rb").read())
    weights = np.frombuffer(content, np.float32, offset=8 + int.from_bytes(content[:8], "little"))
    weights *= 1.01  # of the same sizes
    other, path = tmp_path / "other.safetensors", tmp_path / "figure.svg"
    other.write_bytes(content)
    command = [sys.executable, "-m", "attn", "experiment", "--model", MODEL, "--other-model", str(other), "--text", TEXT]
    subprocess.run([*command, "--without", "2.1", "--output", str(path)], check=True, capture_output=True)
    assert str(changed.plot("compare", other)) == path.read_text(encoding="utf-8")


def test_estimates_are_drawn_where_there_are_some():
    whole = attn.experiment(MODEL, TEXT)
    assert str(whole.plot("effects", exact=1)) != str(whole.plot("effects"))


@pytest.mark.parametrize("call, words", {
    "a name": (lambda e: e.plot("loss"), "one of losses, next, compare, changes, effects.*found 'loss'"),
    "a table": (lambda e: e.plot("scores", table="heads"), "table as one of induction, previous, duplicate; found 'heads'"),
    "no tables": (lambda e: e.plot("lens", table="heads"), "no table for lens"),
    "colours": (lambda e: e.plot("lens", colours="red"), "viridis, cividis, grey"),
    "one token": (lambda e: attn.experiment(MODEL, "Y").plot("losses"), "at least two tokens"),
    "the method's own": (lambda e: e.plot("effects", by="half"), "half"),
}.values())  # fmt: skip
def test_what_cannot_be_drawn(changed, call, words):
    with pytest.raises(ValueError, match=words):
        call(changed)


def test_plot_of_an_experiment_says_where_its_figures_are(changed):
    with pytest.raises(TypeError, match=r"found attn.Experiment; call its plot\(\"effects\"\)"):
        attn.plot(changed)
