"""report() and plot(): attention weights of any framework, modules, and what cannot be shown."""

import warnings
import xml.etree.ElementTree as xml

import numpy as np
import pytest
from pages import data_of, steps_of, weights_of

import attn

rng = np.random.default_rng(7)
WORDS = ["Your", "journey", "starts", "with"]


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


WEIGHTS = softmax(rng.standard_normal((3, 2, 4, 4)))  # (layers, heads, queries, keys)


def test_every_layer_and_head_of_an_array():
    page = attn.report(WEIGHTS, tokens=WORDS, layer=2, head=1)
    np.testing.assert_array_equal(weights_of(page), WEIGHTS)
    assert data_of(page)["tokens"] == WORDS and data_of(page)["start"] == {"layer": 2, "head": 1}
    np.testing.assert_array_equal(weights_of(attn.report(WEIGHTS[0])), WEIGHTS[:1])
    np.testing.assert_array_equal(weights_of(attn.report(WEIGHTS[0, 0])), WEIGHTS[:1, :1])


def test_a_tuple_of_layers():
    batch = tuple(np.stack([layer, layer[::-1]]) for layer in WEIGHTS)  # as Hugging Face returns it
    np.testing.assert_array_equal(weights_of(attn.report(batch)), WEIGHTS)
    np.testing.assert_array_equal(weights_of(attn.report(batch, item=1)), WEIGHTS[:, ::-1])
    np.testing.assert_array_equal(weights_of(attn.report(list(WEIGHTS))), WEIGHTS)
    page = attn.report((None, WEIGHTS[1], None))  # layers without attention
    assert [block["label"] for block in data_of(page)["blocks"]] == ["layers.1"]
    with pytest.raises(ValueError, match="weights of every layer; found None for 2 of 3 layers"):
        attn.plot((None, WEIGHTS[1], None))


def test_the_text_of_a_batch():
    five = np.stack([WEIGHTS, WEIGHTS[::-1]], axis=1)  # (layers, batch, heads, queries, keys)
    for item in (0, 1):
        np.testing.assert_array_equal(weights_of(attn.report(five, item=item)), five[:, item])
    x = rng.standard_normal((3, 4, 6)).astype(np.float32)
    module = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    page = attn.report(module, x, item=2)
    np.testing.assert_array_equal(steps_of(page)["weights"], module.steps(x)["weights"][2])
    assert attn.plot(module, x, item=1)._repr_svg_() == str(attn.plot(module, x[1]))


def test_other_frameworks():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(WEIGHTS).requires_grad_()
    np.testing.assert_array_equal(weights_of(attn.report(tensor)), WEIGHTS)
    np.testing.assert_array_equal(weights_of(attn.report(tuple(tensor))), WEIGHTS)
    half = tensor.to(torch.bfloat16)
    np.testing.assert_array_equal(weights_of(attn.report(half)), half.detach().float().numpy())


def test_jax():
    jax = pytest.importorskip("jax")
    np.testing.assert_array_equal(weights_of(attn.report(jax.numpy.asarray(WEIGHTS))), WEIGHTS)


@pytest.mark.parametrize("draw", [attn.report, attn.plot], ids=["report", "plot"])
def test_what_cannot_be_shown_is_an_error(draw):
    for what, kind, said in [
        (np.ones((2, 3, 3), np.int64), TypeError, r"astype\(np.float32\)"),
        ("weights", ValueError, "found a path; pass attn.load"),
        ({"weights": WEIGHTS}, TypeError, "found dict"),
        (WEIGHTS[0, 0, 0], ValueError, r"shape \(4,\)"),
        (WEIGHTS[None, None, None], ValueError, "shape"),
        ((WEIGHTS[None],), ValueError, "shape"),
        ((None, None), ValueError, 'attn_implementation="attn"'),
        ((), ValueError, "found an empty tuple"),
        ((WEIGHTS[0], WEIGHTS[0, :, :2, :2]), ValueError, "layers of one shape"),
        (np.zeros((0, 2, 4, 4), np.float32), ValueError, "shape"),
    ]:
        with pytest.raises(kind, match=said):
            draw(what)
    with pytest.raises(ValueError, match="item 0 of weights without a batch"):
        draw(WEIGHTS, item=1)
    with pytest.raises(ValueError, match="item from 0 to 1; found 2"):
        draw((np.stack([WEIGHTS[0]] * 2),), item=2)
    with pytest.raises(ValueError, match="take no input"):
        draw(WEIGHTS, WORDS)
    with pytest.raises(ValueError, match="found 3"):
        draw(WEIGHTS, tokens=WORDS[:3])
    for wrong in ({"layer": 3}, {"layer": -1}, {"head": 2}):
        with pytest.raises(ValueError, match="from 0 to"):
            draw(WEIGHTS, **wrong)
    with pytest.raises(ValueError, match="no source"):
        draw(attn.CrossAttention(6, 4), rng.standard_normal((4, 6)).astype(np.float32))
    with pytest.raises(TypeError, match=r"astype\(np.float32\)"):
        draw(attn.SelfAttention_v2(6, 4), rng.standard_normal((4, 6)))


@pytest.mark.parametrize("draw", [attn.report, attn.plot], ids=["report", "plot"])
@pytest.mark.parametrize("options, words", [
    ({"tokens": [1, 2, 3, 4]}, "tokens as a sequence of strings; found list with int"),
    ({"key_tokens": 5}, "key_tokens as a list of strings; found int"),
    ({"title": 3}, "title as a string; found int"),
    ({"head": 0.5}, "head as an integer; found float"),
    ({"layer": "a"}, "layer as an integer; found str"),
    ({"item": "a"}, "item as an integer; found str"),
])  # fmt: skip
def test_an_argument_of_the_wrong_kind_is_named(draw, options, words):
    with pytest.raises(TypeError, match=rf"^\[{draw.__name__}\] expected {words}$"):
        draw(WEIGHTS, **options)


@pytest.mark.parametrize("draw", [attn.report, attn.plot], ids=["report", "plot"])
def test_a_modules_input_is_asked_for(draw):
    module = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    with pytest.raises(TypeError, match="an input x beside MultiHeadAttention; found none"):
        draw(module)
    with pytest.raises(TypeError, match="item as an integer; found float"):
        draw(module, rng.standard_normal((2, 4, 6)).astype(np.float32), item=1.5)


def test_scores_hide_their_future_too():
    module = attn.CausalAttention(6, 4, 8, 0.0)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    for step in ("scores", "scaled", "masked", "weights"):
        shown = str(attn.plot(module, x, step=step, tokens=WORDS))
        told = "-inf" if step == "masked" else "masked"  # of masked scores, -inf is the number itself
        assert shown.count(f": {told}</title>") == 6, step


def test_the_title_says_which_layer_and_head():
    def title(**options):
        texts = xml.fromstring(str(attn.plot(WEIGHTS, **options))).iter("{http://www.w3.org/2000/svg}text")
        return next((e.text for e in texts if e.get("font-weight")), "")

    assert title() == ""  # each picture has its own name
    assert title(layer=1) == "layer 2"
    assert title(figure="lines", layer=1) == "layer 2"
    assert title(figure="lines", layer=1, head=1) == "layer 2, head 2"
    assert title(figure="heatmap") == "layer 1, head 1"
    assert title(layer=1, head=1, title="mine") == "mine"


def test_random_weights_are_called_random():
    x = rng.standard_normal((4, 6)).astype(np.float32)
    module = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    random = lambda: data_of(attn.report(module, x))["randomWeights"]  # noqa: E731
    assert random()
    module(x)
    module.backward(np.ones((4, 4), np.float32))
    assert random()
    for parameter in module.parameters():
        parameter.value -= 0.1 * parameter.grad
    assert not random()
    again = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    again.load_state_dict(module.state_dict())
    assert not data_of(attn.report(again, x))["randomWeights"]
    assert not data_of(attn.report(attn.SimplifiedSelfAttention(), x))["randomWeights"]
    assert not data_of(attn.report(WEIGHTS))["randomWeights"]


def titles(figure):
    return [e.text for e in xml.fromstring(str(figure)).iter("{http://www.w3.org/2000/svg}title")]


def test_plot_draws_the_numbers():
    figure = attn.plot(WEIGHTS, layer=1, head=0, tokens=WORDS)
    for i in range(4):
        for j in range(4):
            found = [t for t in titles(figure) if t.startswith(f"{WORDS[i]} → {WORDS[j]}: ")]
            assert float(found[0].split(": ")[1]) == pytest.approx(WEIGHTS[1, 0, i, j], rel=1e-5)
    heads = str(attn.plot(WEIGHTS))
    assert "layer 3, head 2" in heads and "layer 4" not in heads
    assert "head 2" in str(attn.plot(WEIGHTS[0])) and "layer" not in str(attn.plot(WEIGHTS[0]))


def test_every_figure_of_a_module(tmp_path):
    x = rng.standard_normal((4, 6)).astype(np.float32)
    module = attn.MultiHeadAttention(6, 4, 8, 0.0, 2)
    for figure in ("", "heatmap", "heads", "lines", "space", "arrows", "steps"):
        drawn = attn.plot(module, x, figure=figure, tokens=WORDS, title="one & two")
        xml.fromstring(drawn._repr_svg_())
        assert "one &amp; two" in str(drawn), figure
    assert "masked" in str(attn.plot(module, x, head=0))
    attn.plot(module, x, step="queries", head=1).save(tmp_path / "queries.svg")
    assert (tmp_path / "queries.svg").read_text(encoding="utf-8").startswith("<svg")
    cross = attn.CrossAttention(6, 4)
    other = rng.standard_normal((7, 6)).astype(np.float32)
    for step in ("keys", "weights", "queries"):
        xml.fromstring(str(attn.plot(cross, x, other, step=step, tokens=WORDS, figure="heatmap")))
    with pytest.raises(ValueError, match="figure among heatmap"):
        attn.plot(module, x, figure="pie")
    with pytest.raises(ValueError, match="a step among inputs"):
        attn.plot(module, x, step="dropped")
    with pytest.raises(ValueError, match="scale among auto"):
        attn.plot(module, x, scale="red")
    with pytest.raises(ValueError, match=r"ends in \.svg"):
        attn.plot(module, x).save(tmp_path / "picture.pdf")
    assert list(tmp_path.iterdir()) == [tmp_path / "queries.svg"]


@pytest.mark.parametrize("figure, name, value", [
    ("steps", "step", "queries"), ("steps", "scale", "row"), ("space", "scale", "log"), ("arrows", "colours", "grey"),
    ("lines", "colours", "grey"), ("heads", "head", 1),
])  # fmt: skip
def test_an_argument_that_a_figure_would_pass_over(figure, name, value):
    module, x = attn.MultiHeadAttention(6, 4, 8, 0.0, 2), rng.standard_normal((4, 6)).astype(np.float32)
    with pytest.raises(ValueError, match=rf'arguments that the figure "{figure}" uses; found {name}'):
        attn.plot(module, x, figure=figure, **{name: value})
    assert str(attn.plot(module, x, figure="steps", colours="grey")) != str(attn.plot(module, x, figure="steps"))


def test_layers_of_different_numbers_of_heads():
    layers = [np.full((heads, 3, 3), 1 / 3, np.float32) for heads in (2, 3)]
    with pytest.raises(ValueError, match=r"as many heads in every layer; found \(2, 3, 3\).*\(3, 3, 3\).*layer="):
        attn.plot(layers)
    assert "<svg" in str(attn.plot(layers, layer=1, head=2))


@pytest.mark.parametrize("draw", [attn.plot, attn.report])
@pytest.mark.parametrize("wrong, found", [(np.nan, "nan"), (-0.25, "-0.25"), (2.0, "a sum of 2.75")])
def test_weights_that_cannot_be_are_told(draw, wrong, found):
    weights = np.full((2, 4, 4), 0.25, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(weights)
        draw(np.tril(weights))  # a sink may have the rest of a row
    weights[1, 2, 3] = wrong
    with pytest.warns(UserWarning, match=f"found .*{found} for query 2 of head 1"):
        draw(weights)
