"""attn.Encoder beside transformers, on the small BERT of the C++ tests."""

import json
import pathlib

import numpy as np
import pytest
from pages import data_of, steps_of

import attn

BERT = pathlib.Path(__file__).parents[1] / "lm" / "data" / "bert"
TEXTS = [[5, 7, 11], [1], [2, 9, 30, 60, 0, 4, 4, 8]]


@pytest.fixture(scope="module")
def encoder():
    return attn.Encoder(BERT)


@pytest.fixture(scope="module")
def bert():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    return transformers.AutoModel.from_pretrained(BERT, attn_implementation="eager", add_pooling_layer=False).eval()


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("normalised", [True, False])
def test_vectors_are_transformers(encoder, bert, pooling, normalised):
    import torch

    found = encoder.embed(TEXTS, pooling=pooling, normalised=normalised)
    for row, ids in zip(found, TEXTS, strict=True):
        with torch.no_grad():
            states = bert(torch.tensor([ids])).last_hidden_state[0]
        wanted = states.mean(0) if pooling == "mean" else states[0]
        wanted = wanted / wanted.norm() if normalised else wanted
        assert np.abs(row - wanted.numpy()).max() < 1e-5
        assert np.array_equal(encoder.embed([ids], pooling=pooling, normalised=normalised)[0], row)


def test_heads_are_transformers(encoder, bert):
    import torch

    ids = TEXTS[2]
    steps = encoder.steps(ids)
    with torch.no_grad():
        out = bert(torch.tensor([ids]), output_attentions=True)
    for layer, weights in enumerate(out.attentions):
        assert np.abs(steps[f"encoder.layer.{layer}.attention.weights"] - weights[0].numpy()).max() < 1e-6
    assert np.abs(encoder(np.array(ids)) - out.last_hidden_state[0].numpy()).max() < 1e-5


def test_a_page_and_a_figure_show_the_heads(encoder):
    ids = TEXTS[2]
    page = attn.report(encoder, ids, tokens=[f"t{i}" for i in ids])
    assert len(data_of(page)["blocks"]) == json.loads((BERT / "config.json").read_text())["num_hidden_layers"]
    wanted = encoder.steps(ids)["encoder.layer.1.attention.weights"]
    assert np.abs(steps_of(page, 1)["weights"] - wanted).max() < 1e-6
    assert "t60" in str(page)
    same = {"head": 0, "title": "one"}
    drawn = attn.plot(encoder, ids, layer=1, **same)
    assert str(drawn) == str(attn.plot(wanted, tokens=[str(i) for i in ids], **same))
    with pytest.raises(ValueError, match="a text alone beside live=True; found list"):
        attn.report(encoder, ids, live=True)
    with pytest.raises(ValueError, match="checkpoints=True beside live=True of an attn.LanguageModel"):
        attn.report(encoder, ids, live=True, checkpoints=True)
    with pytest.raises(ValueError, match="a text or its ids beside the model"):
        attn.report(encoder)
    with pytest.raises(ValueError, match="at least one token"):
        attn.report(encoder, [])


@pytest.mark.parametrize("path", [BERT, BERT / "model.gguf"], ids=["folder", "gguf"])
def test_experiments_take_its_path(encoder, path):
    wanted = attn.experiment(encoder, TEXTS[2]).without((1, 0)).changes()
    assert np.abs(attn.experiment(path, TEXTS[2]).without((1, 0)).changes() - wanted).max() < 1e-6


def test_bad_calls(encoder):
    with pytest.raises(TypeError, match="put it in a list"):
        encoder.embed("a text")
    for wrong in ([1.5], [["a"]], [None]):
        with pytest.raises(TypeError, match="ids"):
            encoder.embed(wrong)
    for wrong in ([], [[]], [[61]], [[-1]], [[1] * 25]):
        with pytest.raises(ValueError, match="expected"):
            encoder.embed(wrong)
    with pytest.raises(ValueError, match="mean"):
        encoder.embed(TEXTS, pooling="max")
    with pytest.raises(OSError, match="tokenizer.json"):
        encoder.embed(["a text"])
    with pytest.raises(OSError, match="nowhere"):
        attn.Encoder("nowhere")
    with pytest.raises(ValueError, match="model_type"):
        attn.Encoder(BERT.parent / "llama")
