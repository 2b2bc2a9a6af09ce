"""KVCache: the same numbers as without one, whatever is kept how; bad input; threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attn

rng = np.random.default_rng(0)
# The error of storing an element, as a share of the largest of its row.
ROUNDING = {"float32": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int8": 1 / 254}


def drawn(*shape, rng=rng):
    return rng.standard_normal(shape).astype(np.float32)


def largest_error(dtype, q, k, v):
    """The largest error of an output: by its values, by scores of at most √d · |q| · |k|, and by float32's sums."""
    scores = np.sqrt(q.shape[-1]) * np.abs(q).max() * np.abs(k).max()
    return (ROUNDING[dtype] + 16 * 2.0**-24) * np.abs(v).max() * (1 + scores)


@given(
    dtype=st.sampled_from(sorted(ROUNDING)),
    page_size=st.sampled_from([0, 1, 3, 16]),
    batch=st.integers(1, 3),
    heads=st.sampled_from([(1, 1), (4, 2), (6, 1)]),
    head_dim=st.integers(1, 40),
    value_dim=st.integers(1, 40),
    steps=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_steps_give_what_one_call_gives(dtype, page_size, batch, heads, head_dim, value_dim, steps, seed):
    hq, hkv = heads
    tokens = sum(steps)
    if tokens == 0:
        return
    rng = np.random.default_rng(seed)
    q, k = drawn(batch, hq, tokens, head_dim, rng=rng), drawn(batch, hkv, tokens, head_dim, rng=rng)
    v = drawn(batch, hkv, tokens, value_dim, rng=rng)
    whole = attn.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    cache = attn.KVCache(batch, hkv, head_dim, value_dim, dtype, page_size)
    done = 0
    for count in steps:
        new = np.s_[:, :, done : done + count]
        cache.append(k[new], v[new])
        out = cache.attention(q[new], is_causal=True)
        assert out.shape == (batch, hq, count, value_dim)
        np.testing.assert_allclose(out, whole[new], atol=largest_error(dtype, q, k, v), rtol=0)
        done += count
    assert cache.lengths.tolist() == [tokens] * batch
    np.testing.assert_allclose(cache.keys(0).astype(np.float32), k[0], atol=ROUNDING[dtype] * np.abs(k).max(), rtol=0)


def test_items_grow_and_shrink_alone():
    cache = attn.KVCache(2, 1, 8, page_size=4)
    k, v = drawn(1, 7, 8), drawn(1, 7, 8)
    cache.append(k, v, item=1)
    assert cache.lengths.tolist() == [0, 7]
    cache.truncate(5, item=1)
    q = drawn(2, 1, 1, 8)
    out, lse = cache.attention(q, return_lse=True)
    assert not out[0].any() and lse[0] == -np.inf  # no key: zeros
    want = attn.scaled_dot_product_attention(q[1:], k[None, :, :5], v[None, :, :5])
    np.testing.assert_allclose(out[1:], want, atol=1e-6)
    cache.clear()
    assert cache.lengths.tolist() == [0, 0]


def test_a_copy_goes_its_own_way():
    cache = attn.KVCache(1, 2, 4)
    cache.append(drawn(1, 2, 3, 4), drawn(1, 2, 3, 4))
    other = cache.copy()
    other.append(drawn(1, 2, 1, 4), drawn(1, 2, 1, 4))
    assert (cache.lengths.tolist(), other.lengths.tolist()) == ([3], [4])
    assert np.array_equal(cache.keys(0), other.keys(0)[:, :3])


def test_masks_and_options():
    k, v, q = drawn(1, 2, 20, 16), drawn(1, 2, 20, 16), drawn(1, 4, 3, 16)
    cache = attn.KVCache(1, 2, 16)
    cache.append(k, v)
    keep = rng.random((1, 4, 3, 20)) < 0.7
    for options in [{"attn_mask": keep}, {"window": (4, 0)}, {"softcap": 5.0, "sinks": drawn(4)},
                    {"alibi_slopes": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "scale": 0.3}]:  # fmt: skip
        got = cache.attention(q, is_causal=True, return_lse=True, return_weights=[0, 2], **options)
        want = attn.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True, causal_alignment="bottom_right", return_lse=True,
            return_weights=[0, 2], **options,
        )  # fmt: skip
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)


def test_a_smaller_dtype_takes_less_memory():
    sizes = []
    for dtype in ("float32", np.float16, "int8"):
        cache = attn.KVCache(1, 4, 64, dtype=dtype, capacity=256)
        cache.append(drawn(1, 4, 256, 64), drawn(1, 4, 256, 64))
        sizes.append(cache.nbytes)
    assert sizes[0] > 1.9 * sizes[1] > 3.3 * sizes[2]


@pytest.mark.parametrize("dtype", ["float64", "int32", np.uint8, "float"])
def test_other_dtypes_are_not_stored(dtype):
    with pytest.raises(TypeError, match="storage in float32, bfloat16, float16 or int8; found"):
        attn.KVCache(1, 2, 16, dtype=dtype)


def test_pytorch():
    torch = pytest.importorskip("torch")
    k, v, q = (torch.randn(1, 2, 9, 16, dtype=torch.bfloat16) for _ in range(3))
    cache = attn.KVCache(1, 2, 16, dtype=torch.bfloat16)
    cache.append(k, v)
    out = cache.attention(q[:, :, -1:])
    assert out.dtype == torch.bfloat16
    want = torch.nn.functional.scaled_dot_product_attention(q[:, :, -1:], k, v)
    torch.testing.assert_close(out, want, atol=2e-2, rtol=2e-2)
    with pytest.raises(ValueError, match="no_grad"):
        cache.append(k.float().requires_grad_(), v.float())


@pytest.mark.parametrize("arguments, error", [
    ({"dtype": "int4"}, TypeError),
    ({"dtype": np.int64}, TypeError),
    ({"dtype": None}, TypeError),
    ({"batch": 0}, ValueError),
    ({"kv_heads": -1}, ValueError),
    ({"head_dim": 0}, ValueError),
    ({"value_dim": 0}, ValueError),
    ({"page_size": -1}, ValueError),
    ({"capacity": -1}, ValueError),
    ({"head_dim": 2**62}, (ValueError, MemoryError)),
    ({"capacity": 2**62}, (ValueError, MemoryError)),
    ({"batch": 2**40, "head_dim": 2**20}, (ValueError, MemoryError)),
    ({"head_dim": "64"}, TypeError),
])  # fmt: skip
def test_bad_sizes(arguments, error):
    with pytest.raises(error):
        attn.KVCache(**arguments)


def test_bad_calls_leave_the_cache_as_it_was():
    cache = attn.KVCache(2, 2, 4)
    good = drawn(2, 2, 3, 4)
    cache.append(good, good)
    for k, v, error in [
        (drawn(2, 2, 3, 5), good, ValueError),
        (good, drawn(2, 2, 4, 4), ValueError),
        (good[0], good[0], ValueError),
        (good.astype(np.int64), good, TypeError),
        (None, good, TypeError),
        ("keys", good, TypeError),
    ]:
        with pytest.raises(error, match=r"\[.*\] expected .*; found"):
            cache.append(k, v)
    for item in (-1, 2, 2**62):
        with pytest.raises(ValueError):
            cache.append(good[0], good[0], item=item)
        with pytest.raises(ValueError):
            cache.keys(item)
        with pytest.raises(ValueError):
            cache.truncate(0, item=item)
    for length in (-1, 4):
        with pytest.raises(ValueError):
            cache.truncate(length)
    for q in (drawn(2, 3, 1, 4), drawn(2, 2, 1, 5), drawn(1, 2, 1, 4), drawn(2, 4), np.ones((2, 2, 1, 4))):
        with pytest.raises((ValueError, TypeError)):
            cache.attention(q)
    with pytest.raises(ValueError):
        cache.attention(good, causal_alignment="left")
    with pytest.raises(ValueError):
        cache.attention(good, return_weights=[3])
    assert cache.lengths.tolist() == [3, 3] and np.array_equal(cache.keys(1), good[1])


def test_threads_share_a_cache():
    """One appends while others read: every read sees whole tokens, and the keys they were appended with."""
    cache = attn.KVCache(1, 2, 8, page_size=2)
    q, stop = drawn(1, 2, 1, 8), threading.Event()

    def read(_):
        while not stop.is_set():
            n = int(cache.lengths[0])
            keys = cache.keys(0)
            assert keys.shape[1] >= n
            assert np.array_equal(keys, np.broadcast_to(np.arange(keys.shape[1])[None, :, None], keys.shape))
            assert np.isfinite(cache.attention(q)).all()
        return True

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, i) for i in range(3)]
        try:
            for token in range(400):
                row = np.full((1, 2, 1, 8), token, np.float32)
                cache.append(row, row)
        finally:
            stop.set()
        assert all(reader.result(60) for reader in readers)
