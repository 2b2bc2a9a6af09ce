"""JAX arrays in and out."""

import numpy as np
import pytest

import attn

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_jax_arrays(dtype):
    q, k, v = (jax.random.normal(jax.random.key(i), (2, 3, 20, 8), dtype) for i in range(3))
    output, lse = attn.scaled_dot_product_attention(q, k, v, is_causal=True, return_lse=True)
    assert isinstance(output, jax.Array) and output.dtype == dtype and isinstance(lse, jax.Array)
    want = jax.nn.dot_product_attention(*(x.astype("float32").transpose(0, 2, 1, 3) for x in (q, k, v)), is_causal=True)
    limit = {"float32": 2e-6, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    assert np.abs(np.asarray(output, "f4") - np.asarray(want.transpose(0, 2, 1, 3))).max() < limit


def test_a_tracer_is_refused():
    with pytest.raises((TypeError, ValueError), match="expected"):
        jax.jit(lambda q: attn.scaled_dot_product_attention(q, q, q))(jax.numpy.ones((1, 1, 4, 4)))


def test_lengths_that_are_traced_are_refused_by_name():
    q = jax.numpy.ones((2, 1, 4, 4))
    with pytest.raises(TypeError, match="expected key_lengths as integers; found DynamicJaxprTracer"):
        jax.jit(lambda n: attn.scaled_dot_product_attention(q, q, q, key_lengths=n))(jax.numpy.array([3, 4]))


def test_a_module():
    attn.manual_seed(0)
    module = attn.SelfAttention_v2(3, 2)
    x = jax.random.normal(jax.random.key(0), (6, 3))
    z = module(x)
    assert isinstance(z, jax.Array) and isinstance(module.backward(z), jax.Array)
    np.testing.assert_allclose(np.asarray(z), module(np.asarray(x)), atol=1e-6)
