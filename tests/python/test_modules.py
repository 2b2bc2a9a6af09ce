"""The notebooks' modules: the digits that the notebooks print, PyTorch's classes, and gradients."""

import copy
import re

import numpy as np
import pytest
from conftest import ROOT

import attn

X = np.array([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64],
              [0.22, 0.58, 0.33], [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]], np.float32)  # fmt: skip
BATCH = np.stack([X, X])


def printed(notebook):
    """{what: the numbers that the seed notebook printed}"""
    text = (ROOT / f"tools/attn/check/printed/{notebook}.inc").read_text()
    blocks = re.split(r"^(?:R\"printed\()?@ ", text, flags=re.M)[1:]
    entries = {}
    for block in blocks:
        name, _, body = block.partition("\n")
        body = re.sub(r"grad_fn=<\w+>|dtype=torch\.\w+|\)printed\".*", "", body, flags=re.S if "printed\"" in body else 0)
        entries[name] = [(float(n), len(n.partition(".")[2])) for n in re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?|-?\d+", body)]
    return entries


def check(entries, name, value):
    numbers = np.asarray(value, np.float64).ravel()
    assert len(entries[name]) == numbers.size, name
    for (want, digits), got in zip(entries[name], numbers):
        assert abs(want - got) <= 0.5000001 * 10.0**-digits, name


def test_notebook_000():
    p = printed("000")
    attn.manual_seed(123)
    v1 = attn.SelfAttention_v1(3, 2)
    check(p, "v1: all contexts", v1(X))
    steps = v1.steps(X)
    check(p, "v1: query 2", steps["queries"][1])
    check(p, "v1: weights of query 2", steps["weights"][1])
    attn.manual_seed(789)
    check(p, "v2: all contexts", attn.SelfAttention_v2(3, 2)(X))
    simple = attn.SimplifiedSelfAttention()
    check(p, "all contexts", simple(X))
    check(p, "weights", simple.steps(X)["weights"])


def test_notebook_001():
    p = printed("001")
    attn.manual_seed(123)
    check(p, "linear kqv: all contexts", attn.SelfAttention_v2(3, 2, layer_order="kqv")(X))
    attn.manual_seed(123)
    unmasked = attn.CausalAttention(3, 2, 6, 0.0, causal=False, layer_order="kqv")
    check(p, "causal: context_vecs, printed without the mask", unmasked(BATCH))
    attn.manual_seed(123)
    masked = attn.CausalAttention(3, 2, 6, 0.0, layer_order="kqv")
    check(p, "causal: context_vecs with the mask that the notebook left out", masked(X))
    attn.manual_seed(123)
    by_hand = attn.MultiHeadAttention(3, 2, 6, 0.0, 2, causal=False, out_proj=False)
    check(p, "two heads: context_vecs", by_hand(BATCH))
    attn.manual_seed(123)
    check(p, "multi-head: context_vecs", attn.MultiHeadAttention(3, 2, 6, 0.0, 2)(BATCH))


def test_notebook_002():
    p = printed("002")
    attn.manual_seed(789)
    weights = attn.SelfAttention_v2(3, 2).steps(X)["weights"]
    check(p, "v2: weights", weights)
    tril = np.tril(np.ones((6, 6), bool))
    check(p, "mask: weights * tril", attn.steps.mask_zero(weights, tril))
    check(p, "mask: renormalised", attn.steps.mask_renormalise(weights, tril))
    attn.manual_seed(123)
    ones = np.ones((6, 6), np.float32)
    check(p, "dropout: ones", attn.steps.dropout(ones, attn.default_generator.dropout_keep((6, 6), 0.5), 0.5))
    native = attn.Generator(123, dropout="native")
    check(p, "dropout: ones, as the book prints (flavour native)",
          attn.steps.dropout(ones, native.dropout_keep((6, 6), 0.5), 0.5))  # fmt: skip
    for what, make in [("causal", lambda: attn.CausalAttention(3, 2, 6, 0.0)),
                       ("wrapper", lambda: attn.MultiHeadAttentionWrapper(3, 2, 6, 0.0, num_heads=2)),
                       ("multi-head", lambda: attn.MultiHeadAttention(3, 2, 6, 0.0, num_heads=2))]:  # fmt: skip
        attn.manual_seed(123)
        check(p, what + ": context_vecs", make()(BATCH))


def test_notebook_003():
    p = printed("003")
    attn.manual_seed(42)
    check(p, "B: randint, seed 42", attn.randint(0, 10, (3, 2)))
    attn.manual_seed(1337)
    x = attn.randn(4, 8, 2)
    check(p, "x_avg[0], by loop", attn.AveragePast()(x)[0])
    attn.manual_seed(1337)
    x = attn.randn(4, 8, 32)
    head = attn.SelfAttentionHead(32, 16)
    check(p, "head: W[0]", head.steps(x)["weights"][0])
    check(p, "head: output[0]", head(x)[0])


def test_notebook_004():
    p = printed("004")
    attn.manual_seed(123)
    x = np.concatenate([X[:4], np.array([[0.02, 0.81, 0.52]], np.float32)])
    v1 = attn.SelfAttention_v1(3, 2)
    check(p, "keys", v1.steps(x)["keys"])
    check(p, "values", x @ v1.W_value)
    check(p, "v1: all contexts", v1(x))


MODULES = [
    lambda: attn.SelfAttention_v1(3, 4),
    lambda: attn.SelfAttention_v2(3, 4, qkv_bias=True),
    lambda: attn.CausalAttention(3, 4, 8, 0.3, qkv_bias=True),
    lambda: attn.MultiHeadAttentionWrapper(3, 2, 8, 0.3, 2),
    lambda: attn.MultiHeadAttention(3, 4, 8, 0.3, 2, qkv_bias=True),
]


@pytest.mark.parametrize("make", MODULES)
def test_backward_agrees_with_finite_differences(make):
    module = make().eval()
    d_output = np.random.default_rng(0).standard_normal(module(BATCH).shape).astype(np.float32)
    dx = module.backward(d_output)
    step = 1e-2

    def slope(array, index):
        old = array[index]
        array[index] = old + step
        up = (module(x).astype(np.float64) * d_output).sum()
        array[index] = old - step
        down = (module(x).astype(np.float64) * d_output).sum()
        array[index] = old
        return (up - down) / (2 * step)

    x = BATCH.copy()
    for index in [(0, 0, 0), (1, 3, 2), (0, 5, 1)]:
        assert abs(slope(x, index) - dx[index]) < 2e-3
    for parameter in module.parameters():
        grad = parameter.grad
        for index in [(0,) * grad.ndim, (-1,) * grad.ndim]:
            assert abs(slope(parameter.value, index) - grad[index]) < 5e-3, parameter


@pytest.mark.parametrize("make", MODULES)
def test_state_dicts_go_both_ways(make):
    first, second = make(), make()
    assert not np.array_equal(first.eval()(X), second.eval()(X))
    mask, part = np.triu(np.ones((8, 8)), 1), next(iter(first.state_dict())).rpartition("W_")[0]  # "heads.0.", or none
    second.load_state_dict({**first.state_dict(), "mask": mask, f"{part}mask": mask > 0})
    with pytest.raises(ValueError, match="hides the keys after each query"):
        second.load_state_dict({**first.state_dict(), f"{part}mask": np.ones((8, 8))})
    assert np.array_equal(first(X), second(X))
    state = first.state_dict()
    name = next(iter(state))
    for bad in [{}, {**state, "other": state[name]}, {**state, name: state[name][:1]}]:
        with pytest.raises(ValueError):
            second.load_state_dict(bad)
    with pytest.raises(TypeError):
        second.load_state_dict({**state, name: "weights"})
    assert np.array_equal(first(X), second(X))


def test_training_a_module_by_hand_lowers_the_loss():
    attn.manual_seed(0)
    module = attn.MultiHeadAttention(3, 4, 8, 0.0, 2)
    target = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    losses = []
    for _ in range(60):
        difference = module(BATCH) - target
        losses.append(float((difference**2).mean()))
        module.zero_grad()
        module.backward(2 * difference / difference.size)
        for parameter in module.parameters():
            parameter.value -= 0.5 * parameter.grad
    assert losses[-1] < 0.8 * losses[0]


def test_dropout_acts_in_train_mode_only():
    attn.manual_seed(3)
    module = attn.CausalAttention(3, 2, 6, 0.5)
    assert module.training and not np.array_equal(module(X), module(X))
    assert np.array_equal(module.eval()(X), module(X))


def test_parts_by_name():
    module = attn.MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2)
    np.testing.assert_allclose(module.heads[1].W_key(X), X @ module.heads[1].W_key.weight.T, atol=1e-6)
    assert module.heads[0].W_key.bias is None
    with pytest.raises(AttributeError):
        module.W_other
    with pytest.raises(AttributeError):
        attn.SelfAttention_v1(3, 2).W_query.weight


def test_cross_attention():
    module = attn.CrossAttention(3, 4, num_heads=2)
    source = np.ones((2, 9, 3), np.float32)
    assert module(BATCH, source).shape == (2, 6, 4)
    dx, d_source = module.backward(np.ones((2, 6, 4), np.float32))
    assert dx.shape == BATCH.shape and d_source.shape == source.shape


@pytest.mark.parametrize("bad, error", [
    (lambda: attn.MultiHeadAttention(3, 5, 6, 0.0, 2), ValueError),
    (lambda: attn.MultiHeadAttention(3, 4, 6, 2.0, 2), ValueError),
    (lambda: attn.MultiHeadAttention(0, 4, 6, 0.0, 2), ValueError),
    (lambda: attn.MultiHeadAttention("3", 4, 6, 0.0, 2), TypeError),
    (lambda: attn.SelfAttention_v2(3, 2, layer_order="vkq"), ValueError),
    (lambda: attn.SelfAttention_v1(3, 2)(X.astype(np.float64)), TypeError),
    (lambda: attn.SelfAttention_v1(3, 2)(X[:, :2]), ValueError),
    (lambda: attn.SelfAttention_v1(3, 2)({}), TypeError),
    (lambda: attn.SelfAttention_v1(3, 2).backward(X), ValueError),
    (lambda: attn.CausalAttention(3, 2, 4, 0.0)(X), ValueError),
    (lambda: attn.SimplifiedSelfAttention().backward(X), ValueError),
    (lambda: attn.Generator(0, dropout="other"), ValueError),
    (lambda: attn.rand(-1), ValueError),
    (lambda: attn.randint(3, 3, (2,)), ValueError),
    (lambda: attn.steps.softmax(None), TypeError),
    (lambda: attn.steps.matmul(X, X), ValueError),
])  # fmt: skip
def test_mistakes(bad, error):
    with pytest.raises(error):
        bad()


@pytest.mark.parametrize("options, words", [
    ({"d_in": "3"}, "d_in as an integer; found str"),
    ({"num_heads": None}, "num_heads as an integer; found NoneType"),
    ({"dropout": "half"}, "dropout as a number; found str"),
    ({"qkv_bias": 1}, "qkv_bias as True or False; found int"),
    ({"layer_order": 1}, "layer_order as a string; found int"),
])  # fmt: skip
def test_a_value_of_the_wrong_kind_is_named(options, words):
    right = {"d_in": 3, "d_out": 4, "context_length": 5, "dropout": 0.0, "num_heads": 2}
    with pytest.raises(TypeError, match=r"^\[module\] expected " + words + "$"):
        attn.MultiHeadAttention(**(right | options))


def test_backward_is_of_the_last_forward_pass_or_refused():
    """PyTorch's autograd refuses weights that changed, and a picture has a graph of its own."""
    module, dz = attn.CausalAttention(3, 2, 6, 0.0).eval(), np.ones((6, 2), np.float32)

    def load():
        module.load_state_dict(module.state_dict())

    def step():
        for p in module.parameters():
            p.value -= 0.1

    for between, found in ((load, "load_state_dict"), (step, "another value of W_value.weight"),
                           (lambda: attn.report(module, -X), "attn.report"), (lambda: attn.plot(module, -X), "attn.plot"),
                           (lambda: attn.explain(module, -X, query=1), "attn.explain")):  # fmt: skip
        module(X)
        before = module.backward(dz)
        between()
        for same in (module, copy.copy(module)):
            with pytest.raises(ValueError, match=rf"^\[backward\] expected forward\(\) right before backward\(\); found {found}"):
                same.backward(dz)
        module(X)
        assert between is step or np.array_equal(module.backward(dz), before)


@pytest.mark.parametrize("name, value", [("W_query", 1), ("training", False), ("dropout", 0.5), ("num_heads", 1), ("out_proj", None)])
def test_what_a_layer_has_is_not_set_beside_it(name, value):
    module = attn.MultiHeadAttention(3, 4, 6, 0.0, 2)
    with pytest.raises(AttributeError, match=rf"^\[MultiHeadAttention\] expected {name} as it was made"):
        setattr(module, name, value)
    module.note = "of its user's own"
    with pytest.raises(AttributeError, match="expected heads"):
        attn.MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2).heads = []
    for part in (module.W_query, attn.MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2).heads[0], module.parameters()[0]):
        with pytest.raises(AttributeError):
            part.data = value
        with pytest.raises(AttributeError):
            part.weight = value


@pytest.mark.parametrize("value", [1.0, np.ones(3, np.float32), np.ones((1, 3), np.float32), [[1.0] * 3] * 4])
def test_a_weights_value_has_its_shape(value):
    parameter = attn.MultiHeadAttention(3, 4, 6, 0.0, 2).parameters()[0]
    with pytest.raises(ValueError, match=r"^\[W_query.weight\] expected a value of shape \(4, 3\); found"):
        parameter.value = value
    with pytest.raises(TypeError, match="without a mask of its own"):
        parameter.value = np.ma.ones((4, 3))
    parameter.value = np.ones((4, 3))
    parameter.value[...] = 2
