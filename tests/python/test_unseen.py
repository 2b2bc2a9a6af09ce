"""A meaning of PyTorch's tensors or modes that memory does not show is followed, or refused by name."""

import copy
import ctypes
import io
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import attn  # noqa: E402
import attn.torch  # noqa: E402

F = torch.nn.functional


@pytest.fixture(name="qkv")
def tensors():
    generator = torch.Generator().manual_seed(5)
    return tuple(torch.randn(1, 2, 5, 8, generator=generator) for _ in range(3))


def ours(*arguments, **options):
    return attn.torch.scaled_dot_product_attention(*arguments, **options)


@pytest.mark.parametrize("keys", [5, 7])
@pytest.mark.parametrize("kind", ["causal_upper_left", "causal_lower_right"])
def test_pytorchs_causal_bias_is_a_mask(qkv, kind, keys):
    bias = getattr(pytest.importorskip("torch.nn.attention.bias"), kind)(5, keys)
    q, k, v = qkv[0], *(torch.randn(1, 2, keys, 8) for _ in range(2))
    torch.testing.assert_close(ours(q, k, v, bias), F.scaled_dot_product_attention(q, k, v, bias))
    with pytest.raises(TypeError, match="CausalBias"):
        attn.scaled_dot_product_attention(*(x.numpy() for x in (q, k, v)), bias)


def test_a_tracer_would_keep_one_result(qkv):
    calls = [
        lambda x: ours(x, *qkv[1:]) + 0,
        lambda x: attn.torch.linear_attention(x, *qkv[1:]) + 0,
        lambda x: attn.rotary(x, cos=torch.ones(5, 4), sin=torch.ones(5, 4)) + 0,
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match="torch.jit.trace"):
            torch.jit.trace(call, (qkv[0],), check_trace=False)

    class Module(torch.nn.Module):
        def forward(self, x):
            return calls[0](x)

    with pytest.raises(NotImplementedError, match="dynamo=False"):
        torch.onnx.export(Module(), (qkv[0],), io.BytesIO(), dynamo=False)


def test_a_negated_tensor_is_read_negated(qkv):
    q, _, v = (x.numpy() for x in qkv)
    complex_numbers = torch.view_as_complex(torch.randn(1, 2, 5, 8, 2))
    negated = complex_numbers.conj().imag
    assert negated.is_neg()
    wanted = attn.scaled_dot_product_attention(q, negated.clone(), v)
    np.testing.assert_array_equal(attn.scaled_dot_product_attention(q, negated, v), wanted)
    module = attn.MultiHeadAttention(8, 4, 10, 0.0, 2)
    torch.testing.assert_close(module(negated[0]), module(negated[0].clone()), rtol=0, atol=0)


def test_derivatives_that_are_not_there_are_refused(qkv):
    q, k, v = qkv
    turn = torch.randn(5, 4, requires_grad=True)
    for options in ({"cos": turn, "sin": turn.detach()}, {"cos": turn.detach(), "sin": turn}):
        with pytest.raises(NotImplementedError, match="without requires_grad"):
            attn.rotary(q, **options)
    with pytest.raises(NotImplementedError, match="cos"):
        torch.func.grad(lambda c: attn.rotary(q, cos=c, sin=turn.detach()).sum())(turn.detach())
    with torch.no_grad():
        attn.rotary(q, cos=turn, sin=turn)
    for option in ("scale", "softcap"):
        for derivative in (torch.func.grad, torch.func.jacrev):
            with pytest.raises(TypeError, match=f"{option} as a number"):
                derivative(lambda t: ours(q, k, v, **{option: t}).sum())(torch.tensor(0.5))
    with pytest.raises(TypeError, match="scale as a number"):
        torch.func.grad(lambda t: attn.torch.linear_attention(q, k, v, scale=t).sum())(torch.tensor(0.5))


def test_a_query_that_nothing_follows_has_no_followed_keys(qkv):
    q, k, v = qkv
    mask = torch.zeros(5, 5, requires_grad=True)
    with pytest.raises(ValueError, match="autograd does not follow"):
        attn.scaled_dot_product_attention(q.numpy(), k.clone().requires_grad_(), v.numpy())
    with pytest.raises(ValueError, match="autograd does not follow"):
        attn.scaled_dot_product_attention(*(x.numpy() for x in qkv), mask)
    cache = attn.KVCache(1, 2, 8)
    cache.append(k, v)
    for options in ({"attn_mask": mask}, {"sinks": torch.zeros(2, requires_grad=True)}):
        with pytest.raises(ValueError, match="autograd does not follow"):
            cache.attention(q, **options)
        with torch.no_grad():  # a module's parameters are followed elsewhere
            followed = cache.attention(q, **options)
        plain = cache.attention(q, **{name: tensor.detach() for name, tensor in options.items()})
        torch.testing.assert_close(followed, plain, rtol=0, atol=0)


def test_lengths_are_integers(qkv):
    for wrong in (torch.tensor([0.0, 2.7, 5.0]), torch.tensor([0, 2 + 3j, 5]), torch.tensor([False, True, True])):
        with pytest.raises(TypeError, match="cu_seqlens as integers"):
            attn.torch.linear_attention(*qkv, cu_seqlens=wrong)


@pytest.mark.parametrize("wrong", [{"enable_gqa": "no"}, {"is_causal": 2}, {"scale": "0.5"}])
def test_arguments_are_as_strict_with_gradients_and_compiled(qkv, wrong):
    followed = qkv[0].clone().requires_grad_()
    compiled = torch.compile(lambda q: ours(q, *qkv[1:], **wrong), backend="eager")
    for call in (lambda: ours(*qkv, **wrong), lambda: ours(followed, *qkv[1:], **wrong), lambda: compiled(qkv[0])):
        with pytest.raises((TypeError, torch._dynamo.exc.TorchDynamoException)):
            call()


def test_steps_of_a_module_that_was_altered_are_refused():
    x = torch.rand(1, 6, 3)
    module = attn.torch.MultiHeadAttention(3, 4, 6, 0.0, 2)
    before = module.steps(x)["queries"]
    for handle in (
        module.W_key.register_forward_hook(lambda layer, args, output: output * 2),
        torch.nn.modules.module.register_module_forward_hook(lambda layer, args, output: output * 2),
        torch.nn.modules.module.register_module_forward_pre_hook(lambda layer, args: (args[0] * 2,)),
        module.register_forward_pre_hook(lambda layer, args: (args[0] * 2,)),
    ):
        with pytest.raises(ValueError, match="without hooks"):
            module.steps(x)
        handle.remove()
    torch.testing.assert_close(module.steps(x)["queries"], before, rtol=0, atol=0)
    module.W_query = torch.nn.Sequential(module.W_query, torch.nn.GELU())
    with pytest.raises(ValueError, match="MultiHeadAttention.W_query as torch.nn.modules.container.Sequential"):
        module.steps(x)
    module.W_query = type("Linear", (torch.nn.Linear,), {"forward": lambda layer, x: 2 * x})(3, 4)
    with pytest.raises(ValueError, match="MultiHeadAttention.W_query as .*Linear"):
        module.steps(x)
    module = attn.torch.SelfAttention_v2(3, 4)
    module.forward = lambda x: 2 * x
    with pytest.raises(ValueError, match=r"another forward\(\)"):
        attn.explain(module, x[0])


HOOKS = ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_full_backward_pre_hook"]


@pytest.mark.parametrize("register", [*HOOKS, "forward"])
@pytest.mark.parametrize("dropout", [torch.nn.Dropout(0.5), torch.nn.Dropout(0.0), torch.nn.Identity()])
def test_what_dropout_would_be_called_with_is_not_there(register, dropout):
    """A hook that collects the weights, say, which the kernels never hold."""
    module, x = attn.torch.CausalAttention(3, 4, 6, 0.0), torch.rand(1, 6, 3)
    module.dropout = copy.deepcopy(dropout)
    module(x)
    if register == "forward":
        module.dropout.forward = lambda weights: weights
    else:
        getattr(module.dropout, register)(lambda *_: None)
    torch._dynamo.reset()  # which does not look again whether there are hooks
    for call in (module, torch.compile(module, backend="eager"), module.eval()):
        with pytest.raises((TypeError, torch._dynamo.exc.TorchDynamoException), match="dropout without hooks"):
            call(x)


def test_steps_of_a_module_that_was_made_without_memory():
    with torch.device("meta"):
        module = attn.torch.SelfAttention_v2(3, 4)
    other = attn.torch.SelfAttention_v2(3, 4)
    module.load_state_dict(other.state_dict(), assign=True)
    x = torch.rand(6, 3)
    torch.testing.assert_close(module.steps(x)["context"], other.steps(x)["context"], rtol=0, atol=0)
    assert not module._random() and other._random()


@pytest.mark.parametrize("kind", ["CausalAttention", "MultiHeadAttention"])
def test_dropout_is_a_probability_when_a_module_is_made(kind):
    more = (2,) if kind == "MultiHeadAttention" else ()
    for wrong in (2.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="dropout from 0 to 1"):
            getattr(attn.torch, kind)(3, 4, 6, wrong, *more)
    with pytest.raises(TypeError, match="dropout as a number"):
        getattr(attn.torch, kind)(3, 4, 6, "half", *more)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_is_saved_goes_where_the_path_leads(tmp_path):
    report = attn.report(np.ones((2, 2), np.float32) / 2)
    whole = str(report).encode()
    (tmp_path / "a.html.part").write_text("mine")
    report.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_bytes() == whole and (tmp_path / "a.html.part").read_text() == "mine"
    (tmp_path / "link.html").symlink_to("a.html")
    (tmp_path / "a.html").write_text("old")
    report.save(tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "a.html").read_bytes() == whole
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        report.save(tmp_path / "pipe")
        assert reader.stdout.read() == whole
    with pytest.raises(OSError):
        report.save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a.html", "a.html.part", "link.html", "pipe"]


@pytest.mark.parametrize("shape", [(0, 0), (2, 0), (0, 2), (1, 0, 3, 3)])
def test_weights_of_nothing_are_not_shown(shape):
    for shows in (attn.report, attn.plot):
        with pytest.raises(ValueError, match="some queries and keys"):
            shows(np.zeros(shape, np.float32))


def test_an_array_of_ctypes_is_read(qkv):
    q, k, v = (x[0].numpy() for x in qkv)
    raw = (ctypes.c_float * 8 * 5 * 2).from_buffer_copy(q.tobytes())
    wanted = attn.scaled_dot_product_attention(q, k, v)
    np.testing.assert_array_equal(attn.scaled_dot_product_attention(raw, k, v), wanted)
    made = [np.ctypeslib.as_ctypes(x) for x in (q, k, v)]
    np.testing.assert_array_equal(attn.scaled_dot_product_attention(*made), wanted)
    bias = (ctypes.c_float * 5 * 5)()
    np.testing.assert_array_equal(attn.scaled_dot_product_attention(q, k, v, bias), wanted)
    module = attn.MultiHeadAttention(8, 8, 6, 0.0, 2)
    np.testing.assert_array_equal(module((ctypes.c_float * 8 * 5).from_buffer_copy(q[0].tobytes())), module(q[0]))


class Kept:
    """Hands out one capsule, as often as it is asked, which a consumer may take once."""

    def __init__(self, array):
        self.capsule = array.__dlpack__()

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def test_a_capsule_is_taken_once(qkv):
    q, k, v = (x.numpy() for x in qkv)
    kept = Kept(q)
    wanted = attn.scaled_dot_product_attention(q, k, v)
    np.testing.assert_array_equal(np.from_dlpack(attn.scaled_dot_product_attention(kept, k, v)), wanted)
    assert "used_dltensor" in repr(kept.capsule)
    with pytest.raises(TypeError, match="query as an array"):
        attn.scaled_dot_product_attention(kept, k, v)


def test_an_interrupt_while_an_array_is_handed_out_goes_on(qkv):
    class Interrupted(Kept):
        def __dlpack__(self, **_):
            raise KeyboardInterrupt

    q, k, v = (x.numpy() for x in qkv)
    with pytest.raises(KeyboardInterrupt):
        attn.scaled_dot_product_attention(Interrupted(q), k, v)
