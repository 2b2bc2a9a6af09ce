"""attn.explain says what `attn explain` prints."""

import os
import subprocess
import sys

import numpy as np
import pytest

import attn

TEXT = "The cat chased a mouse."
WORDS = ["The", "cat", "chased", "a", "mouse", "."]
D = 24  # numbers of a word


def by_command(*arguments):
    command = [sys.executable, "-m", "attn", "explain", *arguments]
    environment = {**os.environ, "NO_COLOR": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.replace("\nSeed 123\n", "\n")


MODULES = {
    "simple": lambda: attn.SimplifiedSelfAttention(),
    "average": lambda: attn.AveragePast(),
    "self-v1": lambda: attn.SelfAttention_v1(D, D),
    "causal": lambda: attn.CausalAttention(D, D, 8, 0.0),
    "heads": lambda: attn.MultiHeadAttentionWrapper(D, D, 8, 0.0, 2),
    "multihead": lambda: attn.MultiHeadAttention(D, D, 8, 0.0, 2),
    "head": lambda: attn.SelfAttentionHead(D, D),
    "gated-delta": lambda: attn.GatedDeltaNet(D, D, 2),
    "latent": lambda: attn.LatentAttention(D, D, 2),
}


@pytest.mark.no_sanitizer  # the command
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("query", [0, 3])
def test_the_commands_words(name, query):
    attn.manual_seed(123)
    module = MODULES[name]()
    flags = ["--query", str(query + 1), "--text", TEXT]
    several = hasattr(module, "num_heads") or name in ("heads", "multihead", "gated-delta", "latent")
    more = {"head": 1} if several else {}
    found = attn.explain(module, TEXT, query=query, **more)
    assert found == by_command(name, *flags, *(["--head", "2"] if several else []))
    assert repr(found) == str(found)


@pytest.mark.no_sanitizer
def test_two_inputs():
    attn.manual_seed(123)
    module = attn.CrossAttention(D, D)
    found = attn.explain(module, TEXT, "A dog sleeps.", query=2)
    assert found == by_command("cross", "--query", "3", "--text", TEXT, "--context-text", "A dog sleeps.")


def test_arrays_and_words():
    x = np.random.default_rng(3).random((2, 4, 6), dtype=np.float32)
    module = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    text = attn.explain(module, x, tokens=WORDS[:4])
    assert text.startswith('multihead: what query 2 "cat" attends to, in head 1 of 2\nInput: x, (2, 4, 6); the first')
    assert text == attn.explain(module, x, query=1, head=0, tokens=WORDS[:4])
    assert repr(text) == str(text)  # so that a notebook shows it as it is
    weights = module.steps(x)["weights"][0, 0, 1]
    assert f"{weights[0]:.4f}" in text
    assert "query 1" in attn.explain(module, x[0, :1]).splitlines()[0]
    row = module(x)[0, 1]
    assert f"output_2 = [{row[0]:.4f}" in text


@pytest.mark.no_sanitizer
def test_a_key_that_matters_little_is_shown_where_it_is_asked_for():
    attn.manual_seed(123)
    module = attn.SelfAttention_v1(D, D)
    text = " ".join(f"word{i}" for i in range(20))
    weights = np.asarray(module.steps(text)["weights"]).reshape(20, 20)[1]
    least = next(int(j) for j in np.argsort(-weights)[8:] if j != 1)  # the first that is not shown
    line = f"query_2 · key_{least + 1} ="
    assert line not in attn.explain(module, text)
    found = attn.explain(module, text, key=least)
    assert line in found and "  11 more, sum " in found
    assert found == by_command("self-v1", "--text", text, "--key", str(least + 1))


def test_torch_modules():
    torch = pytest.importorskip("torch")
    import attn.torch

    torch.manual_seed(5)
    module = attn.torch.CausalAttention(6, 4, 8, 0.5)
    x = torch.rand(4, 6)
    own = attn.CausalAttention(6, 4, 8, 0.0)
    own.load_state_dict(module.state_dict())
    assert attn.explain(module, x) == attn.explain(own, x.numpy())


def test_the_books_class_is_told_how():
    book = type("CausalAttention", (), {})()
    with pytest.raises(TypeError, match=r"found CausalAttention; make an attn.torch.CausalAttention .*state_dict"):
        attn.explain(book, np.ones((4, 6), np.float32))


@pytest.mark.parametrize("call, kind, says", [
    (lambda m, x: attn.explain(m, x, query=4), ValueError, "query from 0 to 3; found 4"),
    (lambda m, x: attn.explain(m, x, query=-1), ValueError, "query from 0 to 3; found -1"),
    (lambda m, x: attn.explain(m, x, query="2"), TypeError, "query as an integer; found str"),
    (lambda m, x: attn.explain(m, x, head=2), ValueError, "head from 0 to 1; found 2"),
    (lambda m, x: attn.explain(m, x, tokens=["a"]), ValueError, "tokens for 4 rows; found 1"),
    (lambda m, x: attn.explain(m, x, tokens=[1, 2, 3, 4]), TypeError, "tokens as a sequence of strings"),
    (lambda m, x: attn.explain(m, x[:0]), ValueError, "not empty"),
    (lambda m, x: attn.explain(m, [1, 2]), TypeError, "x as an array, or a text; found list"),
    (lambda m, x: attn.explain(m, x[:, :3]), ValueError, "expected"),
    (lambda m, x: attn.explain(m, x, x), ValueError, "one input"),
    (lambda m, x: attn.explain(x, x), TypeError, "a module of attn or attn.torch; found ndarray"),
    (lambda m, x: attn.explain(m, None), TypeError, "an input x"),
    (lambda m, x: attn.explain(m, x, key=4), ValueError, "key from 0 to 3; found 4"),
    (lambda m, x: attn.explain(m, x, key="a"), TypeError, "key as an integer; found str"),
])  # fmt: skip
def test_what_is_refused(call, kind, says):
    module = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    with pytest.raises(kind, match=says):
        call(module, np.ones((4, 6), np.float32))
