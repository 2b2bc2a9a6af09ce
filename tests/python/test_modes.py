"""attn.torch in PyTorch's modes, beside torch.nn.functional.scaled_dot_product_attention: the same, or an error of its kind."""

import copy

import pytest

torch = pytest.importorskip("torch")
import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402
from beside_pytorch import BIAS, LOW, MANY, K, Q, SEEN, V, answer, book, numbers, ours, same, theirs  # noqa: E402

pytestmark = [
    pytest.mark.no_sanitizer,  # no binding that test_torch.py does not use
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # PyTorch's own, without rules for its kernels
]

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


def test_several_gradients_at_once():
    """By is_grads_batched, as torch.autograd.functional.jacobian(vectorize=True) asks for them."""
    jacobian = torch.autograd.functional.jacobian
    q, k, v = Q[:1, :1], K[:1, :1], V[:1, :1]
    for f, want in zip(jacobian(ours, (q, k, v), vectorize=True), jacobian(theirs, (q, k, v))):
        torch.testing.assert_close(f, want)
    for f in (attn.rotary, lambda x: attn.torch.linear_attention(x, k, v)[0]):
        with pytest.raises(NotImplementedError, match="one gradient at a time; found is_grads_batched=True"):
            jacobian(f, q, vectorize=True)


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


@pytest.mark.parametrize("name", ["scale", "softcap", "dropout_p"])
def test_numbers_that_get_no_gradient_are_refused(name):
    x = torch.randn(1, 1, 4, 8)
    with pytest.raises(TypeError, match=f"{name} as a number; found Tensor with requires_grad"):
        torch.func.grad(lambda p: attn.torch.scaled_dot_product_attention(x, x, x, **{name: p}).sum())(torch.tensor(0.5))


def test_a_list_of_tensors_loses_no_gradient():
    slope = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(NotImplementedError, match="alibi_slopes without requires_grad"):
        ours(Q, K, V, alibi_slopes=[slope] * Q.shape[1])
    with torch.no_grad():
        ours(Q, K, V, alibi_slopes=[slope] * Q.shape[1])


def _cache():
    cache = attn.KVCache(batch=1, kv_heads=1, head_dim=4)
    cache.append(X, X)
    return cache


X = numbers(1, 1, 3, 4, seed=9)
TURN = numbers(3, 2, seed=10)
WITH_A_TANGENT = {
    "a scale": (lambda x: ours(X, X, X, scale=x), torch.tensor(0.5)),
    "a softcap": (lambda x: ours(X, X, X, softcap=x), torch.tensor(0.5)),
    "slopes in a list": (lambda x: ours(X, X, X, alibi_slopes=[x]), torch.tensor(0.5)),
    "a scale of linear attention": (lambda x: attn.linear_attention(X, X, X, scale=x), torch.tensor(0.5)),
    "cos": (lambda x: attn.rotary(X, cos=x, sin=TURN), TURN),
    "cos beside NumPy": (lambda x: attn.rotary(X.numpy(), cos=x, sin=TURN), TURN),
    "a key beside NumPy": (lambda x: attn.scaled_dot_product_attention(X.numpy(), x, X), X),
    "a merged output": (lambda x: attn.merge([x], [X[..., 0]]), X),
    "a merged lse": (lambda x: attn.merge([X], [x]), X[..., 0]),
    "a key of a cache": (lambda x: _cache().append(x, X), X),
    "a query of a cache": (lambda x: _cache().attention(x), X),
    "an input of a module": (lambda x: attn.SelfAttention_v1(4, 2)(x), X[0]),
    "a source of a module": (lambda x: attn.CrossAttention(4, 4)(X[0], x), X[0]),
    "a gradient of a module": (lambda x: attn.SimplifiedSelfAttention().backward(x), X[0]),
}


@pytest.mark.parametrize("name", WITH_A_TANGENT)
def test_tangents_are_not_lost(name):
    """What has no derivatives, or none by that argument, says so in forward mode as it does of requires_grad."""
    call, x = WITH_A_TANGENT[name]
    with forward_ad.dual_level():
        with pytest.raises((TypeError, ValueError, NotImplementedError), match="with(out)? a tangent of forward mode"):
            call(forward_ad.make_dual(x, torch.ones_like(x)))
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        if "gradient" not in name:  # of which there would have to be a forward pass
            call(dual.detach())
    with pytest.raises((TypeError, ValueError, NotImplementedError), match="with(out)? requires_grad|as a number"):
        call(x.clone().requires_grad_())
