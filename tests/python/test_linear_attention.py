"""attn.linear_attention and what is around it: against loops in float64, autograd, PyTorch's modes and transformers."""

import numpy as np
import pytest

import attn

RNG = np.random.default_rng(11)


def definition(q, k, v, rule, decay, beta, state, scale):
    """One head, token by token in float64: (t, d)."""
    outputs, state = [], np.array(state, dtype=np.float64)
    for t in range(len(q)):
        state = state * np.exp(np.broadcast_to(decay[t], state.shape[:1]))[:, None]
        written = v[t] if rule == "plain" else beta[t] * (v[t] - state.T @ k[t])
        state = state + np.outer(k[t], written)
        outputs.append(scale * state.T @ q[t])
    return np.stack(outputs), state


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


def arrays(b=2, hq=4, hk=2, hv=2, t=7, d_k=5, d_v=3, by_channel=False):
    q, k = RNG.standard_normal((b, hq, t, d_k)), unit(RNG.standard_normal((b, hk, t, d_k)))
    v, decay = RNG.standard_normal((b, hv, t, d_v)), -RNG.random((b, hv, t, d_k) if by_channel else (b, hv, t))
    return {"query": q, "key": k, "value": v, "decay": decay, "beta": RNG.random((b, hv, t)),
            "initial_state": RNG.standard_normal((b, hv, d_k, d_v))}  # fmt: skip


@pytest.mark.parametrize("rule", ["plain", "delta"])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("heads", ["grouped", "tiled"])
def test_the_definition(rule, by_channel, heads):
    given = arrays(by_channel=by_channel)
    narrow = {name: x.astype(np.float32) for name, x in given.items()}
    if rule == "plain":
        narrow.pop("beta")
    output, state = attn.linear_attention(**narrow, rule=rule, heads=heads, scale=0.7, return_state=True)
    assert output.dtype == state.dtype == np.float32 and output.shape == (2, 4, 7, 3)
    for b in range(2):
        for h in range(4):
            of = h // 2 if heads == "grouped" else h % 2
            q, k, v, decay, beta, initial = (given[name][b, of if name != "query" else h] for name in given)
            want, last = definition(q, k, v, rule, decay, beta, initial, 0.7)
            np.testing.assert_allclose(output[b, h], want, atol=2e-6)
            np.testing.assert_allclose(state[b, of], last, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = arrays()
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    qkv = {name: given[name].astype(kind) for name in ("query", "key", "value")}
    output, state = attn.linear_attention(**qkv, rule="delta", return_state=True)
    assert output.dtype == kind and state.dtype == ("float64" if dtype == "float64" else "float32")
    wide = attn.linear_attention(**{name: x.astype(np.float64) for name, x in qkv.items()}, rule="delta")
    np.testing.assert_allclose(output.astype(np.float64), wide, rtol=0, atol=4 * float(ml_dtypes.finfo(kind).eps))


def test_lengths_and_packed_sequences():
    given = {name: x.astype(np.float32) for name, x in arrays().items()}
    whole, state = attn.linear_attention(**given, rule="delta", return_state=True)
    padded, cut = attn.linear_attention(**given, rule="delta", lengths=[7, 3], return_state=True)
    np.testing.assert_array_equal(padded[0], whole[0])
    assert (padded[1, :, 3:] == 0).all() and (cut[1] != state[1]).any()
    packed = {name: np.concatenate([x[0], x[1]], axis=1)[None] for name, x in given.items() if name != "initial_state"}
    got, states = attn.linear_attention(**packed, initial_state=given["initial_state"], rule="delta",
                                        cu_seqlens=[0, 7, 14], return_state=True)  # fmt: skip
    np.testing.assert_array_equal(got[0, :, 7:], whole[1])
    np.testing.assert_array_equal(states, state)


def test_refusals():
    given = {name: x.astype(np.float32) for name, x in arrays().items()}
    with pytest.raises(ValueError, match=r'rule "plain" or "delta"; found "gated"'):
        attn.linear_attention(**given, rule="gated")
    with pytest.raises(ValueError, match=r"beta with the delta rule"):
        attn.linear_attention(**given)
    with pytest.raises(ValueError, match=r'heads "grouped" or "tiled"'):
        attn.linear_attention(**given, rule="delta", heads="others")
    with pytest.raises(TypeError, match=r"\[linear_attention\] expected scale as a number; found str"):
        attn.linear_attention(**given, rule="delta", scale="1")
    with pytest.raises(TypeError, match=r"\[linear_attention\] expected lengths as integers"):
        attn.linear_attention(**given, rule="delta", lengths=[1.5, 2])
    with pytest.raises(TypeError, match=r"value as an array"):
        attn.linear_attention(given["query"], given["key"], None)
    with pytest.raises(ValueError, match=r"kernel of 1 to 8"):
        attn.causal_convolution(np.ones((1, 4, 3), np.float32), np.ones((3, 9), np.float32))


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    given = {name: x.astype(np.float32) for name, x in arrays().items()}
    want = attn.linear_attention(**given, rule="delta")
    got = attn.linear_attention(**{name: jnp.asarray(x) for name, x in given.items()}, rule="delta")
    assert isinstance(got, type(jnp.ones(1)))
    np.testing.assert_array_equal(np.asarray(got), want)


def test_a_convolution():
    x, weight = RNG.standard_normal((2, 9, 6)), RNG.standard_normal((6, 4))
    past = np.concatenate([np.zeros((2, 3, 6)), x], axis=1)
    want = sum(weight[:, j] * past[:, j : j + 9] for j in range(4))
    output, state = attn.causal_convolution(x, weight, return_state=True)
    np.testing.assert_allclose(output, want, atol=1e-14)
    np.testing.assert_array_equal(state, x[:, -3:].swapaxes(1, 2))
    np.testing.assert_allclose(attn.causal_convolution(x, weight, silu=True), want / (1 + np.exp(-want)), atol=1e-14)
    cut = attn.causal_convolution(x[:1], weight, cu_seqlens=[0, 4, 9])
    np.testing.assert_array_equal(cut[:, 4:], attn.causal_convolution(x[:1, 4:], weight))


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    import attn.torch  # noqa: F401

    return module


def tensors(torch, dtype, **sizes):
    return {name: torch.tensor(x, dtype=dtype, requires_grad=True) for name, x in arrays(**sizes).items()}


@pytest.mark.parametrize("by_channel", [False, True])
def test_gradcheck(torch, by_channel):
    given = tensors(torch, torch.float64, b=1, t=4, by_channel=by_channel)

    def call(*values):
        return attn.torch.linear_attention(**dict(zip(given, values)), rule="delta", return_state=True)

    assert torch.autograd.gradcheck(call, tuple(given.values()))
    x, weight, bias = (torch.tensor(RNG.standard_normal(s), requires_grad=True) for s in ((2, 5, 3), (3, 4), (3,)))
    assert torch.autograd.gradcheck(lambda *v: attn.torch.causal_convolution(*v, silu=True, return_state=True), (x, weight, bias))


def test_gradients_in_lower_dtypes(torch):
    for dtype, limit in ((torch.float32, 1e-5), (torch.bfloat16, 0.03)):
        wide = tensors(torch, torch.float64, t=70)
        narrow = {name: x.detach().to(dtype).requires_grad_() for name, x in wide.items()}
        wide = {name: x.detach().double().requires_grad_() for name, x in narrow.items()}
        grads = []
        for given in (wide, narrow):
            loss = attn.torch.linear_attention(**given, rule="delta").double().square().sum()
            grads.append(torch.autograd.grad(loss, tuple(given.values())))
        for want, got in zip(*grads):
            assert got.dtype == dtype
            assert (got.double() - want).abs().max() <= limit * want.abs().max()


def test_only_the_state_has_a_gradient(torch):
    given = tensors(torch, torch.float32)
    _, state = attn.torch.linear_attention(**given, rule="delta", return_state=True)
    state.sum().backward()
    assert given["query"].grad.abs().max() == 0 < given["key"].grad.abs().max()


def test_modes(torch):
    given = tensors(torch, torch.float32)
    q, k, v = (given.pop(name).detach() for name in ("query", "key", "value"))

    def f(q, k=k, v=v):
        return attn.torch.linear_attention(q, k, v, rule="delta", **{name: x.detach() for name, x in given.items()})

    with torch.autocast("cpu", torch.bfloat16):
        assert f(q).dtype == torch.bfloat16
    many = torch.stack([q, 2 * q])
    torch.testing.assert_close(torch.func.vmap(f)(many), torch.stack([f(q), f(2 * q)]))
    for_each = torch.func.vmap(torch.func.grad(lambda q: f(q).square().sum()))(many)
    leaf = q.clone().requires_grad_()
    once = torch.autograd.grad(f(leaf).square().sum(), leaf)[0]
    torch.testing.assert_close(for_each[0], once)
    compiled = torch.compile(f, backend="eager")
    torch.testing.assert_close(compiled(q), f(q))
    first, = torch.autograd.grad(f(leaf).square().sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="twice"):
        torch.autograd.grad(first.sum(), leaf)
    with pytest.raises(NotImplementedError, match="forward mode AD"):
        torch.func.jvp(f, (q,), (q,))
    with pytest.raises(NotImplementedError, match="fake or meta"):
        f(q.to("meta"), k.to("meta"), v.to("meta"))
    with pytest.raises(TypeError, match=r"expected key as torch.Tensor; found ndarray"):
        attn.torch.linear_attention(q, k.numpy(), v)


def test_a_numpy_array_that_changed_is_of_the_first_pass(torch):
    """Its numbers are copied, since no counter of autograd would tell that they are others at the gradient."""
    import attn.torch

    q = torch.randn(1, 1, 5, 2, requires_grad=True)
    k, softmax = torch.randn(1, 1, 5, 2), attn.torch.scaled_dot_product_attention
    for call, array, other in [
        (lambda n: attn.torch.linear_attention(q, k, k, lengths=n), np.array([3]), 1),
        (lambda n: attn.torch.linear_attention(q, k, k, cu_seqlens=n), np.array([0, 2, 5]), [0, 1, 5]),
        (lambda n: attn.torch.linear_attention(q, k, k, decay=n), -np.ones((1, 1, 5), np.float32), 0),
        (lambda n: softmax(q, k, k, key_lengths=n), np.array([3]), 1),
    ]:
        output = call(array)
        first, = torch.autograd.grad(output.sum(), q, retain_graph=True)
        array[:] = other
        again, = torch.autograd.grad(output.sum(), q)
        assert torch.equal(first, again) and not torch.equal(first, torch.autograd.grad(call(array).sum(), q)[0])


def test_what_would_lose_a_gradient_is_refused(torch):
    followed = torch.randn(1, 1, 3, 4, requires_grad=True)
    q, gate = np.ones((1, 1, 3, 4), np.float32), torch.zeros(1, 1, 3, requires_grad=True)
    for call in [
        lambda: attn.linear_attention(q, followed, q),
        lambda: attn.linear_attention(q, q, q, decay=gate),
        lambda: attn.causal_convolution(q[0], torch.randn(4, 3, requires_grad=True)),
    ]:
        with pytest.raises(ValueError, match="an array that autograd does not follow"):
            call()
    module = attn.GatedDeltaNet(4, 4, 2)
    module(q[0])
    with pytest.raises(ValueError, match="gradients of gradients"):
        module.backward(followed[0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_what_the_delta_rule_of_transformers_is_not_given(torch):
    from attn.torch import causal_convolution, gated_delta_rule, linear_attention

    x, heads = torch.randn(1, 3, 2, 4), torch.randn(1, 2, 3, 4)
    followed, large = torch.tensor(-1.0, requires_grad=True), np.zeros((1, 2, 4, 4), ">f4")
    for call, error, words in [
        (lambda: gated_delta_rule(x.long(), x, x, use_qk_l2norm_in_kernel=True), TypeError, "one floating dtype"),
        (lambda: gated_delta_rule(x, x, x.double(), use_qk_l2norm_in_kernel=True), TypeError, "one floating dtype"),
        (lambda: gated_delta_rule(x.numpy(), x, x), TypeError, "torch.Tensor; found ndarray"),
        (lambda: gated_delta_rule(None, x, x), TypeError, "found None"),
        (lambda: gated_delta_rule(x, x, x, [[[followed] * 2] * 3]), TypeError, "rule. expected g as torch.Tensor.*found list"),
        (lambda: linear_attention(heads, heads, heads, decay="x"), TypeError, "decay as torch.Tensor.*found str"),
        (lambda: linear_attention(heads, heads, heads, initial_state=large), TypeError, "initial_state as.*dtype >f4"),
        (lambda: gated_delta_rule(x[0], x[0], x[0]), ValueError, r"query \(b, t, hq, d_k\).*found \(3, 2, 4\)"),
        (lambda: gated_delta_rule(x, x, x, torch.zeros(1, 3)), ValueError, r"g \(b, t, hv\) or .*found \(1, 3\)"),
        (lambda: gated_delta_rule(x, x, x, beta=x), ValueError, r"beta \(b, t, hv\); found"),
        (lambda: gated_delta_rule(x, x, x, output_final_state="no"), TypeError, "True or False; found str"),
        (lambda: linear_attention(heads, heads, heads, return_state=1), TypeError, "True or False; found int"),
        (lambda: attn.linear_attention(*[heads.numpy()] * 3, return_state="no"), TypeError, "True or False; found str"),
        (lambda: causal_convolution(heads[0], torch.randn(4, 3), return_state="no"), TypeError, "True or False"),
        (lambda: linear_attention(heads.to_sparse(), heads, heads), NotImplementedError, "to_dense"),
        (lambda: linear_attention(torch.nested.nested_tensor([heads[0]]), heads, heads), NotImplementedError, "nested"),
    ]:
        with pytest.raises(error, match=words):
            call()
    gate = np.linspace(-1, 0, 6, dtype=np.float32).reshape(1, 3, 2)  # of another framework, as decay is taken
    torch.testing.assert_close(gated_delta_rule(x, x, x, gate)[0], gated_delta_rule(x, x, x, torch.from_numpy(gate))[0])
    backwards = torch.from_numpy(gate[:, ::-1].copy())
    torch.testing.assert_close(gated_delta_rule(x, x, x, gate[:, ::-1])[0], gated_delta_rule(x, x, x, backwards)[0])


def test_a_tensor_that_changed_is_an_error(torch):
    given = tensors(torch, torch.float32)
    output = attn.torch.linear_attention(**given, rule="delta")
    with torch.no_grad():
        given["beta"].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_an_output_may_be_changed_in_place(torch):
    """As that of PyTorch's matrix product, of which the gradient asks for the factors alone."""
    given = tensors(torch, torch.float32)
    x, weight = torch.randn(2, 5, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    for call, inputs in [
        (lambda: attn.torch.linear_attention(**given, rule="delta"), tuple(given.values())),
        (lambda: attn.torch.causal_convolution(x, weight, silu=True), (x, weight)),
    ]:
        wanted = torch.autograd.grad((2 * call()).square().sum(), inputs)
        found = torch.autograd.grad(call().mul_(2).square().sum(), inputs)
        for want, got in zip(wanted, found):
            assert torch.equal(got, want)


FUNCTIONS = {"qwen3_next": ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"),
             "kimi_linear": ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention")}  # fmt: skip


@pytest.mark.parametrize("family", FUNCTIONS)
@pytest.mark.parametrize("tokens", [1, 5, 64, 130])
def test_the_functions_of_transformers(torch, family, tokens):
    pytest.importorskip("transformers")
    import importlib

    model = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    kimi = family == "kimi_linear"
    given = tensors(torch, torch.float32, hq=4 if kimi else 2, hk=4 if kimi else 2, hv=4, t=tokens, by_channel=kimi)
    state = given.pop("initial_state")
    *qkvgb, = (x.detach().transpose(1, 2).contiguous().requires_grad_() for x in given.values())
    weights = torch.randn(qkvgb[2].shape, generator=torch.Generator().manual_seed(0))
    results = []
    for f in (*(getattr(model, name) for name in FUNCTIONS[family]), attn.torch.gated_delta_rule):
        output, last = f(*qkvgb, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
        loss = (output * weights).sum() + last.square().sum()
        results.append((output, last, *torch.autograd.grad(loss, (*qkvgb, state))))
    for theirs in results[:2]:
        for i, (want, got) in enumerate(zip(theirs, results[2])):
            limit = 2e-6 if i < 2 else 1e-5
            assert (got - want).abs().max() <= limit * max(1, want.abs().max()), i


@pytest.mark.parametrize("family", FUNCTIONS)
@pytest.mark.parametrize("strength", [5, 20])
def test_strong_decays_have_the_gradients_of_transformers(torch, family, strength):
    """Of their own size, which is exp(decay) of others: token by token, as nothing cancels there."""
    pytest.importorskip("transformers")
    import importlib

    model = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    kimi = family == "kimi_linear"
    given = tensors(torch, torch.float32, hq=4 if kimi else 2, hk=4 if kimi else 2, hv=4, t=70, by_channel=kimi)
    state = given.pop("initial_state")
    given["decay"] = (given["decay"].detach() * 0.2 - 0.8) * strength
    qkvgb = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in given.values()]
    weights = torch.randn(qkvgb[2].shape, generator=torch.Generator().manual_seed(0))
    found = []
    for f in (getattr(model, FUNCTIONS[family][1]), attn.torch.gated_delta_rule):
        output, _ = f(*qkvgb, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)
        found.append(torch.autograd.grad((output * weights).sum(), qkvgb[3])[0])
    assert (found[1] - found[0]).abs().max() <= 1e-5 * found[0].abs().max()


def test_packed_sequences_are_alone_in_the_delta_rule(torch):
    given = tensors(torch, torch.float32, t=14)
    state = given.pop("initial_state")
    qkvgb = [x.detach()[:1].transpose(1, 2) for x in given.values()]
    states = state.detach()[:1].repeat(2, 1, 1, 1) * torch.tensor([1.0, 2.0])[:, None, None, None]
    packed = attn.torch.gated_delta_rule(*qkvgb, initial_state=states, output_final_state=True, cu_seqlens=[0, 5, 14])
    alone = [attn.torch.gated_delta_rule(*(x[:, begin:end] for x in qkvgb), initial_state=states[n : n + 1], output_final_state=True)
             for n, (begin, end) in enumerate([(0, 5), (5, 14)])]  # fmt: skip
    torch.testing.assert_close(packed[0], torch.cat([output for output, _ in alone], 1))
    torch.testing.assert_close(packed[1], torch.cat([last for _, last in alone]))


@pytest.mark.parametrize("name", ["LinearAttention", "DeltaNet", "GatedDeltaNet"])
def test_modules(name):
    attn.manual_seed(3)
    module = getattr(attn, name)(5, 8, 2)
    x = RNG.standard_normal((2, 6, 5)).astype(np.float32)
    steps = module.steps(x)
    np.testing.assert_allclose(steps["weights"] @ steps["values"], steps["context"], atol=1e-6)
    np.testing.assert_array_equal(steps["output"], module(x))
    assert (np.triu(steps["weights"], 1) == 0).all()
    if name == "LinearAttention":
        np.testing.assert_allclose(steps["weights"].sum(-1), 1, atol=1e-6)
    dz = RNG.standard_normal((2, 6, 8)).astype(np.float32)
    dx = module.backward(dz)
    step = np.zeros_like(x)
    step[1, 3, 2] = 1e-2
    slope = ((module(x + step) - module(x - step)) * dz).sum() / 2e-2
    np.testing.assert_allclose(dx[1, 3, 2], slope, rtol=2e-2, atol=2e-3)
    assert "has a state of its own" in str(attn.report(module, x[0]))
