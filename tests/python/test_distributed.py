"""attn.distributed over processes: a gloo group of torch.distributed, and mpi4py's communicators."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import attn.distributed
from attn.distributed import Layout

PROGRAM = pathlib.Path(__file__).parent / "over_ranks.py"
CHECKS = re.findall(r"def (check_\w+)\(", PROGRAM.read_text())
HAS_MPI = importlib.util.find_spec("mpi4py") is not None and shutil.which("mpirun") is not None


def run(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [f"passed {name}" in result.stdout for name in CHECKS if name != "check_all"].count(False) == 0


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_gloo(ranks):
    pytest.importorskip("torch")
    run(sys.executable, PROGRAM, str(ranks))


@pytest.mark.no_sanitizer
@pytest.mark.skipif(not HAS_MPI, reason="no mpi4py, or no mpirun")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_mpi(ranks):
    pytest.importorskip("torch")
    run("sh", PROGRAM.parents[1] / "mpi" / "run.sh", str(ranks), sys.executable, PROGRAM, "mpi")


@pytest.mark.parametrize("dim", [-2, 0])
def test_layouts_take_and_join(dim):
    rng = np.random.default_rng(1)
    for tokens, ranks in [(21, 2), (7, 3), (2, 4), (0, 2)]:
        for layout in (Layout.even(tokens, ranks), Layout.zigzag(tokens, ranks)):
            whole = rng.random((tokens, 3))
            parts = [layout.take(whole, rank, dim) for rank in range(ranks)]
            assert [len(part) for part in parts] == [layout.rows(rank) for rank in range(ranks)]
            assert all((part == whole[layout.positions(rank)]).all() for rank, part in enumerate(parts))
            assert (layout.join(parts, dim) == whole).all()
            assert layout.ranks == ranks and layout.tokens == tokens
    assert Layout.zigzag(21, 2).runs == (((0, 6), (16, 21)), ((6, 11), (11, 16)))
    assert Layout.contiguous([3, 0, 4]) == Layout([[(0, 3)], [], [(3, 7)]])
    assert eval(repr(Layout.zigzag(9, 2))) == Layout.zigzag(9, 2)


def test_layouts_that_are_none():
    with pytest.raises(ValueError, match="every position once"):
        Layout([[(0, 4)], [(5, 6)]])
    with pytest.raises(ValueError, match="at least one rank"):
        Layout.even(4, 0)
    for made in (Layout.even, Layout.zigzag):
        for tokens, ranks in ((-1, 2), (-(2**63), 2), (2**62, 2), (4, -1), (4, 2**31 - 1)):
            with pytest.raises(ValueError, match=r"\[layout\] expected .*; found"):
                made(tokens, ranks)
    for rank in (-1, 2):
        with pytest.raises(ValueError, match="a rank from 0 to 1; found"):
            Layout.even(4, 2).rows(rank)
    for wrong in (lambda: Layout.contiguous([2.5]), lambda: Layout([[(0, 2.5)]])):
        with pytest.raises(TypeError, match="as an integer; found float"):
            wrong()
    with pytest.raises(ValueError, match="every position once|tokens"):
        Layout.contiguous([3, -1])
    with pytest.raises(ValueError, match="expected 4 rows; found 5"):
        Layout.even(4, 2).take(np.ones((5, 1)), 0)
    with pytest.raises(ValueError, match=r"expected \[2, 2\] rows"):
        Layout.even(4, 2).join([np.ones((5, 1)), np.ones((2, 1))])


def test_what_is_no_group():
    x = np.ones((1, 1, 2, 4), np.float32)
    with pytest.raises(ValueError, match="init_process_group"):
        attn.distributed.attention(x, x, x)
    with pytest.raises(TypeError, match="found list"):
        attn.distributed.attention(x, x, x, group=[0, 1])


class Alone:
    """A group of one that is none of torch.distributed's or mpi4py's."""

    rank, size = 0, 1

    def send(self, to, message, tag):
        raise AssertionError("to whom?")

    receive = send


def test_an_object_that_is_a_group():
    x = np.random.default_rng(1).random((1, 2, 9, 4), dtype=np.float32)
    found = attn.distributed.attention(x, x, x, is_causal=True, group=Alone(), scheme="gather")
    assert (found == attn.scaled_dot_product_attention(x, x, x, is_causal=True)).all()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_gradient_is_of_the_lengths_that_were_given(kind):
    torch = pytest.importorskip("torch")
    import attn.torch

    torch.manual_seed(1)
    q, k, v = (torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3))
    lengths = np.array([5]) if kind == "numpy" else torch.tensor([5])
    found = attn.distributed.attention(q, k, v, key_lengths=lengths, group=Alone())
    lengths[0] = 9
    expected = attn.torch.scaled_dot_product_attention(q, k, v, key_lengths=[5])
    for one, other in zip(*(torch.autograd.grad(o.square().sum(), (q, k, v)) for o in (found, expected))):
        torch.testing.assert_close(one, other)


def test_estimates_are_worked_out_on_paper():
    """Four ranks, 2^16 tokens, 8 heads of 64: a rank sends its keys and values three times, and has a quarter of the
    triangle."""
    layout = Layout.zigzag(1 << 16, 4)
    sizes = {"query_heads": 8, "head_dim": 64, "is_causal": True}
    ring = attn.distributed.estimate(layout, scheme="ring", **sizes)
    assert ring.scheme == "ring" and ring.bytes == 3 * 2**14 * 8 * 128 * 4
    assert ring.flops == pytest.approx(0.25 * 4 * 64 * 8 * 0.5 * 2**32, rel=0.01)
    slow = attn.distributed.estimate(layout, bytes_per_second=1e6, latency=1e-5, flops_per_second=1e12, **sizes)
    assert slow.scheme == "ulysses" and "ring" in slow.reason
    with pytest.raises(ValueError, match="auto, ring, gather or ulysses"):
        attn.distributed.estimate(layout, scheme="best", **sizes)
