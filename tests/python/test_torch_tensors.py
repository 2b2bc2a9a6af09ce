"""What stands for a tensor, what is refused, and modules in attn.torch, beside PyTorch's own."""

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.func import grad, jvp, vmap  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from beside_pytorch import LOW, MANY, K, Q, SEEN, V, book, numbers, ours, same, theirs  # noqa: E402

pytestmark = pytest.mark.no_sanitizer  # no binding that test_torch.py does not use

# --- what stands for a tensor -----------------------------------------------------------------------------------------

class Named(torch.Tensor):
    """A subclass without ways of its own."""


class Wrapper(torch.Tensor):
    """A tensor that holds another and hands operators on to it."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrapped = torch.utils._pytree.tree_map_only(cls, lambda x: x.inner, (args, kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, cls, func(*unwrapped[0], **unwrapped[1]))


def test_subclasses():
    for f in (theirs, ours):
        assert type(f(Q.as_subclass(Named), K, V)) is Named
    torch.testing.assert_close(ours(Q.as_subclass(Named), K, V), theirs(Q, K, V).as_subclass(Named))
    assert type(ours(Wrapper(Q), Wrapper(K), Wrapper(V))) is Wrapper
    torch.testing.assert_close(ours(Wrapper(Q), Wrapper(K), Wrapper(V)).inner, theirs(Q, K, V))
    q = Wrapper(Q).requires_grad_()
    gradient, = torch.autograd.grad(ours(q, Wrapper(K), Wrapper(V)).sum(), q)
    torch.testing.assert_close(gradient.inner, grad(lambda q: theirs(q, K, V).sum())(Q))


def test_modes_see_the_call():
    seen = []

    class Functions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operators(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Functions():
        ours(Q, K, V)
    assert ours in seen
    q = Q.clone().requires_grad_()
    with Operators():
        ours(q, K, V).sum().backward()
    assert {torch.ops.attn.attention.default, torch.ops.attn.attention_backward.default} <= set(seen)
    torch.testing.assert_close(q.grad, grad(lambda q: theirs(q, K, V).sum())(Q))


def test_meta_and_fake_tensors_have_shapes():
    for options in ({}, {"is_causal": True}):
        for shapes in (((2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 3)), ((5, 8), (6, 8), (6, 8)), ((2, 2, 4, 5, 8), (4, 6, 8), (4, 6, 8))):
            tensors = [torch.empty(shape, device="meta", requires_grad=True) for shape in shapes]
            want, got = theirs(*tensors, **options), ours(*tensors, **options)
            assert (got.shape, got.dtype, got.device) == (want.shape, want.dtype, want.device)
            assert [g.shape for g in torch.autograd.grad(got.sum(), tensors)] == [t.shape for t in tensors]
            with torch.no_grad():
                assert ours(*tensors, **options).shape == want.shape
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(Q)
        output = ours(fake, fake, fake, mode.from_tensor(SEEN))
        assert isinstance(output, torch._subclasses.FakeTensor) and output.shape == Q.shape
        elsewhere = torch.empty(2, 2, 5, 4, device="cuda")
        with pytest.raises(NotImplementedError, match="cuda"):
            ours(elsewhere, elsewhere, elsewhere)


def test_graphs_have_one_operator():
    from torch.fx.experimental.proxy_tensor import make_fx

    def targets(f, *args):
        return [str(node.target) for node in make_fx(f)(*args).graph.nodes if "attention" in str(node.target)]

    assert targets(lambda q: ours(q, K, V), Q) == ["attn.attention.default"]
    assert targets(grad(lambda q: ours(q, K, V).sum()), Q) == ["attn.attention.default", "attn.attention_backward.default"]
    assert targets(vmap(lambda q: ours(q, q, q)), MANY) == ["attn.attention.default"] * 3

    class Model(torch.nn.Module):
        def forward(self, q, k):
            return ours(q, k, k, is_causal=True)

    tokens = torch.export.Dim("tokens", min=2, max=64)
    exported = torch.export.export(Model(), (Q, K), dynamic_shapes=({2: tokens}, {2: tokens}))
    longer = numbers(2, 2, 9, 4)
    torch.testing.assert_close(exported.module()(longer, longer), theirs(longer, longer, longer, is_causal=True))


def compiled(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, backend="aot_eager", fullgraph=True, **options)


def test_compile_with_dynamic_shapes_and_autocast():
    made = []

    def count(graph, inputs):
        made.append(graph)
        return graph

    torch._dynamo.reset()
    f = torch.compile(lambda q, k: ours(q, k, k, is_causal=True), backend=count, fullgraph=True, dynamic=True)
    for tokens in (5, 9, 17):
        x = numbers(2, 2, tokens, 4)
        torch.testing.assert_close(f(x, x), theirs(x, x, x, is_causal=True))
    assert len(made) == 1

    @compiled
    def low(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return ours(q, k, v)

    q = Q.clone().requires_grad_()
    output = low(q, K, V)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(output, ours(Q, K, V))
    output.sum().backward()
    assert q.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_compile_with_lengths_of_any_integers(dtype):
    lengths = torch.tensor([3, 5], dtype=dtype)
    found = compiled(lambda q, n: ours(q, K, V, key_lengths=n))(Q, lengths)
    torch.testing.assert_close(found, ours(Q, K, V, key_lengths=[3, 5]))


@pytest.mark.parametrize("lengths", [[3, 5], (3, 5)])
def test_compile_with_a_list_of_lengths(lengths):
    found = compiled(lambda q: ours(q, K, V, key_lengths=lengths, query_offset=[0, 1], is_causal=True))(Q)
    torch.testing.assert_close(found, ours(Q, K, V, key_lengths=lengths, query_offset=[0, 1], is_causal=True))


def test_compile_of_transforms():
    torch.testing.assert_close(compiled(vmap(lambda q: ours(q, q, q)))(MANY), theirs(MANY, MANY, MANY))
    with pytest.raises(Exception, match="forward mode AD|Observed exception"):
        compiled(lambda q: jvp(lambda q: ours(q, K, V), (q,), (q,))[1])(Q)


def test_functional_tensors_are_not_read_by_other_calls():
    """Calls without an operator read memory, which a wrapped tensor has not."""
    cache = attn.KVCache(batch=2, kv_heads=2, head_dim=4)
    lse = torch.zeros(2, 2, 5)
    for call in (lambda x: attn.merge([x], [lse])[0], lambda x: cache.append(x, x), lambda x: cache.attention(x)):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            vmap(call)(MANY)
        with torch._subclasses.FakeTensorMode() as mode, pytest.raises((RuntimeError, ValueError, TypeError)):
            call(mode.from_tensor(Q))
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            call(Q.to("meta"))


NAMES = ("query", "key", "value", "attn_mask", "sinks", "relative_bias")


@pytest.mark.parametrize("name", NAMES[1:])
def test_what_is_no_tensor_is_named(name):
    of_numpy = {"key": K, "value": V, "attn_mask": SEEN, "sinks": torch.zeros(4), "relative_bias": torch.zeros(4, 4)}[name].numpy()
    with pytest.raises(TypeError, match=f"expected {name} as torch.Tensor; found ndarray"):
        ours(**{"query": Q, "key": K, "value": V, name: of_numpy})


# --- what is refused, and what is not ---------------------------------------------------------------------------------

REFUSED = {
    "a nested tensor": lambda: (torch.nested.nested_tensor([Q[0], Q[0]]),) * 3,
    "a jagged tensor": lambda: (torch.nested.nested_tensor([Q[0, 0], Q[0, 0, :2]], layout=torch.jagged),) * 3,
    "a sparse tensor": lambda: (Q.to_sparse(), K, V),
    "sparse rows": lambda: (Q, K, V, torch.eye(5).to_sparse_csr()),
    "mkldnn's layout": lambda: (Q.to_mkldnn(), K, V),
    "quantised": lambda: (torch.quantize_per_tensor(Q, 0.1, 0, torch.qint8),) * 3,
    "float8": lambda: (Q.to(torch.float8_e4m3fn),) * 3,
    "complex": lambda: (Q.cfloat(),) * 3,
    "two devices": lambda: (Q.to("meta"), K, V),
    "a key elsewhere": lambda: (Q, K.to("meta"), V),
    "q float32, k bfloat16": lambda: (Q, K.bfloat16(), V),
    "a mask of bytes": lambda: (Q, K, V, SEEN.to(torch.uint8)),
    "shapes of meta tensors": lambda: (Q.to("meta"), K.to("meta")[..., :2], V.to("meta")),
    "a key of NumPy": lambda: (Q, K.numpy(), V),
    "dtypes of meta tensors": lambda: (Q.to("meta"), K.to("meta").double(), V.to("meta")),
    "dropout_p of nan": lambda: (Q, K, V, None, float("nan")),
    "is_causal as a number": lambda: (Q, K, V, None, 0.0, 1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grads", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, grads):
    arguments = REFUSED[name]()
    if grads:
        arguments = [*arguments[:2], V.clone().requires_grad_(), *arguments[3:]]
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        ours(*arguments)
    assert str(caught.value).startswith(("[scaled_dot_product_attention] expected", "Could not run", "attn::attention"))


def test_numbers_as_pytorch_takes_them():
    for call in (
        lambda f: f(Q, K, V, scale=torch.tensor(0.5)),
        lambda f: f(Q, K, V, scale=1),
        lambda f: f(Q, K, V, dropout_p=1.0),
        lambda f: f(Q, K[:, :, :0], V[:, :, :0]),
        lambda f: f(Q[:, :, :0], K, V),
        lambda f: f(Q.expand(2, 2, 5, 4), K[:, :1].expand(2, 2, 5, 4), V),
        lambda f: f(Q.transpose(2, 3), K.transpose(2, 3), V.transpose(2, 3)),
        lambda f: f(*[torch.complex(x, x).conj().imag for x in (Q, K, V)]),
        lambda f: f(Q.repeat(1, 2, 1, 1), K, V, enable_gqa=True),
        lambda f: f(Q, K, V, SEEN.to(torch.uint8).mul(2).view(torch.bool)),
        lambda f: f(Q, K, V, SEEN.to(torch.uint8).mul(200).view(torch.bool)[:1].expand(5, 5)),
    ):
        same(call)


# --- modules ----------------------------------------------------------------------------------------------------------

def test_modules_are_pytorchs():
    from torch.nn.utils import parametrize

    torch.manual_seed(0)
    module = attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2)
    x = numbers(2, 5, 8)
    want = book(module, theirs)(x)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    other = attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2)
    other.load_state_dict(module.state_dict())
    for each in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False), other):
        torch.testing.assert_close(each(x), want)
    doubled = {name: 2 * p for name, p in module.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(module, doubled, (x,)),
                               torch.func.functional_call(module, {}, (x,)) * 0 + _doubled(module)(x))  # fmt: skip

    class Twice(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    told = []
    module.register_forward_pre_hook(lambda m, args: told.append("before"))
    module.register_forward_hook(lambda m, args, output: told.append("after"))
    module.register_full_backward_hook(lambda m, d_in, d_out: told.append("back"))
    module(x.clone().requires_grad_()).sum().backward()
    assert told == ["before", "after", "back"]
    for layer in (module.W_query, module.W_key, module.W_value, module.out_proj):
        parametrize.register_parametrization(layer, "weight", Twice())
    torch.testing.assert_close(module(x), book(module, theirs)(x))
    for low in LOW:
        assert copy.deepcopy(other).to(low)(x.to(low)).dtype == low


def _doubled(module):
    twice = copy.deepcopy(module)
    with torch.no_grad():
        for p in twice.parameters():
            p.mul_(2)
    return twice


def test_per_sample_gradients_of_a_module():
    """vmap of grad of functional_call, as for differential privacy."""
    torch.manual_seed(0)
    module = attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2)
    xs = numbers(3, 5, 8)

    def loss(parameters, x):
        return torch.func.functional_call(module, parameters, (x,)).square().sum()

    parameters = {name: p.detach() for name, p in module.named_parameters()}
    found = vmap(grad(loss), in_dims=(None, 0))(parameters, xs)
    for i, x in enumerate(xs):
        module.zero_grad()
        book(module, theirs)(x).square().sum().backward()
        for name, p in module.named_parameters():
            torch.testing.assert_close(found[name][i], p.grad, rtol=1e-4, atol=1e-5)


# --- NumPy ------------------------------------------------------------------------------------------------------------

def test_every_byte_of_a_numpy_mask_but_zero_is_true():
    for bytes_ in (np.tril(np.full((5, 5), 2, np.uint8)), np.tril(np.full((5, 10), 255, np.uint8))[:, ::2],
                   np.triu(np.full((5, 5), 3, np.uint8))[::-1], np.broadcast_to(np.full((1, 5), 2, np.uint8), (5, 5))):  # fmt: skip
        mask = bytes_.view(bool)
        got = attn.scaled_dot_product_attention(Q.numpy(), K.numpy(), V.numpy(), mask)
        want = theirs(Q, K, V, torch.from_numpy(bytes_ != 0))
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


def test_a_mask_that_an_array_of_numpy_holds_is_not_lost():
    q = torch.ones(1, 1, 4, 4)
    for dtype in (np.int32, np.int64):
        with pytest.raises(TypeError, match="key_lengths without a mask of its own"):
            attn.scaled_dot_product_attention(q, q, q, key_lengths=np.ma.masked_array([3], [True], dtype))
    masked = np.ma.masked_array(np.ones((1, 1, 4), np.float32), True)
    with pytest.raises(TypeError, match="alibi_slopes without a mask of its own"):
        attn.scaled_dot_product_attention(q, q, q, alibi_slopes=masked[0, 0, :1])
    with pytest.raises(TypeError, match="without a mask of its own"):
        attn.torch.linear_attention(q, q, q, decay=masked)
