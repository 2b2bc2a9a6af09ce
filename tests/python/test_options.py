"""Every option of the operator acts in every entry that takes it, as it does in the others, or is refused there by name.

What the numbers are is tested elsewhere; here an option that is new, and that one entry forgets, fails.
"""

import ctypes
import inspect
import re

import numpy as np
import pytest
from conftest import ROOT

import attn
import attn.distributed
from attn import _attn, _options, _typed_options

RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal((1, 2, t, 4), dtype=np.float32) for t in (7, 12, 12))
BLOCKS, TABLE = np.tri(2, 3, dtype=bool), RNG.standard_normal((8, 2), dtype=np.float32)


@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p)
def doubled(tile, user):
    scores, key_step, query_step, keys, queries = tile[:5]
    for at in (r * key_step + c * query_step for r in range(keys) for c in range(queries)):
        score = ctypes.c_float.from_address(scores + 4 * at)
        score.value *= 2


DOUBLED = attn.ScoreFunction(doubled)
CAUSAL, PACKED = {"is_causal": True, "causal_alignment": "top_left"}, {"cu_seqlens_q": [0, 3, 7], "cu_seqlens_k": [0, 5, 12]}

# An option among others, and a call without it whose result differs.
ACTS = {
    "alibi_slopes": ({"alibi_slopes": np.array([0.5, 0.25], np.float32)}, {}),
    "block_mask": ({"block_mask": BLOCKS, "block_size": 4}, {}),
    "block_size": ({"block_mask": BLOCKS, "block_size": (6, 4)}, {"block_mask": BLOCKS, "block_size": 4}),
    "causal_alignment": ({"is_causal": True, "causal_alignment": "bottom_right"}, CAUSAL),
    "cu_seqlens_k": (PACKED, {**PACKED, "cu_seqlens_k": [0, 8, 12]}),
    "cu_seqlens_q": (PACKED, {}),
    "dropout_p": ({"dropout_p": 1.0}, {}),
    "is_causal": (CAUSAL, {}),
    "key_lengths": ({"key_lengths": [5]}, {}),
    "key_offset": ({**CAUSAL, "query_offset": 5, "key_offset": 3}, {**CAUSAL, "query_offset": 5}),
    "query_offset": ({**CAUSAL, "query_offset": 3}, CAUSAL),
    "relative_bias": ({"relative_bias": TABLE}, {}),
    "relative_bidirectional": ({"relative_bias": TABLE, "relative_bidirectional": False}, {"relative_bias": TABLE}),
    "relative_max_distance": ({"relative_bias": TABLE, "relative_max_distance": 5}, {"relative_bias": TABLE}),
    "scale": ({"scale": 0.1}, {}),
    "score_function": ({"score_function": DOUBLED}, {}),
    "sinks": ({"sinks": np.ones(2, np.float32)}, {}),
    "softcap": ({"softcap": 1.0}, {}),
    "window": ({"window": (2, 0)}, {}),
}
# These need another machine or dtype to act; a value that there is not is refused by whoever hands it on.
REFUSED = {"output_dtype": ("int8", TypeError), "precision": ("low", ValueError)}


class Alone:
    rank, size, send, receive = 0, 1, None, None


def cached(q, k, v, **options):
    cache = attn.KVCache(1, 2, 4)
    cache.append(k, v)
    return cache.attention(q, **{"causal_alignment": "top_left", **options})


def over_ranks(*tensors, **options):
    return attn.distributed.attention(*tensors, group=Alone(), **options)


def of_torch(call, follows=False, watched=False):
    """The same by PyTorch's tensors: with gradients, and as an operator, for a mode that watches them."""
    def entry(*arrays, **options):
        torch = pytest.importorskip("torch")
        from torch.utils._python_dispatch import TorchDispatchMode

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        tensors = [torch.from_numpy(x).requires_grad_(follows) for x in arrays]
        given = {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
        if watched:
            with Watch():
                return call(*tensors, **given).numpy()
        return call(*tensors, **given).detach().numpy()

    return entry


ENTRIES = {
    "attn": (attn.scaled_dot_product_attention, set()),
    "attn.torch": (of_torch(attn.scaled_dot_product_attention), set()),
    "attn.torch with gradients": (of_torch(attn.scaled_dot_product_attention, follows=True), set()),
    "attn.torch as an operator": (of_torch(attn.scaled_dot_product_attention, watched=True), set()),
    "a cache": (cached, _options.NOT_OF_A_CACHE),
    "ranks": (over_ranks, _options.NOT_OF_RANKS),
    "ranks of PyTorch": (of_torch(over_ranks), _options.NOT_OF_RANKS),
    "ranks of PyTorch with gradients": (of_torch(over_ranks, follows=True), _options.NOT_OF_RANKS),
    "decode": (lambda *x, **options: attn.distributed.decode(*x, group=Alone(), **options),
               _options.NOT_OF_RANKS | {"block_mask", "block_size"}),
}


@pytest.mark.parametrize("name", sorted(ACTS))
@pytest.mark.parametrize("entry", ENTRIES)
def test_an_option_acts_or_is_refused(entry, name):
    call, lacks = ENTRIES[entry]
    options, others = ACTS[name]
    if lacks & options.keys():
        with pytest.raises((TypeError, ValueError), match=r"\] expected (options among|what decode can do)") as refusal:
            call(Q, K, V, **options)
        assert any(other in str(refusal.value).partition("; found ")[2] for other in (*options, "block_keep"))
        return
    want = attn.scaled_dot_product_attention(Q, K, V, **options)
    np.testing.assert_allclose(call(Q, K, V, **options), want, rtol=0, atol=1e-6)
    assert np.abs(call(Q, K, V, **others) - want).max() > 1e-3


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_value_that_there_is_not_is_refused(entry, name):
    value, error = REFUSED[name]
    with pytest.raises(TypeError if name in ENTRIES[entry][1] else error, match=value if error == ValueError else name):
        ENTRIES[entry][0](Q, K, V, **{name: value})


@pytest.mark.parametrize("entry", ENTRIES)
def test_another_name_is_refused(entry):
    for name in ("windw", "dropout_key"):
        with pytest.raises(TypeError, match=rf"expected options among .*softcap.*; found {name}$"):
            ENTRIES[entry][0](Q, K, V, **{name: 1})


def test_one_description():
    names = set(_options.OPTIONS)
    inputs = {"sinks", "relative_bias"}
    assert names | inputs == ACTS.keys() | REFUSED.keys()
    assert set(_attn.OPTIONS) == names | {"dropout_key"}
    by_keyword = names - {"dropout_p", "is_causal", "scale"} | inputs | {"generator"}
    ranks = {"group", "layout", "key_layout", "scheme"}
    assert set(_typed_options.Options.__annotations__) == by_keyword
    assert set(_typed_options.RankOptions.__annotations__) == by_keyword - _options.NOT_OF_RANKS | ranks
    assert set(_typed_options.CacheOptions.__annotations__) == by_keyword - _options.NOT_OF_A_CACHE - {"generator"}


def test_every_option_is_described():
    names, document = _options.OPTIONS.keys() | {"sinks", "relative_bias", "generator"}, ROOT / "docs" / "python.md"
    for name in names:
        assert f"\n        {name}: " in attn.scaled_dot_product_attention.__doc__, name
        assert f"`{name}`" in document.read_text() or name in ("dropout_p", "is_causal", "scale"), name
    for name in names - _options.NOT_OF_A_CACHE - {"generator"}:
        assert re.search(rf"\b{name}\b", attn.KVCache.attention.__doc__), name


def test_the_first_arguments_are_pytorchs():
    """Signatures: the eight of torch.nn.functional.scaled_dot_product_attention, and then by keyword alone."""
    first = "query key value attn_mask dropout_p is_causal scale enable_gqa".split()
    entries = [attn.scaled_dot_product_attention, attn.distributed.attention, attn.distributed.decode]
    defaults = [inspect.Parameter.empty] * 3 + [None, 0.0, False, None, False]
    for entry in entries:
        parameters = list(inspect.signature(entry).parameters.values())
        assert [each.name for each in parameters[:8]] == first and [each.default for each in parameters[:8]] == defaults
        assert all(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in parameters[8:])
    of_torch = pytest.importorskip("attn.torch").scaled_dot_product_attention
    assert [*inspect.signature(of_torch).parameters] == [*inspect.signature(entries[0]).parameters]
