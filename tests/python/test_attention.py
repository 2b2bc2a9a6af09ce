"""attn.scaled_dot_product_attention on NumPy arrays, beside float64."""

import resource

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import attention

import attn

sdpa = attn.scaled_dot_product_attention
# Largest difference from float64 for values of a standard normal, in units of the dtype's epsilon.
EPSILONS = 16
DTYPES = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def tolerance(dtype):
    return EPSILONS * float(ml_dtypes.finfo(dtype).eps)


def random(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@st.composite
def calls(draw):
    """Inputs in any dtype and layout, and any mix of options."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    b, hkv, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    tq, tk, d, dv = (draw(st.integers(1, n)) for n in (40, 70, 40, 40))

    def array(h, t, d):
        layout = draw(st.sampled_from(["bhtd", "bthd", "strided", "transposed"]))
        if layout == "bthd":
            return random(rng, b, t, h, d, dtype=dtype).transpose(0, 2, 1, 3)
        if layout == "strided":
            return random(rng, b, h, 2 * t, d + 3, dtype=dtype)[:, :, ::-2, 1 : d + 1]
        if layout == "transposed":
            return random(rng, b, h, d, t, dtype=dtype).swapaxes(2, 3)
        return random(rng, b, h, t, d, dtype=dtype)

    h = hkv * groups
    options = {"causal_alignment": draw(st.sampled_from(["top_left", "bottom_right"]))}
    if draw(st.booleans()):
        options["is_causal"] = True
    if draw(st.booleans()):
        options["window"] = (draw(st.integers(-1, 50)), draw(st.integers(-1, 50)))
    if draw(st.booleans()):
        options["softcap"] = draw(st.floats(0.5, 50))
    if draw(st.booleans()):
        options["scale"] = draw(st.floats(-1, 1).filter(lambda scale: scale == 0 or abs(scale) >= 2.0**-100))
    if draw(st.booleans()):
        options["alibi_slopes"] = random(rng, h)
    if draw(st.booleans()):
        options["sinks"] = random(rng, h)
    if draw(st.booleans()):
        options["key_lengths"] = rng.integers(0, tk + 1, b)
    if options["causal_alignment"] == "top_left" and draw(st.booleans()):
        options["query_offset"] = draw(st.integers(0, 99))
        options["key_offset"] = rng.integers(0, 99, b)
    mask = None
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(tq, tk), (b, 1, tq, tk), (1, h, 1, tk), (b, h, tq, tk)]))
        mask = rng.random(shape) < 0.7 if draw(st.booleans()) else random(rng, *shape)
    return array(h, tq, d), array(hkv, tk, d), array(hkv, tk, dv), mask, options


@given(calls())
def test_any_call_agrees_with_float64(call):
    q, k, v, mask, options = call
    output, lse, weights = sdpa(q, k, v, mask, enable_gqa=True, return_lse=True, return_weights=True, **options)
    want, want_lse, want_weights = attention(q, k, v, mask=mask, **options)
    epsilon = max(tolerance(q.dtype), tolerance(np.float32) if "alibi_slopes" in options else 0)  # a float32 bias
    limit = epsilon * max(1.0, float(np.abs(v.astype(np.float64)).max()))
    assert output.dtype == q.dtype and output.shape == want.shape
    assert np.abs(output.astype(np.float64) - want).max() <= limit
    # Alone, by the fused kernels: the weights above are asked for of the plain path.
    alone, alone_lse = sdpa(q, k, v, mask, enable_gqa=True, return_lse=True, **options)
    assert np.abs(alone.astype(np.float64) - want).max() <= limit
    some = np.isfinite(want_lse)
    assert np.array_equal(some, np.isfinite(alone_lse)) and np.array_equal(some, np.isfinite(lse))
    assert np.abs(alone_lse[some] - want_lse[some]).max(initial=0) <= 1e-5 * max(1, np.abs(want_lse[some]).max(initial=0))
    assert np.abs(weights - want_weights).max() <= epsilon


@pytest.mark.parametrize("shapes", [
    [(5, 4), (7, 4), (7, 3)],
    [(2, 5, 4), (2, 7, 4), (2, 7, 3)],
    [(2, 5, 4), (7, 4), (7, 3)],
    [(3, 8, 5, 4), (8, 7, 4), (1, 1, 7, 3)],
    [(8, 5, 4), (3, 1, 7, 4), (3, 1, 7, 3)],
    [(2, 3, 8, 5, 4), (3, 8, 7, 4), (2, 1, 8, 7, 3)],
    [(2, 1, 3, 8, 5, 4), (1, 4, 3, 8, 7, 4), (1, 1, 1, 1, 7, 3)],
])  # fmt: skip
def test_leading_dimensions_broadcast(shapes):
    rng = np.random.default_rng(0)
    q, k, v = (random(rng, *shape, dtype=np.float64) for shape in shapes)
    leading = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    mask = rng.random((*leading, 5, 7)) < 0.8
    output, lse, weights = sdpa(q, k, v, mask, return_lse=True, return_weights=[0, 3])
    flat = [np.broadcast_to(x, (*leading, *x.shape[-2:])).reshape(-1, 1, *x.shape[-2:]) for x in (q, k, v)]
    want, want_lse, want_weights = attention(*flat, mask=mask.reshape(-1, 1, 5, 7))
    np.testing.assert_allclose(output, want.reshape(*leading, 5, 3), atol=1e-14)
    np.testing.assert_allclose(lse, want_lse.reshape(*leading, 5), atol=1e-14)
    np.testing.assert_allclose(weights, want_weights.reshape(*leading, 5, 7)[..., [0, 3], :], atol=1e-14)


def test_five_dimensions_with_masks_of_every_rank():
    rng = np.random.default_rng(1)
    q = random(rng, 2, 3, 4, 5, 8)
    for shape in [(5, 5), (4, 5, 5), (1, 4, 5, 5), (3, 1, 5, 5), (2, 1, 4, 1, 5), (2, 3, 4, 5, 5), (1, 1, 1, 5, 5)]:
        mask = random(rng, *shape)
        want, _, _ = attention(*[q.reshape(6, 4, 5, 8)] * 3, mask=np.broadcast_to(mask, (2, 3, 4, 5, 5)).reshape(6, 4, 5, 5))
        np.testing.assert_allclose(sdpa(q, q, q, mask), want.reshape(q.shape), atol=2e-6)


def test_results_are_tuples_of_what_was_asked_for():
    x = random(np.random.default_rng(0), 1, 2, 5, 4)
    assert isinstance(sdpa(x, x, x), np.ndarray)
    assert [r.shape for r in sdpa(x, x, x, return_lse=True)] == [x.shape, (1, 2, 5)]
    assert [r.shape for r in sdpa(x, x, x, return_weights=[4, 0])] == [x.shape, (1, 2, 2, 5)]
    assert [r.shape for r in sdpa(x, x, x, return_lse=True, return_weights=True)] == [x.shape, (1, 2, 5), (1, 2, 5, 5)]


def test_packed_sequences_are_each_alone():
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((1, 2, n, 8), np.float32) for n in (9, 12))
    packed = sdpa(q, k, k, is_causal=True, causal_alignment="bottom_right", cu_seqlens_q=[0, 4, 9], cu_seqlens_k=[0, 7, 12])
    apart = [sdpa(q[:, :, i], k[:, :, j], k[:, :, j], is_causal=True, causal_alignment="bottom_right")
             for i, j in [(slice(0, 4), slice(0, 7)), (slice(4, 9), slice(7, 12))]]  # fmt: skip
    np.testing.assert_allclose(packed, np.concatenate(apart, axis=2), rtol=1e-5, atol=1e-6)


def test_block_masks_are_masks_of_blocks():
    rng = np.random.default_rng(6)
    q, k = (rng.standard_normal((2, 2, n, 8), np.float32) for n in (10, 13))
    blocks = rng.random((2, 1, 3, 3)) < 0.6
    keep = blocks.repeat(4, 2)[:, :, :10].repeat(5, 3)[..., :13]
    np.testing.assert_allclose(sdpa(q, k, k, block_mask=blocks, block_size=(4, 5)), sdpa(q, k, k, keep), rtol=1e-5, atol=1e-6)


def test_nothing_is_copied():
    """Keys that would take 4 GB, all in the same 32 bytes."""
    keys = np.lib.stride_tricks.as_strided(np.ones(8, np.float32), (1, 1, 1 << 27, 8), (0, 0, 0, 4))
    query = np.ones((1, 1, 1, 8), np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = sdpa(query, keys, keys, key_lengths=[5])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kilobytes
    np.testing.assert_array_equal(output, query)
    output *= 2  # it owns its memory


def test_dropout_keeps_the_mean_and_follows_the_seed():
    rng = np.random.default_rng(0)
    q, k, v = random(rng, 4, 8, 64, 16), random(rng, 4, 8, 64, 16), np.ones((4, 8, 64, 16), np.float32)
    attn.manual_seed(5)
    first, second = sdpa(q, k, v, dropout_p=0.25), sdpa(q, k, v, dropout_p=0.25)
    attn.manual_seed(5)
    again = sdpa(q, k, v, dropout_p=0.25)
    assert np.array_equal(first, again) and not np.array_equal(first, second)
    # A row's weights sum to 1, so its mean over draws does; 2048 rows, each of a standard deviation below 0.3.
    assert abs(first[..., 0].mean() - 1) < 5 * 0.3 / np.sqrt(2048)
    own = attn.Generator(5)
    assert np.array_equal(first, sdpa(q, k, v, dropout_p=0.25, generator=own))
    assert np.array_equal(sdpa(q, k, v, dropout_p=1.0), np.zeros_like(v))


def test_precision_by_name():
    rng = np.random.default_rng(0)
    q = random(rng, 1, 2, 64, 32)
    want = attention(q, q, q)[0]
    for precision, limit in [("highest", 4e-6), ("high", 1e-4), ("medium", 5e-2)]:
        assert np.abs(sdpa(q, q, q, precision=precision) - want).max() < limit


def test_lists_and_other_integers_for_lengths_and_rows():
    x = random(np.random.default_rng(0), 2, 2, 5, 4)
    want = sdpa(x, x, x, key_lengths=np.array([3, 4]), return_weights=np.array([1, 2]))
    got = sdpa(x, x, x, key_lengths=[3, 4], return_weights=np.array([1, 2], np.uint16))
    assert all(np.array_equal(a, b) for a, b in zip(want, got))
