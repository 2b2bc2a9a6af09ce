"""What test_distributed.py runs in every rank: `over_ranks.py RANKS` forks ranks of a gloo group, and `mpirun -n RANKS
over_ranks.py mpi` has mpi4py's. Every rank draws the same problems, of which it gives its own rows."""

import contextlib
import os
import sys
import tempfile

import numpy as np
import oracle
import torch
import torch.distributed.tensor

import attn
import attn.distributed
import attn.torch
from attn.distributed import Layout

SCHEMES = ["auto", "ring", "gather", "ulysses"]


class Ranks:
    def __init__(self, group, rank, size):
        self.group, self.rank, self.size = group, rank, size

    def layouts(self, rng, tokens):
        cuts = np.sort(rng.integers(0, tokens + 1, self.size - 1))
        lengths = np.diff(np.concatenate([[0], cuts, [tokens]])).tolist()
        return [Layout.even(tokens, self.size), Layout.zigzag(tokens, self.size), Layout.contiguous(lengths)]

    @contextlib.contextmanager
    def raises(self, kind, *parts):
        try:
            yield
        except kind as error:
            assert all(part in str(error) for part in parts), f"{parts} in {error}"
        else:
            raise AssertionError(f"rank {self.rank}: no {kind.__name__}")


def drawn(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def random_options(rng, b, h, tq, tk):
    """Options by name, and those of them that the oracle knows by another."""
    options = {"is_causal": bool(rng.random() < 0.5)}
    if rng.random() < 0.4:
        options["window"] = int(rng.integers(-1, 12)), int(rng.integers(-1, 12))
    if rng.random() < 0.3:
        options["softcap"] = 3.0
    if rng.random() < 0.3:
        options["alibi_slopes"] = rng.random(h, dtype=np.float32)
    if rng.random() < 0.3:
        options["sinks"] = drawn(rng, h)
    if rng.random() < 0.3:
        options["scale"] = 0.5
    if rng.random() < 0.3:
        options["key_lengths"] = rng.integers(0, tk + 1, b)
    if rng.random() < 0.3:
        options["causal_alignment"] = "bottom_right"
    if rng.random() < 0.5:
        rows = 1 if rng.random() < 0.3 else tq
        options["mask"] = rng.random((b, 1, rows, tk)) < 0.8 if rng.random() < 0.5 else drawn(rng, 1, h, rows, tk)
    return options


def check_every_option(ranks):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        b, hkv, tq, d, dv = (int(rng.integers(1, top)) for top in (3, 4, 60, 20, 20))
        h, tk = hkv * int(rng.integers(1, 3)), tq if rng.random() < 0.5 else int(rng.integers(1, 60))
        q, k, v = drawn(rng, b, h, tq, d), drawn(rng, b, hkv, tk, d), drawn(rng, b, hkv, tk, dv)
        options = random_options(rng, b, h, tq, tk)
        of_queries, of_keys = ranks.layouts(rng, tq)[seed % 3], ranks.layouts(rng, tk)[seed % 3]
        want, lse, _ = oracle.attention(q, k, v, **options)
        mask = options.pop("mask", None)
        if mask is not None and mask.shape[2] > 1:
            mask = of_queries.take(mask, ranks.rank)
        own = of_queries.take(q, ranks.rank), of_keys.take(k, ranks.rank), of_keys.take(v, ranks.rank)
        found, sums = attn.distributed.attention(
            *own, mask, enable_gqa=True, group=ranks.group, layout=of_queries, key_layout=of_keys,
            scheme=SCHEMES[seed % 4], return_lse=True, **options,
        )  # fmt: skip
        np.testing.assert_allclose(found, of_queries.take(want, ranks.rank), atol=2e-5, rtol=2e-5, err_msg=f"{seed}")
        np.testing.assert_allclose(sums, of_queries.take(lse, ranks.rank, -1), atol=2e-5, rtol=2e-5, err_msg=f"{seed}")


def check_rows_without_a_layout_follow_each_other(ranks):
    rng = np.random.default_rng(1)
    lengths = [5 + r for r in range(ranks.size)]
    layout = Layout.contiguous(lengths)
    x = drawn(rng, 1, 2, sum(lengths), 8)
    own = layout.take(x, ranks.rank)
    found = attn.distributed.attention(own, own, own, is_causal=True, group=ranks.group)
    want, _, _ = oracle.attention(x, x, x, is_causal=True)
    np.testing.assert_allclose(found, layout.take(want, ranks.rank), atol=1e-5)


def check_the_bits_of_one_process(ranks):
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(1, 4, 70, 16, generator=generator).to(dtype) for _ in range(3))
        one = attn.scaled_dot_product_attention(q, k, v, is_causal=True)
        layout = Layout.zigzag(70, ranks.size)
        for scheme in ("gather", "ulysses"):
            own = [layout.take(x, ranks.rank) for x in (q, k, v)]
            found = attn.distributed.attention(
                *own, is_causal=True, group=ranks.group, layout=layout, scheme=scheme
            )
            assert found.dtype == dtype and torch.equal(found, layout.take(one, ranks.rank)), scheme


def gradients(inputs, output, g):
    output.backward(g)
    return [x.grad for x in inputs]


def check_gradients(ranks):
    """Against PyTorch's own and one process's."""
    for seed, scheme in enumerate(SCHEMES):
        generator = torch.Generator().manual_seed(seed)
        whole = [torch.randn(2, 4, 53, 16, generator=generator) for _ in range(4)]
        layout = Layout.zigzag(53, ranks.size)
        *own, g = (layout.take(x, ranks.rank) for x in whole)
        own = [x.requires_grad_() for x in own]
        out = attn.distributed.attention(*own, is_causal=True, group=ranks.group, layout=layout, scheme=scheme)
        found = gradients(own, out, g)
        for sdpa in (torch.nn.functional.scaled_dot_product_attention, attn.scaled_dot_product_attention):
            inputs = [x.clone().requires_grad_() for x in whole[:3]]
            want = sdpa(*inputs, is_causal=True)
            torch.testing.assert_close(out, layout.take(want, ranks.rank), atol=1e-5, rtol=1e-5)
            for a, b in zip(found, gradients(inputs, want, whole[3])):
                torch.testing.assert_close(a, layout.take(b, ranks.rank), atol=2e-5, rtol=1e-4)


def check_gradients_of_what_ranks_share(ranks):
    """Sums over all ranks; a mask with a row for each query has that rank's rows."""
    generator = torch.Generator().manual_seed(3)
    q, k, v, g = (torch.randn(1, 4, 41, 8, generator=generator) for _ in range(4))
    bias, row = torch.randn(4, 41, 41, generator=generator), torch.randn(1, 41, generator=generator)
    sinks, table = torch.randn(4, generator=generator), torch.randn(8, 4, generator=generator)
    layout = Layout.even(41, ranks.size)
    for mask in (bias, row):
        for scheme in SCHEMES:
            def run(call, inputs, mask, g, **more):
                inputs = [x.clone().requires_grad_() for x in (*inputs, mask, sinks, table)]
                out = call(*inputs[:4], sinks=inputs[4], relative_bias=inputs[5], is_causal=True, **more)
                return gradients(inputs, out, g)

            want = run(attn.scaled_dot_product_attention, (q, k, v), mask, g)
            own = [layout.take(x, ranks.rank) for x in (q, k, v)]
            own_mask = mask if mask is row else layout.take(mask, ranks.rank)
            found = run(
                attn.distributed.attention, own, own_mask, layout.take(g, ranks.rank), group=ranks.group,
                scheme=scheme,
            )  # fmt: skip
            want[:3] = [layout.take(x, ranks.rank) for x in want[:3]]
            want[3] = want[3] if mask is row else layout.take(want[3], ranks.rank)
            for a, b in zip(found, want):
                torch.testing.assert_close(a, b, atol=5e-5, rtol=1e-4)


def check_dropout_keeps_the_same_weights(ranks):
    q, k, v = (torch.randn(1, 4, 37, 8, generator=torch.Generator().manual_seed(n)) for n in range(3))
    layout = Layout.zigzag(37, ranks.size)
    own = [layout.take(x, ranks.rank) for x in (q, k, v)]
    torch.manual_seed(5)
    want = attn.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    for scheme in SCHEMES:
        torch.manual_seed(5)
        found = attn.distributed.attention(*own, dropout_p=0.3, group=ranks.group, layout=layout, scheme=scheme)
        torch.testing.assert_close(found, layout.take(want, ranks.rank), atol=1e-5, rtol=1e-5)


def check_packed_sequences(ranks):
    rng = np.random.default_rng(4)
    x, starts = drawn(rng, 1, 2, 50, 8), [0, 13, 13, 40, 50]
    want = attn.scaled_dot_product_attention(x, x, x, is_causal=True, cu_seqlens_q=starts)
    layout = Layout.even(50, ranks.size)
    own = layout.take(x, ranks.rank)
    found = attn.distributed.attention(own, own, own, is_causal=True, cu_seqlens_q=starts, group=ranks.group)
    np.testing.assert_allclose(found, layout.take(want, ranks.rank), atol=1e-5)


def check_decode(ranks):
    rng = np.random.default_rng(6)
    q, k, v = drawn(rng, 2, 6, 3, 8), drawn(rng, 2, 2, 45, 8), drawn(rng, 2, 2, 45, 5)
    options = {"is_causal": True, "causal_alignment": "bottom_right", "sinks": drawn(rng, 6)}
    want, lse, _ = oracle.attention(q, k, v, **options)
    layout = ranks.layouts(rng, 45)[2]
    own = layout.take(k, ranks.rank), layout.take(v, ranks.rank)
    found, sums = attn.distributed.decode(
        q, *own, enable_gqa=True, group=ranks.group, key_layout=layout, return_lse=True, **options
    )
    np.testing.assert_allclose(found, want, atol=1e-5)
    np.testing.assert_allclose(sums, lse, atol=1e-5)


def check_errors_reach_every_rank(ranks):
    """On the rank that makes the mistake as its own error; the others are told of it."""
    x = np.ones((1, 2, 5, 4), np.float32)
    wrong = ranks.size - 1
    mine, call = ranks.rank == wrong, attn.distributed.attention
    group = {"group": ranks.group}
    mistakes = [
        (TypeError, "window as (left, right)", (x, x, x), {"window": 3}),
        (TypeError, "query as an array", ("x", x, x), {}),
        (ValueError, "same number of heads", (x, x[:, :0], x[:, :0]), {}),
        (TypeError, "layout as an attn.distributed.Layout", (x, x, x), {"layout": [5]}),
        (ValueError, "auto, ring, gather or ulysses", (x, x, x), {"scheme": "best"}),
        (ValueError, "no_such", (x, x, x), {"causal_alignment": "no_such"}),
    ]
    for kind, part, arrays, options in mistakes:
        if mine:
            with ranks.raises(kind, part):
                call(*arrays, **options, **group)
        else:
            with ranks.raises(ValueError, part, f"rank {wrong}"):
                call(x, x, x, **group)
    if ranks.size > 1:
        with ranks.raises(ValueError, "the same call on every rank", "causal"):
            call(x, x, x, is_causal=mine, **group)
        torch.manual_seed(ranks.rank)
        with ranks.raises(ValueError, "dropout_key"):
            call(*[torch.ones(1, 2, 5, 4)] * 3, dropout_p=0.5, **group)
        with ranks.raises(ValueError, "gradients are followed", "gradients are not followed"):
            call(*[torch.ones(1, 2, 5, 4, requires_grad=mine)] * 3, **group)
    with ranks.raises(ValueError, "layout's", "rows of queries"):
        call(x, x, x, layout=Layout.even(9 * ranks.size, ranks.size), **group)
    with ranks.raises(ValueError, "what ring can do", "block_keep"):
        tokens = 5 * ranks.size
        call(x, x, x, scheme="ring", block_mask=np.ones((tokens, tokens), bool), block_size=1, **group)


def check_a_long_sequence(ranks):
    """Messages of megabytes, under way while others are computed."""
    generator = torch.Generator().manual_seed(9)
    q, k, v = (torch.randn(1, 4, 2048, 64, generator=generator) for _ in range(3))
    layout = Layout.zigzag(2048, ranks.size)
    own = [layout.take(x, ranks.rank) for x in (q, k, v)]
    found = attn.distributed.attention(*own, is_causal=True, group=ranks.group, layout=layout, scheme="ring")
    want = attn.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(found, layout.take(want, ranks.rank), atol=1e-5, rtol=1e-5)


def check_groups_of_some_ranks(ranks):
    """Every second rank, under numbers of its own."""
    x = torch.randn(1, 2, 12, 8, generator=torch.Generator().manual_seed(2))
    chosen = list(range(0, ranks.size, 2))
    if ranks.group is None:
        group = torch.distributed.new_group(chosen)
        outsider = group if ranks.rank not in chosen else None
        mesh = torch.distributed.init_device_mesh("cpu", (ranks.size,))
    else:
        group = ranks.group.Split(ranks.rank % 2, ranks.rank)
        outsider = mesh = None
    if outsider is not None:
        with ranks.raises((ValueError, TypeError), "group"):
            attn.distributed.attention(x, x, x, group=outsider)
    if ranks.rank in chosen:
        layout = Layout.even(12, len(chosen))
        own = layout.take(x, ranks.rank // 2)
        found = attn.distributed.attention(own, own, own, is_causal=True, group=group)
        want = attn.scaled_dot_product_attention(x, x, x, is_causal=True)
        torch.testing.assert_close(found, layout.take(want, ranks.rank // 2), atol=1e-5, rtol=1e-5)
    if mesh is not None:
        attn.distributed.attention(x, x, x, group=mesh)
        cut = torch.distributed.tensor.distribute_tensor(x, mesh, [torch.distributed.tensor.Shard(2)])
        for call in (attn.scaled_dot_product_attention, attn.distributed.attention, attn.torch.scaled_dot_product_attention,
                     attn.torch.linear_attention):  # fmt: skip
            with ranks.raises(NotImplementedError, "a DTensor", "to_local()"):
                call(cut, cut, cut)
        with ranks.raises(NotImplementedError, "a DTensor", "to_local()"):
            attn.torch.scaled_dot_product_attention(x, x, cut)
        with ranks.raises(NotImplementedError, "a DTensor", "to_local()"):
            attn.KVCache(kv_heads=2, head_dim=8).append(cut, cut)


def check_all(ranks):
    for name, check in list(globals().items()):
        if name.startswith("check_") and check is not check_all:
            check(ranks)
            if ranks.rank == 0:
                print("passed", name, flush=True)


def of_gloo(rank, size, meeting):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    check_all(Ranks(None, rank, size))
    torch.distributed.destroy_process_group()


def main(ranks):
    if ranks == "mpi":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        try:
            check_all(Ranks(comm, comm.Get_rank(), comm.Get_size()))
        except BaseException as error:  # the others would wait
            print(repr(error), file=sys.stderr, flush=True)
            comm.Abort(1)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        arguments = int(ranks), os.path.join(folder, "meeting")
        torch.multiprocessing.start_processes(of_gloo, arguments, nprocs=int(ranks), start_method="fork")


if __name__ == "__main__":
    main(sys.argv[1])
