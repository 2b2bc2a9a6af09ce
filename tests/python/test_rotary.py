"""attn.rotary and attn.rotary_frequencies: against the definition in NumPy, transformers, autograd, and ONNX's own cases."""


import numpy as np
import pytest

import attn

RNG = np.random.default_rng(7)


def definition(x, angles, interleaved=False, factor=1.0):
    """Su et al. 2021, equation 15, in float64: numbers (a, b) of a pair are a + ib, times e^(i·angle)."""
    half = angles.shape[-1]
    y = np.array(x, dtype=np.float64)
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    z = (y[..., first] + 1j * y[..., second]) * np.exp(1j * angles) * factor
    y[..., first], y[..., second] = z.real, z.imag
    return y


def angles_of(positions, rotary_dim, theta=10000.0):
    rates = (1 / np.float32(theta) ** (np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim))).astype(np.float32)
    return np.asarray(positions, dtype=np.float32)[..., None] * rates


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_the_definition(interleaved, rotary_dim):
    x = RNG.standard_normal((2, 3, 5, 8)).astype(np.float32)
    angles = angles_of(range(41, 46), rotary_dim or 8, 500.0)
    y = attn.rotary(x, offset=41, theta=500.0, rotary_dim=rotary_dim, interleaved=interleaved)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, definition(x, angles, interleaved), atol=1e-4)  # angles of 45 err by 3e-6


def test_positions_of_each_batch_item():
    x = RNG.standard_normal((2, 3, 4, 6)).astype(np.float32)
    positions = [[0, 1, 2, 3], [9, 9, 0, 5]]
    y = attn.rotary(x, positions)
    np.testing.assert_allclose(y, definition(x, angles_of(positions, 6)[:, None]), atol=1e-5)
    np.testing.assert_array_equal(y[1:], attn.rotary(x[1:], np.array(positions[1:])))


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_other_dtypes(dtype):
    import ml_dtypes

    x = RNG.standard_normal((3, 5, 8)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    y = attn.rotary(x)
    assert y.dtype == x.dtype
    limit = 4 * float(ml_dtypes.finfo(x.dtype).eps) + 1e-6
    np.testing.assert_allclose(y.astype(np.float64), definition(x, angles_of(range(5), 8)), atol=limit)


def test_strides():
    x = RNG.standard_normal((5, 16, 3)).astype(np.float32).T[:, ::-2]  # (3, 8, 5) of any strides
    x = x.swapaxes(1, 2)
    np.testing.assert_array_equal(attn.rotary(x), attn.rotary(np.ascontiguousarray(x)))


def test_refusals():
    x = np.ones((3, 8), dtype=np.float32)
    with pytest.raises(ValueError, match=r"even integer of at least 2; found 7"):
        attn.rotary(x, rotary_dim=7)
    with pytest.raises(ValueError, match=r"at least rotary_dim = 10"):
        attn.rotary(x, rotary_dim=10)
    with pytest.raises(ValueError, match=r"positions of at least 0; found -1"):
        attn.rotary(x, [0, -1, 2])
    with pytest.raises(ValueError, match=r"positions from 0 to 2\^63"):
        attn.rotary(x, offset=2**63 - 2)
    with pytest.raises(TypeError, match=r"offset as an integer"):
        attn.rotary(x, offset=2**80)
    with pytest.raises(TypeError, match=r"\[rotary\] expected positions as integers; found dtype float64"):
        attn.rotary(x, [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match=r"x \(…, 2, d\)"):
        attn.rotary(x, [0, 1])
    with pytest.raises(ValueError, match="finite numbers"):
        attn.rotary(x, theta=float("nan"))
    frequencies, cos = attn.rotary_frequencies({"head_dim": 8}), np.ones((3, 4), np.float32)
    for given, options in (
        ("positions", {"positions": [0, 1, 2], "offset": 100}),
        ("frequencies", {"frequencies": frequencies, "theta": 5.0}),
        ("frequencies", {"frequencies": frequencies, "rotary_dim": 4}),
        ("cos and sin", {"cos": cos, "sin": cos, "frequencies": frequencies}),
        ("cos and sin", {"cos": cos, "sin": cos, "offset": 1}),
        ("cos and sin", {"cos": cos, "sin": cos, "rotary_dim": 4}),
    ):
        with pytest.raises(ValueError, match=f"expected {given} without {list(options)[-1]}, .*; found both"):
            attn.rotary(x, **options)
    with pytest.raises(ValueError, match=r"theta"):
        attn.rotary(x, theta=-1.0)
    with pytest.raises(ValueError, match="finite"):
        attn.rotary(x, frequencies=attn.RotaryFrequencies(np.full(4, np.nan, np.float32)))
    with pytest.raises(ValueError, match="cos and sin, or neither"):
        attn.rotary(x, cos=np.ones((3, 4), np.float32))
    with pytest.raises(ValueError, match="below the table's 3; found 3"):
        attn.rotary(x, [0, 1, 3], cos=np.ones((3, 4), np.float32), sin=np.ones((3, 4), np.float32))
    with pytest.raises(TypeError, match="x as an array"):
        attn.rotary(None)
    with pytest.raises(TypeError, match="int64"):
        attn.rotary(np.ones((3, 8), dtype=np.int64))
    with pytest.raises(ValueError, match="llama3 or longrope"):
        attn.rotary_frequencies({"head_dim": 8, "rope_scaling": {"rope_type": "proportional"}})


def test_modules():
    attn.manual_seed(5)
    frequencies = attn.rotary_frequencies({"head_dim": 4})
    module = attn.MultiHeadAttention(3, 8, 9, 0.0, 2, rope=frequencies)
    x = RNG.standard_normal((6, 3)).astype(np.float32)
    steps = module.steps(x)
    np.testing.assert_array_equal(attn.rotary(steps["keys"]), steps["rotated keys"])
    scores = steps["rotated queries"] @ steps["rotated keys"].swapaxes(1, 2)
    np.testing.assert_allclose(steps["scores"], scores, atol=1e-6)
    assert "rotated keys" in str(attn.report(module, x))
    with pytest.raises(ValueError, match="at most head_dim / 2 pairs"):
        attn.MultiHeadAttention(3, 8, 9, 0.0, 4, rope=frequencies)
    with pytest.raises(TypeError, match="rope as RotaryFrequencies; found str"):
        attn.MultiHeadAttention(3, 8, 9, 0.0, 2, rope="llama")
    with pytest.raises(ValueError, match="finite"):
        attn.CausalAttention(3, 8, 9, 0.0, rope=attn.RotaryFrequencies(np.array([np.nan])))(x)


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    x = RNG.standard_normal((2, 3, 8)).astype(np.float32)
    y = attn.rotary(jnp.asarray(x), offset=3)
    assert isinstance(y, type(jnp.ones(1)))
    np.testing.assert_array_equal(np.asarray(y), attn.rotary(x, offset=3))


# ---- PyTorch ---------------------------------------------------------------------------


def test_gradients_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    for options in ({}, {"rotary_dim": 4, "interleaved": True, "offset": 900}):
        assert torch.autograd.gradcheck(lambda t: attn.rotary(t, **options), x)
        assert torch.autograd.gradgradcheck(lambda t: attn.rotary(t, **options), x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch_as_llama_does(dtype):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from transformers.models.llama import modeling_llama

    stream = torch.Generator().manual_seed(4)
    config = transformers.LlamaConfig(hidden_size=64, num_attention_heads=4, rope_theta=1e6)
    q, k = (torch.randn(2, 7, h, 16, generator=stream).to(getattr(torch, dtype)).transpose(1, 2) for h in (4, 2))
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [100000, 7, 7, 9, 10, 999999, 3]])
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(q.float(), positions)
    frequencies = attn.rotary_frequencies(config)
    for x, want in zip((q, k), modeling_llama.apply_rotary_pos_emb(q.float(), k.float(), cos, sin)):
        found = attn.rotary(x, positions, frequencies=frequencies)
        assert found.dtype == x.dtype and found.stride() == x.stride()
        # Angles err by a rounding of theirs where the powers of theta differ in their last digit.
        torch.testing.assert_close(found.float(), want, rtol=0, atol=8 * torch.finfo(x.dtype).eps + 0.25)
        torch.testing.assert_close(found[:, :, :5].float()[0], want[:, :, :5][0], rtol=0, atol=8 * torch.finfo(x.dtype).eps)


def test_torch_compile_and_parameters():
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 5, 8, requires_grad=True)
    y = torch.compile(lambda t: attn.rotary(t * 2, offset=2) + 1, backend="eager")(x)
    y.sum().backward()
    want = attn.rotary(2 * np.ones((2, 5, 8), np.float32), offset=2)  # not the gradient: that turns back
    assert not np.allclose(x.grad.numpy(), want)
    by_hand = x.detach().clone().requires_grad_()
    (attn.rotary(by_hand * 2, offset=2) + 1).sum().backward()
    torch.testing.assert_close(x.grad, by_hand.grad)


# ---- ONNX, RotaryEmbedding of opset 23 -----------------------------------------------------


def test_onnx():
    pytest.importorskip("onnx")
    import onnx_cases
    from onnx import helper

    cases = onnx_cases.of("RotaryEmbedding")
    assert len(cases) >= 8

    for case in cases:
        (node,) = case.model.graph.node
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        for inputs, (want,) in case.data_sets:
            given = dict(zip([name for name in node.input if name], inputs))
            x = given["input"]
            four = x if x.ndim == 4 else x.reshape(*x.shape[:2], attributes["num_heads"], -1).swapaxes(1, 2)
            y = attn.rotary(four, given.get("position_ids"), cos=given["cos_cache"], sin=given["sin_cache"],
                            interleaved=bool(attributes.get("interleaved", 0)))  # fmt: skip
            y = y if x.ndim == 4 else y.swapaxes(1, 2).reshape(x.shape)
            np.testing.assert_allclose(y, want, rtol=4 * np.finfo(np.float32).eps, atol=4 * np.finfo(np.float32).eps,
                                       err_msg=case.name)  # fmt: skip
