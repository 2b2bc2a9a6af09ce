"""What PyTorch's tools see of attention: exported programs, counters of operations, its own ranks, nested tensors."""

import pytest

torch = pytest.importorskip("torch")
from torch.func import jacfwd, jvp  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from beside_pytorch import K, Q, V, ours, theirs  # noqa: E402

pytestmark = pytest.mark.no_sanitizer  # no binding that test_torch.py does not use


def test_forward_mode_is_not_lost_in_an_exported_program():
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    module = attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2).eval()
    exported = torch.export.export(module, (x,)).module()
    torch.testing.assert_close(exported(x), module(x))
    for call in (lambda: jvp(exported, (x,), (x,)), lambda: jacfwd(exported)(x)):
        with pytest.raises(NotImplementedError, match="forward mode AD.*use torch.autograd.grad"):
            call()


def test_forward_mode_of_the_operator():
    absent = [None] * 11

    def operator(query):
        return torch.ops.attn.attention(query, K, V, *absent)[0]

    torch.testing.assert_close(operator(Q), theirs(Q, K, V))
    with pytest.raises(NotImplementedError, match="forward mode AD"):
        jvp(operator, (Q,), (Q,))


@pytest.mark.parametrize("call", ["linear_attention", "causal_convolution"])
def test_forward_mode_of_recurrences_says_what_to_do(call):
    x = torch.randn(1, 2, 6, 8)
    functions = {"linear_attention": lambda q: attn.linear_attention(q, x, x),
                 "causal_convolution": lambda q: attn.causal_convolution(q, torch.ones(8, 3))}  # fmt: skip
    given = {"linear_attention": x, "causal_convolution": torch.randn(1, 6, 8)}[call]
    functions[call](given)
    with pytest.raises(NotImplementedError, match=rf"\[{call}\].*forward mode AD.*use torch.autograd.grad"):
        jvp(functions[call], (given,), (given,))


def counted(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("causal", [False, True])
def test_operations_are_counted_as_pytorchs(causal):
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, 3, tokens, 16, generator=generator) for tokens in (9, 12, 12))

    def forward(f):
        return lambda: f(q, k, v, is_causal=causal)

    def both(f):
        return lambda: f(q.clone().requires_grad_(), k, v, is_causal=causal).sum().backward()

    for way in (forward, both):
        assert counted(way(ours)) == counted(way(theirs)) > 0


def test_operations_of_packed_sequences_and_of_shared_heads():
    q, kv = torch.randn(1, 4, 10, 8), torch.randn(1, 2, 10, 8)
    whole = counted(lambda: ours(q, kv, kv, enable_gqa=True))
    assert whole == 2 * 4 * 10 * 10 * (8 + 8)
    packed = counted(lambda: ours(q, kv, kv, enable_gqa=True, cu_seqlens_q=torch.tensor([0, 3, 10])))
    assert packed == 2 * 4 * (3 * 3 + 7 * 7) * (8 + 8)


def test_context_parallel_is_refused(tmp_path):
    experimental = pytest.importorskip("torch.distributed.tensor.experimental")
    if torch.distributed.is_initialized() or not hasattr(experimental, "context_parallel"):
        pytest.skip("a group of ranks is here already, or this PyTorch has none")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        q, k, v = (x.clone() for x in (Q, K, V))
        calls = (lambda: ours(q, k, v), lambda: attn.torch.CausalAttention(8, 8, 0, 0.0)(torch.ones(1, 4, 8)),
                 lambda: attn.linear_attention(q, k, v))  # fmt: skip
        with experimental.context_parallel(mesh, buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
            for call in calls:
                with pytest.raises(NotImplementedError, match="context_parallel.*use attn.distributed.attention"):
                    call()
        for call in calls:
            call()
    finally:
        torch.distributed.destroy_process_group()


def test_nested_tensors_are_refused_by_modules():
    nested = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)])
    for module in (attn.torch.SelfAttention_v1(8, 8), attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2)):
        with pytest.raises(NotImplementedError, match="no nested tensor; found one; use torch.nested.to_padded_tensor"):
            module(nested)
