"""Pieces of a long sequence, told where they stand, and attn.merge, which puts their results together."""

import ml_dtypes
import numpy as np
import pytest
from oracle import attention

import attn

sdpa = attn.scaled_dot_product_attention
T = 90


def arrays(seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((2, h, T, d)).astype(dtype) for h, d in ((4, 16), (2, 16), (2, 24))]


OPTIONS = {
    "causal": {"is_causal": True},
    "window": {"window": (20, 5)},
    "alibi": {"is_causal": True, "alibi_slopes": np.array([0.5, 0.1, 0.02, 0.3], np.float32)},
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", OPTIONS)
def test_pieces_together_are_the_whole(name, dtype):
    q, k, v = arrays(dtype=dtype)
    options = OPTIONS[name]
    want, want_lse, _ = attention(q, k, v, **options)
    limit = 16 * float(ml_dtypes.finfo(dtype).eps)
    for first, last in (0, 33), (33, 90):
        parts = [
            sdpa(q[:, :, first:last], k[:, :, at:end], v[:, :, at:end], enable_gqa=True, query_offset=first,
                 key_offset=at, output_dtype=np.float32, return_lse=True, **options)
            for at, end in ((0, 7), (7, 50), (50, 90))
        ]  # fmt: skip
        assert all(output.dtype == np.float32 for output, _ in parts)
        output, lse = attn.merge(*zip(*parts), dtype=dtype)
        assert output.dtype == dtype
        np.testing.assert_allclose(output.astype(np.float64), want[:, :, first:last], rtol=limit, atol=limit)
        np.testing.assert_allclose(lse, want_lse[:, :, first:last], rtol=1e-6, atol=1e-5)


def test_each_batch_item_stands_where_it_is_told():
    q, k, v = arrays(1)
    starts = [3, 40]
    want, _, _ = attention(q[:, :, :50], k, v, is_causal=True, query_offset=np.array(starts))
    for offset in starts, tuple(starts), np.array(starts, np.int32):
        got = sdpa(q[:, :, :50], k, v, is_causal=True, enable_gqa=True, query_offset=offset)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_dropout_is_by_position():
    q, k, v = arrays(2)
    whole = sdpa(q, k, v, dropout_p=0.3, enable_gqa=True, generator=attn.Generator(5))
    piece = sdpa(q[:, :, 41:], k, v, dropout_p=0.3, enable_gqa=True, generator=attn.Generator(5), query_offset=41)
    np.testing.assert_array_equal(piece, whole[:, :, 41:])


def test_packed_sequences_are_counted_through_the_whole():
    q, k, v = (a[:1] for a in arrays(3))
    packed = {"is_causal": True, "enable_gqa": True, "window": (9, -1)}
    whole = sdpa(q, k, v, cu_seqlens_q=[0, 30, 70, T], **packed)
    # Tokens from 20 on: the first of their sequences began before them.
    parts = [
        sdpa(q[:, :, 20:], k[:, :, at:end], v[:, :, at:end], cu_seqlens_q=[0, 10, 50, 70], cu_seqlens_k=starts,
             query_offset=20, key_offset=at, return_lse=True, **packed)
        for at, end, starts in ((0, 40, [0, 30, 40, 40]), (40, T, [0, 0, 30, 50]))
    ]  # fmt: skip
    np.testing.assert_allclose(attn.merge(*zip(*parts))[0], whole[:, :, 20:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("offset, error, words", [
    (-1, ValueError, "query_offset from 0 to 2"),
    (2**30 + 1, ValueError, "query_offset from 0 to 2"),
    (2**63 - 1, ValueError, "query_offset from 0 to 2"),
    (2**80, TypeError, "integers"),
    (1.5, TypeError, "integers"),
    (True, TypeError, "integers"),
    ("far", TypeError, "integers"),
    ([1, 2, 3], ValueError, "query_offset of shape"),
    ([[1, 2]], ValueError, "query_offset of shape"),
])  # fmt: skip
def test_offsets_that_do_not_fit(offset, error, words):
    q, k, v = arrays()
    with pytest.raises(error, match=words):
        sdpa(q, k, v, enable_gqa=True, query_offset=offset)


def test_options_that_do_not_go_together():
    q, k, v = arrays()
    with pytest.raises(ValueError, match="aligned top_left with offsets"):
        sdpa(q, k, v, enable_gqa=True, is_causal=True, causal_alignment="bottom_right", key_offset=1)
    with pytest.raises(TypeError, match="float32 for 16-bit inputs"):
        sdpa(q, k, v, enable_gqa=True, output_dtype="float16")
    with pytest.raises(TypeError, match="output_dtype float32"):
        sdpa(q, k, v, enable_gqa=True, output_dtype="int8")


def test_what_cannot_be_merged():
    output, lse = np.ones((2, 3), np.float32), np.ones(2, np.float32)
    for outputs, lses in ([], []), ([output], []), ([output, output[:1]], [lse, lse]), ([output], [output]):
        with pytest.raises(ValueError, match=r"\[merge\]"):
            attn.merge(outputs, lses)
    for outputs, lses in ([output.astype(int)], [lse]), (["a"], [lse]), ([None], [lse]):
        with pytest.raises(TypeError, match=r"\[merge\]"):
            attn.merge(outputs, lses)
    with pytest.raises(TypeError, match="dtype float32"):
        attn.merge([output], [lse], dtype="int8")


def test_pytorch():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(a) for a in arrays(4))
    want = sdpa(q, k, v, is_causal=True, enable_gqa=True)
    piece = q[:, :, 50:].clone().requires_grad_()
    got = sdpa(piece, k, v, is_causal=True, enable_gqa=True, query_offset=torch.tensor([50, 50]))
    torch.testing.assert_close(got, want[:, :, 50:], rtol=0, atol=0)
    loss = torch.nn.functional.scaled_dot_product_attention(
        piece, k, v, torch.ones(T, T, dtype=torch.bool).tril()[50:], enable_gqa=True
    )
    torch.testing.assert_close(
        torch.autograd.grad(got.sum(), piece)[0], torch.autograd.grad(loss.sum(), piece)[0], rtol=1e-5, atol=1e-5
    )
    with pytest.raises(ValueError, match="no_grad"):
        attn.merge([got], [got[..., 0]])
    parts = [
        sdpa(q, k[:, :, at:end], v[:, :, at:end], is_causal=True, enable_gqa=True, query_offset=0, key_offset=at,
             return_lse=True) for at, end in ((0, 40), (40, T))
    ]  # fmt: skip
    output, lse = attn.merge(*zip(*parts))
    assert isinstance(output, torch.Tensor) and lse.shape == (2, 4, T)
    torch.testing.assert_close(output, want)


def test_pytorch_16_bit_inputs_and_their_gradients():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(a).bfloat16().requires_grad_() for a in arrays(5))
    output = sdpa(q, k, v, enable_gqa=True, output_dtype=torch.float32)
    assert output.dtype == torch.float32
    gradients = torch.autograd.grad(output.sum(), (q, k, v))
    assert all(gradient.dtype == torch.bfloat16 for gradient in gradients)
