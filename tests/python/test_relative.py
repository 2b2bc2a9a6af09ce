"""relative_bias: T5's biases by buckets of distances, beside PyTorch's and transformers'."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
t5 = pytest.importorskip("transformers.models.t5.modeling_t5")

import attn  # noqa: E402

sdpa = attn.scaled_dot_product_attention


def bias_of(table, tq, tk, bidirectional, max_distance, offset=0):
    """(1, h, tq, tk), as T5Attention.compute_bias."""
    distances = torch.arange(tk)[None, :] - (torch.arange(tq)[:, None] + offset)
    buckets = t5.T5Attention._relative_position_bucket(distances, bidirectional, table.shape[0], max_distance)
    return torch.nn.functional.embedding(buckets, table).permute(2, 0, 1).unsqueeze(0)


def inputs(b, h, hkv, tq, tk, d, buckets, dtype, seed=0):
    stream = torch.Generator().manual_seed(seed)
    shapes = (b, h, tq, d), (b, hkv, tk, d), (b, hkv, tk, d), (buckets, h)
    return [torch.randn(shape, generator=stream, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("sizes", [(2, 4, 4, 150, 170, 16), (1, 6, 2, 3, 300, 8), (2, 2, 1, 37, 20, 32), (1, 2, 2, 1, 1, 4)])
def test_forward_and_backward_are_pytorchs(dtype, bidirectional, sizes):
    *arrays, table = inputs(*sizes, 32, dtype)
    tq, tk, groups = sizes[3], sizes[4], sizes[1] // sizes[2]
    options = {"is_causal": not bidirectional}

    def theirs(q, k, v, table):
        bias = bias_of(table, tq, tk, bidirectional, 128)
        if not bidirectional:
            bias = bias.masked_fill(~torch.ones(tq, tk, dtype=torch.bool).tril(), -torch.inf)
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, bias)

    def ours(q, k, v, table):
        return sdpa(q, k, v, enable_gqa=True, relative_bias=table, relative_bidirectional=bidirectional, **options)

    def run(f, to):
        given = [x.to(to).requires_grad_() for x in (*arrays, table)]
        output = f(*given)
        d_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        return [output, *torch.autograd.grad(output, given, d_output.to(to))]

    for got, want in zip(run(ours, dtype), run(theirs, torch.float64)):
        assert got.dtype == dtype
        limit = 40 * torch.finfo(dtype).eps * max(1.0, want.abs().max().item())
        assert (got.double() - want).abs().max().item() <= limit


def test_numpy_and_offsets():
    q, k, v, table = (x.numpy() for x in inputs(1, 2, 2, 20, 90, 8, 16, torch.float32))
    bias = bias_of(torch.from_numpy(table), 20, 90, True, 64, offset=70).numpy()
    want = sdpa(q, k, v, bias)
    got = sdpa(q, k, v, relative_bias=table, relative_max_distance=64, query_offset=70)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    aligned = sdpa(q, k, v, relative_bias=table, relative_max_distance=64, causal_alignment="bottom_right")
    np.testing.assert_array_equal(got, aligned)


def test_a_cache():
    q, k, v, table = (x.numpy() for x in inputs(1, 4, 2, 2, 200, 8, 32, torch.float32))
    cache = attn.KVCache(1, 2, 8)
    cache.append(k, v)
    got = cache.attention(q, is_causal=True, relative_bias=table, relative_bidirectional=False)
    bias = bias_of(torch.from_numpy(table), 2, 200, False, 128, offset=198).numpy()
    want = sdpa(q, k, v, bias, is_causal=True, causal_alignment="bottom_right", enable_gqa=True)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
