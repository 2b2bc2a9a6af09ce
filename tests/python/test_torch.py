"""attn.torch: PyTorch's numbers, gradients, torch.compile, modules."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

sdpa = attn.torch.scaled_dot_product_attention
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def inputs(*shapes, dtype=torch.float32, grad=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, dtype=dtype, generator=generator).requires_grad_(grad) for s in shapes]


@st.composite
def calls(draw):
    dtype = draw(st.sampled_from(DTYPES))
    b, hkv, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    tq, tk, d, dv = (draw(st.integers(1, n)) for n in (40, 70, 33, 33))
    seed = draw(st.integers(0, 2**32))
    q, k, v = inputs((b, hkv * groups, tq, d), (b, hkv, tk, d), (b, hkv, tk, dv), dtype=dtype, grad=False, seed=seed)
    if draw(st.booleans()):
        k = k.transpose(1, 2).contiguous().transpose(1, 2)
    mask = None
    kind = draw(st.sampled_from(["none", "causal", "bool", "float"]))
    if kind == "bool":
        mask = torch.rand(b, 1, tq, tk) < 0.8
        mask[..., 0] = True
    if kind == "float":
        mask = torch.randn(hkv * groups, tq, tk).to(dtype)
    scale = draw(st.one_of(st.none(), st.floats(0.1, 1)))
    return (q, k, v, mask, 0.0, kind == "causal", scale), dtype


@given(calls())
@settings(max_examples=40)
def test_the_same_as_pytorch_forward_and_backward(call):
    arguments, dtype = call

    def run(f, to):
        tensors = [t.detach().to(to).requires_grad_() for t in arguments[:3]]
        mask = arguments[3]
        if mask is not None and mask.is_floating_point():
            mask = mask.to(to)
        output = f(*tensors, mask, *arguments[4:6], scale=arguments[6], enable_gqa=True)
        torch.manual_seed(0)
        gradients = torch.autograd.grad(output, tensors, torch.randn(output.shape).to(to))
        return [output, *gradients]

    wants = run(F.scaled_dot_product_attention, torch.float64)
    for got, want in zip(run(sdpa, dtype), wants):
        assert got.dtype == dtype
        limit = 40 * torch.finfo(dtype).eps * max(1.0, want.abs().max().item())
        assert (got.double() - want).abs().max().item() <= limit


GRADCHECKS = {
    "plain": {},
    "causal": {"is_causal": True, "causal_alignment": "bottom_right"},
    "softcap": {"softcap": 2.0, "window": (2, 1)},
    "lengths": {"key_lengths": [4, 0]},
    "dropout": {"dropout_p": 0.3},
    "blocks": {"block_mask": torch.tensor([[True, False], [True, True], [False, True]]), "block_size": (2, 4)},
}


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("name", GRADCHECKS)
def test_gradcheck(name):
    tensors = inputs((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 4), (4, 1, 6), (4,), (8, 4), dtype=torch.float64)

    def f(q, k, v, bias, sinks, table):
        torch.manual_seed(1)
        return sdpa(q, k, v, bias, enable_gqa=True, sinks=sinks, relative_bias=table, **GRADCHECKS[name])

    assert torch.autograd.gradcheck(f, tensors)


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("shapes", [[(5, 4)] * 3, [(2, 5, 4)] * 3, [(3, 8, 5, 4), (8, 7, 4), (1, 1, 7, 3)],
                                    [(2, 3, 4, 5, 4), (3, 4, 7, 4), (2, 1, 1, 7, 3)]])  # fmt: skip
def test_leading_dimensions_and_their_gradients(shapes):
    tensors = inputs(*shapes, dtype=torch.float64)
    assert torch.autograd.gradcheck(sdpa, tensors)
    leading = torch.broadcast_shapes(*(s[:-2] for s in shapes))
    want = F.scaled_dot_product_attention(*(t.expand(*leading, *t.shape[-2:]) for t in tensors))
    torch.testing.assert_close(sdpa(*tensors), want)
    with torch.no_grad():
        torch.testing.assert_close(sdpa(*tensors), want)


def test_packed_sequences_have_the_gradients_of_each_apart():
    q, = inputs((1, 2, 9, 4))
    together = sdpa(q, q, q, is_causal=True, cu_seqlens_q=[0, 4, 9])
    apart = torch.cat([sdpa(t, t, t, is_causal=True) for t in (q[:, :, :4], q[:, :, 4:])], dim=2)
    torch.testing.assert_close(together, apart)
    d = torch.randn_like(q)
    torch.testing.assert_close(torch.autograd.grad(together, q, d), torch.autograd.grad(apart, q, d))


def test_block_masks_of_more_dimensions():
    q, = inputs((2, 3, 2, 6, 4))
    blocks = torch.rand(2, 3, 1, 2, 2, generator=torch.Generator().manual_seed(3)) < 0.7
    want = sdpa(q, q, q, blocks.repeat_interleave(4, 3)[..., :6, :].repeat_interleave(4, 4)[..., :6])
    torch.testing.assert_close(sdpa(q, q, q, block_mask=blocks, block_size=4), want)
    with torch.no_grad():
        torch.testing.assert_close(sdpa(q, q, q, block_mask=blocks, block_size=4), want)


def test_numpy_and_torch_share_the_kernels():
    q, k, v = inputs((2, 3, 20, 8), (2, 3, 20, 8), (2, 3, 20, 8), grad=False)
    want = attn.scaled_dot_product_attention(q.numpy(), k.numpy(), v.numpy(), is_causal=True)
    got = attn.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert isinstance(got, torch.Tensor) and np.array_equal(got.numpy(), want)


def test_dropout_follows_torch_manual_seed():
    q, = inputs((2, 3, 20, 8), grad=False)
    torch.manual_seed(4)
    first, second = sdpa(q, q, q, dropout_p=0.5), sdpa(q, q, q, dropout_p=0.5)
    torch.manual_seed(4)
    assert torch.equal(first, sdpa(q, q, q, dropout_p=0.5)) and not torch.equal(first, second)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(4)
        assert torch.equal(first, sdpa(q, q, q, dropout_p=0.5, generator=generator))


def test_lse_and_weights():
    q, = inputs((1, 2, 6, 4))
    output, lse = sdpa(q, q, q, return_lse=True)
    assert output.requires_grad and not lse.requires_grad
    with pytest.raises(NotImplementedError, match="no_grad"):
        sdpa(q, q, q, return_weights=True)
    with torch.no_grad():
        _, weights = sdpa(q, q, q, return_weights=torch.tensor([0, 5]))
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 2))


def options(q, k, v, bias, sinks, table):
    return sdpa(q, k, v, bias, is_causal=True, softcap=3.0, sinks=sinks, enable_gqa=True, window=(3, -1), query_offset=2,
                relative_bias=table, relative_bidirectional=False, relative_max_distance=20)  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    return torch.compile(options, fullgraph=True)


def test_compile_without_a_graph_break(compiled):
    tensors = inputs((2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8), (4, 9, 9), (4,), (8, 4))
    want, got = options(*tensors), compiled(*tensors)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    d_output = torch.randn_like(want)
    for a, b in zip(torch.autograd.grad(got, tensors, d_output), torch.autograd.grad(want, tensors, d_output)):
        torch.testing.assert_close(a, b)


def test_compile_a_module_with_dropout():
    torch.manual_seed(0)
    module = attn.torch.MultiHeadAttention(8, 8, 16, 0.2, 2)
    fast = torch.compile(module, fullgraph=True)
    x = torch.randn(2, 7, 8)
    fast(x).sum().backward()
    assert module.W_query.weight.grad.abs().sum() > 0
    module.eval()
    torch.testing.assert_close(fast(x), module(x))


NUMBERS = {"block_size": (4, 3), "relative_bidirectional": False, "relative_max_distance": 20}


def test_opcheck():
    tensors = inputs((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 8), (5, 6), (4,), (8, 4))
    blocks = torch.tensor([[True, False], [True, True]])
    lengths = torch.tensor([6, 3])
    torch.library.opcheck(torch.ops.attn.attention.default, (*tensors, None, lengths, None, None, blocks, None, None, None), NUMBERS)


def test_empty_tensors():
    for shape in [(0, 3, 5, 4), (2, 0, 5, 4), (2, 3, 0, 4)]:
        q, = inputs(shape)
        sdpa(q, q, q).sum().backward()
        assert q.grad.shape == shape


@pytest.mark.parametrize("shapes", [[(0, 5, 4)] * 3, [(2, 0, 4), (2, 5, 4), (2, 5, 3)], [(2, 5, 4), (2, 0, 4), (2, 0, 3)],
                                    [(2, 0, 3, 5, 4)] * 3, [(0, 1, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)]])  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_empty_tensors_of_other_ranks_have_gradients(shapes, masked):
    """Zeros, as PyTorch gives them, and not none: a parameter behind them would count as unused."""
    tensors = inputs(*shapes)
    mask = torch.zeros(*[1] * len(shapes[0][:-2]), shapes[0][-2], shapes[1][-2]) if masked else None
    sdpa(*tensors, mask).sum().backward()
    assert all(t.grad.shape == t.shape and not t.grad.any() for t in tensors)


def test_capsules_where_torch_has_no_exchange_api(monkeypatch):
    """PyTorch before 2.10."""
    q = torch.randn(1, 2, 5, 4, requires_grad=True)
    call = lambda: torch.autograd.grad(sdpa(q, q, q, is_causal=True).sum(), q)[0]
    with_api = call()
    monkeypatch.setattr("attn.torch.operator.EXCHANGE", False)
    assert torch.equal(call(), with_api)
    with pytest.raises(ValueError, match="dense"):
        sdpa(q.detach().to_sparse(), q, q)


def book(num_heads):
    """The book's MultiHeadAttention (chapter 3), to compare with."""
    from torch import nn

    class MultiHeadAttention(nn.Module):
        def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
            super().__init__()
            self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
            self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
            self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
            self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
            self.out_proj = nn.Linear(d_out, d_out)
            self.dropout = nn.Dropout(dropout)
            self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (w(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
                       for w in (self.W_query, self.W_key, self.W_value))
            scores = (q @ k.transpose(2, 3)).masked_fill(self.mask.bool()[:t, :t], -torch.inf)
            weights = self.dropout(torch.softmax(scores / self.head_dim**0.5, dim=-1))
            return self.out_proj((weights @ v).transpose(1, 2).reshape(b, t, self.d_out))

    return MultiHeadAttention(8, 8, 16, 0.0, num_heads)


def test_a_module_in_place_of_the_books():
    torch.manual_seed(123)
    theirs = book(2)
    torch.manual_seed(123)
    ours = attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2)
    x = torch.randn(2, 7, 8)
    torch.testing.assert_close(ours(x), theirs(x))
    other = attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2)
    other.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(other(x), theirs(x))
    theirs.load_state_dict(ours.state_dict(), strict=False)
    # The module without PyTorch gives the same from its weights.
    plain = attn.MultiHeadAttention(8, 8, 16, 0.0, 2)
    plain.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(plain(x), theirs(x).detach())
    ours.load_state_dict({name: torch.as_tensor(value) for name, value in plain.state_dict().items()})


def test_a_mask_in_a_state_dict_is_the_causal_one():
    for make in (lambda: attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2), lambda: attn.torch.CausalAttention(8, 8, 16, 0.0)):
        ours = make()
        state = {**ours.state_dict(), "mask": torch.ones(16, 16).triu(1)}
        ours.load_state_dict(state)
        ours.load_state_dict({**state, "mask": state["mask"].bool()})
        for mask, what in ((torch.zeros(16, 16), "another mask"), (torch.ones(16, 16).triu(2), "another mask"),
                           (torch.ones(8, 8).triu(1), r"\(16, 16\).*found \(8, 8\)")):  # fmt: skip
            with pytest.raises(RuntimeError, match=what):
                ours.load_state_dict({**state, "mask": mask})
    any_length = attn.torch.CausalAttention(8, 8, 0, 0.0)
    any_length.load_state_dict({**any_length.state_dict(), "mask": torch.ones(8, 8).triu(1)})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"mask"'):
        without = attn.torch.SelfAttention_v2(8, 8)
        without.load_state_dict({**without.state_dict(), "mask": torch.ones(8, 8).triu(1)})


def test_dropout_is_a_module_that_can_be_found_and_changed():
    module = attn.torch.MultiHeadAttentionWrapper(8, 4, 16, 0.5, 2).train()
    x = torch.randn(2, 16, 8)
    assert not torch.equal(module(x), module(x))
    for dropout in (m for m in module.modules() if isinstance(m, torch.nn.Dropout)):
        dropout.p = 0.0
    assert torch.equal(module(x), module(x))
    module.heads[0].dropout = torch.nn.Dropout(1.0)
    assert not module(x)[..., :4].any()
    module.eval()
    want = module(x)
    module.heads[0].dropout = torch.nn.Identity()
    assert torch.equal(module.train()(x), want)
    module.heads[0].dropout = torch.nn.AlphaDropout(0.5)
    with pytest.raises(TypeError, match="nn.Dropout or nn.Identity; found AlphaDropout"):
        module(x)


def test_every_module_starts_with_the_same_numbers_as_without_torch():
    x = torch.rand(2, 6, 3)
    for name, arguments in [("SelfAttention_v1", (3, 4)), ("SelfAttention_v2", (3, 4, True)),
                            ("CausalAttention", (3, 4, 6, 0.0)), ("MultiHeadAttentionWrapper", (3, 2, 6, 0.0, 2)),
                            ("MultiHeadAttention", (3, 4, 6, 0.0, 2, True))]:  # fmt: skip
        torch.manual_seed(123)
        attn.manual_seed(123)
        theirs, ours = getattr(attn.torch, name)(*arguments), getattr(attn, name)(*arguments)
        torch.testing.assert_close(ours(x), theirs(x).detach())
        assert sorted(theirs.state_dict()) == sorted(ours.state_dict())


def test_a_module_without_autograd_says_so():
    with pytest.raises(ValueError, match="attn.torch"):
        attn.SelfAttention_v1(3, 2)(torch.ones(6, 3, requires_grad=True))


def test_grad_scaler_skips_a_step_whose_gradients_left_float16():
    q, k, v = inputs((1, 2, 100, 8), (1, 2, 1, 8), (1, 2, 1, 8), dtype=torch.float16)
    parameters = [torch.nn.Parameter(x.detach().float()) for x in (q, k, v)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for scale, skipped in ((2.0**15, True), (2.0**8, False)):
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        before = [p.detach().clone() for p in parameters]
        optimizer.zero_grad()
        loss = sdpa(*[p.half() for p in parameters]).float().sum()  # each value has a gradient of 100 times the scale
        scaler.scale(loss).backward()
        assert torch.isinf(parameters[2].grad).all() == skipped
        scaler.step(optimizer)
        scaler.update()
        assert all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True)) == skipped
        assert scaler.get_scale() == (scale / 2 if skipped else scale)


def test_nan_behind_a_mask_reaches_neither_outputs_nor_gradients():
    q, k, v = inputs((1, 2, 40, 8), (1, 2, 50, 8), (1, 2, 50, 8))
    mask = torch.rand(40, 50) < 0.5
    mask[3] = False
    mask[:, 7] = False
    clean = sdpa(q, k, v, mask)
    expected = torch.autograd.grad(clean.sum(), (q, k, v))
    with torch.no_grad():
        k[:, :, 7], v[:, :, 7] = float("nan"), float("inf")
    found = sdpa(q, k, v, mask)
    torch.testing.assert_close(found, clean)
    assert not found[:, :, 3].any()
    for grad, want in zip(torch.autograd.grad(found.sum(), (q, k, v)), expected, strict=True):
        torch.testing.assert_close(grad, want)


def test_modules_name_the_dtype_that_does_not_fit():
    module = attn.torch.MultiHeadAttention(6, 4, 8, 0.0, 2)
    with pytest.raises(RuntimeError, match=r"^\[MultiHeadAttention\] expected x of the weights' dtype, torch.float32; found torch.float64; convert"):
        module(torch.ones(2, 4, 6, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"^\[MultiHeadAttention\] expected x as torch.Tensor; found NoneType"):
        module(None)
    assert module.double()(torch.ones(2, 4, 6, dtype=torch.float64)).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert module.float()(torch.ones(2, 4, 6)).shape == (2, 4, 4)


def test_a_module_names_the_heads_that_do_not_fit():
    for heads in (0, -2, 3):
        with pytest.raises(ValueError, match=f"expected d_out divisible by num_heads; .* num_heads = {heads}"):
            attn.torch.MultiHeadAttention(8, 8, 16, 0.0, heads)
    with pytest.raises(TypeError, match="expected num_heads as an integer; found str"):
        attn.torch.MultiHeadAttention(8, 8, 16, 0.0, "2")


MAKE = {
    "MultiHeadAttention": lambda context=8, heads=2, bias=False: attn.torch.MultiHeadAttention(6, 8, context, 0.0, heads, bias),
    "MultiHeadAttentionWrapper": lambda context=8, heads=2, bias=False: attn.torch.MultiHeadAttentionWrapper(
        6, 8, context, 0.0, heads, bias
    ),
    "CausalAttention": lambda context=8, heads=2, bias=False: attn.torch.CausalAttention(6, 8, context, 0.0, bias),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_module_takes_what_it_can_mean(name):
    make = MAKE[name]
    for context, kind in ((-1, ValueError), ("x", TypeError), (5.5, TypeError), (None, TypeError), (True, TypeError)):
        with pytest.raises(kind, match=r"expected context_length .*; found"):
            make(context)
    with pytest.raises(TypeError, match="qkv_bias as True or False"):
        make(bias="no")
    if name != "CausalAttention":
        with pytest.raises(ValueError, match="num_heads"):
            make(heads=0)
    x = torch.randn(30, 6)
    assert make(0)(x).shape == (30, 16 if name.endswith("Wrapper") else 8)  # 0 is any, as without torch
    with pytest.raises(ValueError, match="context_length = 8"):
        make()(x)
    for bad in (torch.randn(6), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"expected x \(…, tokens, d_in\); found \("):
            make()(bad)


def test_steps_of_another_class_are_refused_by_name():
    class Mine(attn.torch.MultiHeadAttention):
        pass

    other = attn.torch.SelfAttention_v1(6, 4)
    torch.nn.utils.parametrize.register_parametrization(other, "W_query", torch.nn.Identity())
    for module, name in ((Mine(6, 8, 10, 0.0, 2), "Mine"), (other, "ParametrizedSelfAttention_v1")):
        with pytest.raises(TypeError, match=rf"\[steps\] expected .* own; found .*{name}$"):
            module.steps(torch.randn(5, 6))


def test_a_graph_that_lives_at_the_end_is_no_leak():
    code = (
        "import torch, attn.torch\n"
        "kept = attn.torch.MultiHeadAttention(6, 4, 8, 0.0, 2)(torch.ones(1, 4, 6))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
