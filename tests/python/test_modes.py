"""attn.torch in PyTorch's modes, beside torch.nn.functional.scaled_dot_product_attention: the same, or an error of its kind."""

import copy
import io
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as forward_ad  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

pytestmark = [
    pytest.mark.no_sanitizer,  # no binding that test_torch.py does not use
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # PyTorch's own, without rules for its kernels
]
ours = attn.torch.scaled_dot_product_attention
theirs = F.scaled_dot_product_attention
LOW = [torch.bfloat16, torch.float16]


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


Q, K, V = (numbers(2, 2, 5, 4, seed=seed) for seed in range(3))
MANY = numbers(3, 2, 2, 5, 4, seed=3)
SEEN = torch.ones(5, 5, dtype=torch.bool).tril()
BIAS = numbers(5, 5, seed=4)


def answer(call, f):
    """What f gives, or the kind of its error."""
    try:
        return call(f)
    except Exception as error:
        return "refused" if isinstance(error, (RuntimeError, TypeError, ValueError)) else error


def same(call, **tolerances):
    want, got = answer(call, theirs), answer(call, ours)
    assert not isinstance(want, str) and not isinstance(got, str), (want, got)
    torch.testing.assert_close(got, want, **tolerances)


# --- autocast ---------------------------------------------------------------------------------------------------------

DTYPES = [torch.float64, torch.float32, *LOW]
MASKS = {"none": None, "bool": SEEN, **{str(d): BIAS.to(d) for d in DTYPES}}


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("mask", MASKS)
def test_autocast_takes_what_pytorch_takes(low, mask):
    """Every mixture of dtypes: the same dtype and numbers, or both refuse. PyTorch knows no mask of another dtype."""
    for dtypes in [(a, b, b) for a in DTYPES for b in DTYPES]:
        def call(f):
            with torch.autocast("cpu", low):
                return f(*(x.to(d) for x, d in zip((Q, K, V), dtypes)), MASKS[mask])

        want, got = answer(call, theirs), answer(call, ours)
        if isinstance(want, str):
            assert isinstance(got, str) or (dtypes == (torch.float64,) * 3 or mask == "torch.float64")
        else:
            torch.testing.assert_close(got, want, atol=4 * torch.finfo(want.dtype).eps, rtol=0)


@pytest.mark.parametrize("low", LOW)
def test_autocast_and_its_gradients(low):
    def call(f):
        tensors = [x.clone().requires_grad_() for x in (Q, K, V, BIAS)]
        with torch.autocast("cpu", low):
            output = f(*tensors)
            inner = output.float().square().sum()
        assert output.dtype == low
        return torch.autograd.grad(inner, tensors)

    for want, got in zip(call(theirs), call(ours), strict=True):
        assert got.dtype == torch.float32
        assert (got - want).norm() <= 8 * torch.finfo(low).eps * want.norm()


def test_autocast_switched_off_inside():
    with torch.autocast("cpu", torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(ours(Q, K, V), ours(Q, K, V)) and ours(Q, K, V).dtype == torch.float32
        assert ours(Q, K, V).dtype == attn.scaled_dot_product_attention(Q, K, V).dtype == torch.bfloat16


def book(module, f):
    """What the book's module computes with f, of the same weights."""
    def forward(x):
        heads = getattr(module, "num_heads", 1)
        q, k, v = (w(x).unflatten(-1, (heads, -1)).transpose(-3, -2) for w in (module.W_query, module.W_key, module.W_value))
        joined = f(q, k, v, is_causal=True).transpose(-3, -2).flatten(-2)
        return module.out_proj(joined) if hasattr(module, "out_proj") else joined
    return forward


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("make", [lambda: attn.torch.MultiHeadAttention(8, 8, 16, 0.0, 2), lambda: attn.torch.CausalAttention(8, 8, 16, 0.0)])
def test_a_module_trains_under_autocast_with_a_grad_scaler(make, low):
    """Against the same layers around PyTorch's function: three steps of SGD, with a scale that would overflow none."""
    torch.manual_seed(0)
    module = make()
    x, results = numbers(3, 7, 8, seed=5), []
    for forward_of in (lambda m: m, lambda m: book(m, theirs)):
        trained = copy.deepcopy(module)
        optimizer = torch.optim.SGD(trained.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", low):
                output = forward_of(trained)(x)
                loss = output.float().square().mean()
            assert output.dtype == low
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(torch.cat([p.detach().flatten() for p in trained.parameters()]))
    start = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert (results[0] - start).norm() > 0.05
    assert (results[0] - results[1]).norm() <= 8 * torch.finfo(low).eps * (results[1] - start).norm()


# --- derivatives ------------------------------------------------------------------------------------------------------

TRANSFORMS = {
    "grad": lambda f: grad(lambda q: f(q, K, V).square().sum())(Q),
    "grad of three": lambda f: grad(lambda q, k, v: f(q, k, v, is_causal=True).square().sum(), (0, 1, 2))(Q, K, V),
    "grad of a bias": lambda f: grad(lambda bias: f(Q, K, V, bias).square().sum())(BIAS),
    "vjp": lambda f: vjp(lambda v: f(Q, K, v), V)[1](Q),
    "jacrev": lambda f: jacrev(lambda k: f(Q[:1], k, V[:1]))(K[:1]),
    "vmap": lambda f: vmap(f)(MANY, MANY, MANY),
    "vmap over one": lambda f: vmap(lambda k: f(Q, k, V))(MANY),
    "vmap along another": lambda f: vmap(f, in_dims=(2, 2, 2), out_dims=1)(MANY, MANY, MANY),
    "vmap twice": lambda f: vmap(vmap(lambda q: f(q, q, q)))(MANY),
    "vmap over masks": lambda f: vmap(lambda mask: f(Q, K, V, mask))(torch.stack([SEEN, SEEN.T, ~SEEN | SEEN])),
    "vmap of grad": lambda f: vmap(grad(lambda q, k: f(q, k, k).square().sum(), (0, 1)))(MANY, MANY),
    "grad of vmap": lambda f: grad(lambda q: vmap(lambda x: f(x, x, x))(q).square().sum())(MANY),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_torch_func(name):
    same(TRANSFORMS[name], rtol=1e-4, atol=1e-5)


def test_functionalize_takes_no_function_of_its_own():
    """PyTorch says so of each torch.autograd.Function."""
    with pytest.raises(RuntimeError, match="Functionalize"):
        torch.func.functionalize(lambda q: ours(q, K, V))(Q)


def test_vmap_over_options_of_ours():
    sinks, lengths = numbers(3, 2, seed=6), torch.tensor([[5, 2], [1, 4], [0, 3]])
    got = vmap(lambda s, n: ours(Q, K, V, sinks=s, key_lengths=n))(sinks, lengths)
    torch.testing.assert_close(got, torch.stack([ours(Q, K, V, sinks=s, key_lengths=n) for s, n in zip(sinks, lengths)]))


def test_vmap_and_dropout():
    def dropped(q):
        return ours(q, K, V, dropout_p=0.5)

    with pytest.raises(RuntimeError, match="randomness"):
        vmap(dropped)(Q.expand(3, *Q.shape))
    alike = vmap(dropped, randomness="same")(Q.expand(3, *Q.shape))
    apart = vmap(dropped, randomness="different")(Q.expand(3, *Q.shape))
    assert torch.equal(alike[0], alike[1]) and not torch.equal(apart[0], apart[1])


def dual(call):
    def run(f):
        with forward_ad.dual_level():
            return call(f, lambda x: forward_ad.make_dual(x, torch.ones_like(x)))
    return run


NOT_THERE = {
    **{f"a tangent of {name}": dual(lambda f, d, at=at: f(*(d(x) if i == at else x for i, x in enumerate((Q, K, V, BIAS)))))
       for at, name in enumerate(("query", "key", "value", "attn_mask"))},
    "a tangent of three dimensions": dual(lambda f, d: f(d(Q[0]), K[0], V[0])),
    "a tangent and requires_grad": dual(lambda f, d: f(d(Q.clone().requires_grad_()), K, V)),
    "jvp": lambda f: jvp(lambda q: f(q, K, V), (Q,), (Q,)),
    "jacfwd": lambda f: jacfwd(lambda q: f(q, K, V))(Q),
    "hessian": lambda f: hessian(lambda q: f(q, K, V).sum())(Q),
    "jvp of vmap": lambda f: jvp(lambda q: vmap(lambda x: f(x, x, x))(q), (MANY,), (MANY,)),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_THERE)
def test_forward_mode_is_not_lost(name):
    with pytest.raises(NotImplementedError):
        NOT_THERE[name](theirs)
    with pytest.raises(NotImplementedError, match="forward mode AD"):
        NOT_THERE[name](ours)


def test_forward_mode_of_what_only_we_have():
    ones = torch.ones(2)
    for options in ({"sinks": ones}, {"alibi_slopes": ones}, {"relative_bias": torch.ones(8, 2)}):
        with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward mode AD"):
            ours(Q, K, V, **{name: forward_ad.make_dual(x, x) for name, x in options.items()})
    with forward_ad.dual_level():  # nothing has a tangent
        torch.testing.assert_close(ours(Q, K, V), theirs(Q, K, V))


def test_derivatives_of_derivatives():
    def twice(f):
        q = Q.clone().requires_grad_()
        first, = torch.autograd.grad(f(q, K, V).square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.sum(), q)

    with pytest.raises(RuntimeError):
        twice(theirs)
    with pytest.raises(NotImplementedError, match="twice"):
        twice(ours)
    with pytest.raises(NotImplementedError, match="twice"):
        grad(lambda q: grad(lambda q: ours(q, K, V).square().sum())(q).sum())(Q)


def test_a_gradient_that_is_not_given_is_an_error():
    slopes = torch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="alibi_slopes"):
        ours(Q, K, V, alibi_slopes=slopes)
    with torch.no_grad():
        ours(Q, K, V, alibi_slopes=slopes)
    with pytest.raises(TypeError):
        ours(Q, K, V, scale=torch.tensor(0.5, requires_grad=True))


@pytest.mark.parametrize("what", ["mask", "lengths", "query"])
def test_what_is_changed_before_the_gradient_is_an_error(what):
    q, tensors = Q.clone(), {"mask": SEEN.clone(), "lengths": torch.tensor([5, 3])}
    tensors["query"] = q
    output = ours(q, K.clone().requires_grad_(), V, tensors["mask"], key_lengths=tensors["lengths"])
    tensors[what].zero_()
    with pytest.raises(RuntimeError, match="inplace operation"):
        output.sum().backward()


def test_inference_mode():
    q = Q.clone().requires_grad_()
    with torch.inference_mode():
        output, kept = ours(q, K, V), Q.clone()
    assert output.is_inference() and not output.requires_grad
    for f in (theirs, ours):
        with pytest.raises(RuntimeError, match="[Ii]nference tensor"):
            f(kept, q, V)


def test_deterministic_algorithms():
    def call(f):
        q = Q.clone().requires_grad_()
        f(q, K, V, BIAS).sum().backward()
        return q.grad

    torch.use_deterministic_algorithms(True)
    try:
        same(call)
        assert torch.equal(call(ours), call(ours))
    finally:
        torch.use_deterministic_algorithms(False)


def test_rotary_in_both_modes():
    x, dx = numbers(2, 3, 8, seed=7), numbers(2, 3, 8, seed=8)
    turned, tangent = jvp(attn.rotary, (x,), (dx,))
    torch.testing.assert_close((turned, tangent), (attn.rotary(x), attn.rotary(dx)))  # it is linear
    torch.testing.assert_close(vmap(attn.rotary)(x), torch.stack([attn.rotary(each) for each in x]))
    back = grad(lambda x: (attn.rotary(x) * dx).sum())(x)
    torch.testing.assert_close(attn.rotary(back), dx)
    assert torch.autograd.gradcheck(attn.rotary, x.double().requires_grad_(), check_forward_ad=True)


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


def test_compile_of_transforms():
    torch.testing.assert_close(compiled(vmap(lambda q: ours(q, q, q)))(MANY), theirs(MANY, MANY, MANY))
    with pytest.raises(Exception, match="forward mode AD|Observed exception"):
        compiled(lambda q: jvp(lambda q: ours(q, K, V), (q,), (q,))[1])(Q)


def test_functional_tensors_are_not_read_by_other_calls():
    """What has no operator reads memory, which a wrapped tensor has not."""
    cache = attn.KVCache(batch=2, kv_heads=2, head_dim=4)
    lse = torch.zeros(2, 2, 5)
    for call in (lambda x: attn.merge([x], [lse])[0], lambda x: cache.append(x, x), lambda x: cache.attention(x)):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            vmap(call)(MANY)
        with torch._subclasses.FakeTensorMode() as mode, pytest.raises((RuntimeError, ValueError, TypeError)):
            call(mode.from_tensor(Q))
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            call(Q.to("meta"))


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
