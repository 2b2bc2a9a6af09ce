"""attn.Encoder beside transformers, on the small BERT of the C++ tests."""

import pathlib

import numpy as np
import pytest

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
