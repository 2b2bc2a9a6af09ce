"""Many threads at once, and many calls: the same results, and no memory that stays."""

import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import attn

sdpa = attn.scaled_dot_product_attention
rng = np.random.default_rng(0)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_calls_of_many_threads_give_the_same_bits():
    inputs = [rng.standard_normal((3, 2, 4, 70, 32)).astype(np.float32) for _ in range(8)]
    alone = [sdpa(*x, is_causal=True) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for want, got in zip(alone, pool.map(lambda x: sdpa(*x, is_causal=True), inputs)):
                assert np.array_equal(want, got)


def test_one_module_in_many_threads():
    x = rng.standard_normal((2, 20, 16)).astype(np.float32)
    attn.manual_seed(0)
    module = attn.MultiHeadAttention(16, 16, 20, 0.5, 4).eval()
    want = module(x)

    def work(i):
        if i % 8 == 0:
            module.zero_grad()
            module.backward(module(x))
        if i % 8 == 1:
            module.load_state_dict({name: value.copy() for name, value in module.state_dict().items()})
        if i % 8 == 2:
            attn.default_generator.dropout_keep((64, 64), 0.5)
        return np.array_equal(module(x), want)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


def test_the_gil_is_released():
    """While one thread computes, another counts."""
    q = rng.standard_normal((1, 8, 2048, 64)).astype(np.float32)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (sdpa(q, q, q), done.set()))
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert turns > 3


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("what", ["attention", "options", "error", "module", "steps", "torch"])
def test_memory_does_not_grow(what):
    x = rng.standard_normal((1, 4, 64, 64)).astype(np.float32)
    flat = x.reshape(4, 64, 64)
    module = attn.MultiHeadAttention(64, 64, 64, 0.5, 4)
    tensor = pytest.importorskip("torch").from_numpy(x).requires_grad_() if what == "torch" else None

    def call():
        if what == "attention":
            sdpa(x, x, x)
        elif what == "options":
            sdpa(x, x, x, np.ones((64, 64), bool), 0.1, sinks=x[0, :, 0, 0].copy(), key_lengths=[60], return_lse=True, return_weights=[1])
        elif what == "error":
            with pytest.raises(ValueError):
                sdpa(x, x, x[..., :3, :])
        elif what == "module":
            module.backward(module(flat))
        elif what == "torch":
            sdpa(tensor, tensor, tensor, is_causal=True, dropout_p=0.1).sum().backward()
            tensor.grad = None
        else:
            module.steps(flat)

    for _ in range(100):
        call()
    gc.collect()
    before = resident()
    for _ in range(400):
        call()
    gc.collect()
    assert resident() - before < 4 << 20  # one (4, 64, 64) leaked a call would be 26 MB


def test_nothing_of_ours_lives_at_exit():
    """nanobind names on stderr what is still alive when the interpreter ends."""
    code = (
        "import numpy as np, attn\n"
        "x = np.ones((2, 5, 4), 'f4')\n"
        "m = attn.MultiHeadAttention(4, 4, 5, 0.1, 2); m.backward(m(x)); s = m.steps(x)\n"
        "y = attn.scaled_dot_product_attention(x, x, x)\n"
        "try: attn.scaled_dot_product_attention(x, x, 1)\n"
        "except TypeError: pass\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "nanobind" not in run.stderr and run.stderr == ""
