"""pickle and copy: what is made of numbers goes along, and what belongs to its process says so."""

import copy
import pickle

import numpy as np
import pytest
from conftest import ROOT

import attn

X = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
ROPE = attn.rotary_frequencies({"rope_theta": 1e4, "hidden_size": 4, "num_attention_heads": 1})
MAKES = {
    "simple": attn.SimplifiedSelfAttention,
    "v1": lambda: attn.SelfAttention_v1(4, 4),
    "heads": lambda: attn.MultiHeadAttentionWrapper(4, 2, 6, 0.5, 2),
    "multihead": lambda: attn.MultiHeadAttention(4, 4, 6, 0.5, 1, rope=ROPE, generator=attn.Generator(7)),
    "gated": lambda: attn.GatedDeltaNet(4, 4, 1),
    "latent": lambda: attn.LatentAttention(4, 4, 2),
}


def pickled(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("name", MAKES)
def test_modules(name, copied):
    attn.manual_seed(3)
    module = MAKES[name]().eval()
    other = copied(module)
    attn.manual_seed(4)
    drawn = attn.rand(2)
    attn.manual_seed(4)
    copied(module)
    assert np.array_equal(attn.rand(2), drawn), "copies draw nothing"
    assert type(other) is type(module) and not other.training and np.array_equal(other(X), module(X))
    before = module(X)
    for p in other.parameters():
        p.value += 1
    assert np.array_equal(module(X), before), "memory of its own"


def test_a_module_with_a_generator_of_its_own_draws_alike():
    module = MAKES["multihead"]()
    module(X)
    other = pickled(module)
    assert np.array_equal(other(X), module(X)) and np.array_equal(other(X), module(X))


def test_a_shallow_copy_of_a_module_has_its_memory():
    module = MAKES["v1"]()
    copy.copy(module).parameters()[0].value[...] = 0
    assert not module.parameters()[0].value.any()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("dropout", ["mkl", "native", "philox"])
def test_generators(copied, dropout):
    generator = attn.Generator(5, dropout)
    generator.rand(3)
    other = copied(generator)
    assert other.dropout == dropout and np.array_equal(other.rand(4), generator.rand(4))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_caches(copied):
    cache = attn.KVCache(head_dim=4)
    cache.append(X[None, None], X[None, None])
    other = copied(cache)
    other.append(X[None, None], X[None, None])
    assert (cache.lengths, other.lengths) == (5, 10)


def test_what_belongs_to_its_process():
    model = attn.load(ROOT / "examples" / "data" / "licences.safetensors")
    experiment = attn.experiment(model, "You may")
    encoder = attn.Encoder(ROOT / "tests" / "lm" / "data" / "bert")
    function = attn.ScoreFunction(1234)
    for shared, hint in ((model, r"attn.load\(path\)"), (model.tokenizer, "tokenizer there"), (experiment, "attn.experiment"),
                         (encoder, r"attn.Encoder\(folder\)"), (function, "make it there")):  # fmt: skip
        assert copy.copy(shared) is shared and copy.deepcopy(shared) is shared
        with pytest.raises(TypeError, match=rf"\[pickle\] expected .*; found attn.{type(shared).__name__}, .*{hint}"):
            pickle.dumps(shared)
    for alone, hint in ((attn.KVCache(), "append"), (model.stream("You", new_tokens=2), "prompt_ids")):
        with pytest.raises(TypeError, match=rf"\[pickle\] expected .*; found attn.{type(alone).__name__}, .*{hint}"):
            pickle.dumps(alone)


def test_drawings():
    report, figure = attn.report(np.eye(2, dtype=np.float32)), attn.plot(np.eye(2, dtype=np.float32))
    for drawn in (report, figure):
        assert str(pickled(drawn)) == str(copy.deepcopy(drawn)) == str(drawn)
