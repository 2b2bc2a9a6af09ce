"""Texts in place of arrays: every module takes one, and pictures show its words."""

import json
import re

import numpy as np
import pytest
from conftest import ROOT
from pages import data_of, steps_of

import attn

TEXT = "The cat sat on the mat, didn't it?"
WORDS = ["The", "cat", "sat", "on", "the", "mat", ",", "didn", "'", "t", "it", "?"]


def test_words_are_cut_as_the_book_cuts_them():
    assert attn.split_words(TEXT) == WORDS
    rng = np.random.default_rng(11)
    letters = list("ab,.:;?_!\"()'-- \t\n\x1c\x85\u00a0\u2028\u200bé猫😀")
    for _ in range(300):
        text = "".join(rng.choice(letters, rng.integers(0, 30)))
        expected = [part for part in re.split(r"([,.:;?_!\"()']|--|\s)", text) if part.strip()]
        assert attn.split_words(text) == expected, text


def test_vectors_are_those_of_the_documented_formula():
    for case in json.loads((ROOT / "tests/text/data/words.json").read_text()):
        expected = np.asarray(case["vectors"], np.float32)
        np.testing.assert_array_equal(attn.embed_words(case["text"], case["d_in"]), expected)
        np.testing.assert_array_equal(attn.embed_words(case["words"], case["d_in"]), expected)


MODULES = [
    attn.SimplifiedSelfAttention(), attn.AveragePast(), attn.SelfAttention_v1(5, 2), attn.SelfAttention_v2(7, 3, True),
    attn.SelfAttentionHead(6, 2), attn.CausalAttention(4, 2, 12, 0.0), attn.MultiHeadAttentionWrapper(9, 2, 12, 0.0, 2),
    attn.MultiHeadAttention(8, 4, 12, 0.0, 2),
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
def test_every_module_reads_a_text(module):
    sizes = dict(zip(MODULES, (24, 24, 5, 7, 6, 4, 9, 8)))
    x = attn.embed_words(TEXT, sizes[module])
    np.testing.assert_array_equal(module(TEXT), module(x))
    np.testing.assert_array_equal(module.steps(TEXT)["weights" if "Wrapper" not in repr(module) else "heads.0.weights"],
                                  module.steps(x)["weights" if "Wrapper" not in repr(module) else "heads.0.weights"])  # fmt: skip
    page = attn.report(module, TEXT)
    assert data_of(page)["tokens"] == WORDS and data_of(page)["title"] == TEXT
    assert str(attn.plot(module, TEXT)) == str(attn.plot(module, x, tokens=WORDS))


def test_cross_attention_reads_two_texts():
    cross = attn.CrossAttention(6, 4)
    x, source = attn.embed_words("My dog", 6), attn.embed_words("a cat and a hat", 6)
    np.testing.assert_array_equal(cross("My dog", "a cat and a hat"), cross(x, source))
    page = attn.report(cross, "My dog", "a cat and a hat")
    assert data_of(page)["tokens"] == ["My", "dog"] and data_of(page)["keyTokens"] == ["a", "cat", "and", "a", "hat"]
    np.testing.assert_array_equal(steps_of(page)["weights"][0], cross.steps(x, source)["weights"])


def test_what_is_no_text_is_refused_by_name():
    mha = attn.MultiHeadAttention(8, 4, 3, 0.0, 2)
    for text, said in [("", "at least one word"), (" \n", "at least one word"), ("a b c d", "context_length = 3")]:
        for call in (mha, mha.steps, lambda text: attn.report(mha, text), lambda text: attn.plot(mha, text)):
            with pytest.raises(ValueError, match=said):
                call(text)
    with pytest.raises(ValueError, match="positive d_in"):
        attn.embed_words("a", 0)
    with pytest.raises(TypeError, match="words"):
        attn.embed_words([1, 2])
    with pytest.raises(TypeError, match="text as a string"):
        attn.split_words(b"a")
    torch = pytest.importorskip("torch")
    from attn.torch import MultiHeadAttention

    module = MultiHeadAttention(8, 4, 12, 0.0, 2)
    with pytest.raises(TypeError, match="attn.embed_words"):
        module(TEXT)
    x = torch.from_numpy(attn.embed_words(TEXT, 8))
    assert str(attn.plot(module, TEXT)) == str(attn.plot(module, x, tokens=WORDS))


def test_torchs_modules_have_the_same_steps():
    torch = pytest.importorskip("torch")
    import attn.torch

    torch.manual_seed(3)
    for kind, sizes in [("SelfAttention_v1", (8, 4)), ("SelfAttention_v2", (8, 4)), ("CausalAttention", (8, 4, 12, 0.5)),
                        ("MultiHeadAttentionWrapper", (8, 4, 12, 0.5, 2)), ("MultiHeadAttention", (8, 4, 12, 0.5, 2))]:  # fmt: skip
        module = getattr(attn.torch, kind)(*sizes)
        x = torch.randn(5, 8, requires_grad=True)
        steps = module.steps(x)
        assert all(isinstance(step, torch.Tensor) and not step.requires_grad for step in steps.values())
        last = list(steps)[-1]
        if kind != "MultiHeadAttentionWrapper":
            torch.testing.assert_close(steps[last], module.eval()(x).detach())
        same = getattr(attn, kind)(*sizes)
        same.load_state_dict(module.state_dict())
        for name, step in same.eval().steps(x.detach().numpy()).items():
            np.testing.assert_array_equal(steps[name].numpy(), step)
        assert list(module.steps("My dog likes it")) == list(steps)


def test_the_books_own_class_is_told_how():
    torch = pytest.importorskip("torch")

    class CausalAttention(torch.nn.Module):
        pass

    for call in (attn.report, attn.plot):
        with pytest.raises(ValueError, match=r"attn.torch.CausalAttention with the same arguments.*load_state_dict"):
            call(CausalAttention(), np.ones((3, 2), np.float32))


def test_figures_are_saved_as_png(tmp_path):
    import ctypes.util

    figure = attn.plot(attn.SimplifiedSelfAttention(), "My dog")
    figure.save(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text() == str(figure)
    figure.save(tmp_path / "f.html")
    assert str(figure) in (tmp_path / "f.html").read_text()
    with pytest.raises(ValueError, match=r".svg, .png or .html"):
        figure.save(tmp_path / "f.pdf")
    for other in ("f.svg", "f.html"):
        with pytest.raises(ValueError, match="dpi for a path that ends in .png"):
            figure.save(tmp_path / other, dpi=96)
    if ctypes.util.find_library("rsvg-2") is None:
        pytest.skip("no librsvg")
    sizes = []
    for dpi in (96, 192):
        figure.save(tmp_path / "f.png", dpi=dpi)
        png = (tmp_path / "f.png").read_bytes()
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        sizes.append((int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")))
    assert abs(sizes[1][0] - 2 * sizes[0][0]) <= 1 and abs(sizes[1][1] - 2 * sizes[0][1]) <= 1
    for wrong, kind in [(1, ValueError), (float("nan"), ValueError), ("x", TypeError)]:
        with pytest.raises(kind, match="dpi"):
            figure.save(tmp_path / "g.png", dpi=wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.html", "f.png", "f.svg"]


def test_halves_of_characters_are_no_text():
    for call in (lambda: attn.split_words("\ud800 a"), lambda: attn.embed_words(["a", "\ud800"]),
                 lambda: attn.report(np.eye(2, dtype=np.float32)[None], tokens=["a", "\ud800"])):  # fmt: skip
        with pytest.raises(UnicodeEncodeError, match=r"\[.+\] expected (text|words|tokens).* of whole characters; found half of one"):
            call()
    with pytest.raises(TypeError, match="text as a string; found int"):
        attn.split_words(1)
