"""attn_implementation="attn": arguments of a layer, which are followed, passed over as "eager" does, or refused."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import attn.transformers  # noqa: E402, F401

pytestmark = pytest.mark.no_sanitizer  # no binding that test_torch.py does not use


def layer(*, mask=None, module=None, tokens=5, **options):
    q = torch.randn(2, 3, tokens, 4, generator=torch.Generator().manual_seed(6))
    return attn.transformers.attention_forward(module or type("M", (), {})(), q, q, q, mask, **options)[0]


REFUSED = {
    "a paged cache": {"cache": object()},
    "keys that were chosen": {"indices": torch.zeros(2, 5, 1)},
    "blocks that were chosen": {"block_indices": torch.zeros(2, 5, 1)},
    "sinks of each token": {"sinks": torch.zeros(2, 3, 5, 1)},
    "a layer with sinks": {"module": type("M", (), {"sinks": torch.zeros(3)})()},
    "a window that no mask says": {"sliding_window": 3},
    "packed texts that no mask says": {"cu_seq_lens_q": torch.tensor([0, 2, 5])},
    "columns": {"mask": torch.ones(2, 1, 5, 7, dtype=torch.bool)},
    "columns of a window": {"mask": attn.transformers.LazyMask.of((2, 1, 5, 7), 2)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_attention_is_refused(name):
    with pytest.raises(ValueError, match=r"^\[attn.transformers\] expected"):
        layer(**REFUSED[name])


def test_a_window_of_one_query_that_no_mask_says_is_refused():
    q, k = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 4)
    with pytest.raises(ValueError, match="a mask that says sliding_window=4; found none"):
        attn.transformers.attention_forward(torch.nn.Module(), q, k, k, None, sliding_window=4)
    attn.transformers.attention_forward(torch.nn.Module(), q, k, k, None, sliding_window=5)


def test_what_changes_nothing_is_passed_over():
    passed = {"position_ids": torch.arange(5), "num_items_in_batch": 3, "use_cache": True, "sliding_window": 9,
              "cu_seq_lens_q": torch.tensor([0, 5]), "indices": None, "deterministic": False}  # fmt: skip
    assert torch.equal(layer(**passed), layer())


def test_what_a_models_own_eager_attention_reads_is_known():
    """A model of another file whose eager attention names an argument of its own."""
    import types

    other = types.ModuleType("modeling_other")
    exec("def eager_attention_forward(module, query, key, value, attention_mask, twist=None, **kwargs): ...\n"
         "class Layer: ...", other.__dict__)  # fmt: skip
    other.Layer.__module__ = other.__name__
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, other.__name__, other)
        layer(module=other.Layer(), twist=None, turn=1)
        with pytest.raises(ValueError, match="found twist"):
            layer(module=other.Layer(), twist=1)


def test_no_model_of_transformers_has_an_argument_that_is_neither_taken_nor_refused():
    import inspect
    import pathlib
    import re

    taken = set(inspect.signature(attn.transformers.attention_forward).parameters)
    known = taken | set(attn.transformers._REFUSED) | {"query_states", "key_states", "value_states"}
    read, files = set(), list(pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py"))
    for file in files:
        for signature in re.findall(r"^def eager_attention_forward\((.*?)\)(?: ->|:\n)", file.read_text(), re.DOTALL | re.MULTILINE):
            read |= set(re.findall(r"^\s*(\w+)(?::|,|=)", signature, re.MULTILINE))
    assert len(files) > 100 and {"query", "softcap", "position_bias"} <= read
    assert read <= known
