"""os.fork(), and multiprocessing's fork, after calls that ran on several threads: the child computes, and rightly."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing, os, signal, sys
{imports}
import numpy as np
import attn

def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

def right(seed):
    q, k, v = np.random.default_rng(seed).standard_normal((3, 1, 4, 256, 64)).astype(np.float32)
    want = softmax(q.astype(float) @ k.astype(float).swapaxes(-1, -2) / 8) @ v
    module = attn.MultiHeadAttention(64, 64, 256, 0.0, 4)
    module.backward(module(q[0]))
    return np.abs(attn.scaled_dot_product_attention(q, k, v) - want).max() < 1e-5

{first}
assert right(0)  # starts the threads
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends it when it hangs
    os._exit(0 if right(1) and right(2) else 1)
assert os.waitpid(child, 0)[1] == 0
assert right(3)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(right, range(8)).get(timeout=60) == [True] * 8
"""


def run(imports="", first=""):
    subprocess.run([sys.executable, "-c", PROGRAM.format(imports=imports, first=first)], check=True, timeout=200,
                   env={**os.environ, "OMP_NUM_THREADS": "3"})


def test_a_forked_child_computes():
    run()


@pytest.mark.parametrize("order", ["torch first", "attn first"])
def test_a_forked_child_computes_beside_pytorch(order):
    pytest.importorskip("torch")
    # A product on all of PyTorch's threads, which are OpenMP's too.
    run("import torch" if order == "torch first" else "import attn, torch", "torch.randn(512, 512) @ torch.randn(512, 512)")
