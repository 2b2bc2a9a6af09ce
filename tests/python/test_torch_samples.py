"""PyTorch's own samples of scaled_dot_product_attention, which its tests draw, and what it refuses, on attn.torch."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # which PyTorch's testing imports
import torch.nn.functional as F  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import attn.torch  # noqa: E402

pytestmark = pytest.mark.no_sanitizer  # no binding that test_torch.py does not use
sdpa = attn.torch.scaled_dot_product_attention
OPERATOR, = (op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")
DTYPES = sorted(OPERATOR.supported_dtypes("cpu"), key=str)


def run(f, sample, d_output, dtype):
    """Output, and the gradients of query, key, value and a mask, of tensors converted to dtype."""
    query, key, value = (x.detach().to(dtype).requires_grad_() for x in (sample.input, *sample.args))
    options, tensors = dict(sample.kwargs), [query, key, value]
    if options.get("attn_mask") is not None:
        options["attn_mask"] = options["attn_mask"].detach().to(dtype).requires_grad_()
        tensors.append(options["attn_mask"])
    torch.manual_seed(0)
    output = f(query, key, value, **options)
    return [output, *torch.autograd.grad(output, tensors, d_output.to(dtype))]


def dropping(query, key, value, dropout_p, **options):
    """PyTorch's weights without those that our operator drops; a value of one hot key each makes both visible."""
    one_hot = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-1], -1)
    with torch.no_grad():
        kept = sdpa(query, key, one_hot, dropout_p=dropout_p, **options) != 0
    return F.scaled_dot_product_attention(query, key, one_hot, **options) * kept / (1 - dropout_p) @ value


def largest(*tensors):
    return max(x.detach().abs().max().item() for x in tensors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_sample_forward_and_backward(dtype):
    torch.manual_seed(0)
    samples = list(OPERATOR.sample_inputs("cpu", dtype))
    assert len(samples) >= 25
    for sample in samples:
        d_output = torch.randn(F.scaled_dot_product_attention(sample.input, *sample.args, **sample.kwargs).shape).to(dtype)
        reference = dropping if sample.kwargs["dropout_p"] else F.scaled_dot_product_attention
        query, key, value = sample.input, *sample.args
        of_values = largest(value) / (1 - sample.kwargs["dropout_p"])
        of_gradients = of_values * largest(d_output) * largest(query, key)
        in_scores = torch.finfo(torch.promote_types(dtype, torch.float32)).eps * largest(query) * largest(key)
        wants, gots = (run(f, sample, d_output, to) for f, to in ((reference, torch.float64), (sdpa, dtype)))
        for i, (got, want) in enumerate(zip(gots, wants)):
            assert got.dtype == dtype and got.shape == want.shape
            limit = (4 * torch.finfo(dtype).eps + in_scores) * (of_gradients if i else of_values)
            assert (got.double() - want).abs().max().item() <= limit, sample


REFUSED = {
    "one dimension": lambda q: (q[0, 0, 0], q, q),
    "no tensor": lambda q: (q, q, None),
    "depths that differ": lambda q: (q, q[..., :4], q),
    "heads that do not broadcast": lambda q: (q, q[:, :2], q[:, :2]),
    "batches that do not broadcast": lambda q: (q, q[:2], q[:2]),
    "dtypes that differ": lambda q: (q, q.double(), q),
    "integers": lambda q: (q.long(), q.long(), q.long()),
    "complex": lambda q: (q.cfloat(), q.cfloat(), q.cfloat()),
    "a mask of other sizes": lambda q: (q, q, q, torch.ones(4, 5, dtype=torch.bool)),
    "a mask of more items": lambda q: (q, q, q, torch.ones(8, 1, 6, 6)),
    "a mask of integers": lambda q: (q, q, q, torch.ones(6, 6, dtype=torch.long)),
    "dropout above 1": lambda q: (q, q, q, None, 1.5),
    "dropout below 0": lambda q: (q, q, q, None, -0.5),
    "a scale that is no number": lambda q: (q, q, q, None, 0.0, False, "half"),
    "groups that do not divide": lambda q: (q, q[:, :3], q[:, :3], None, 0.0, False, None, True),
    "another device": lambda q: (q, q.to("meta"), q),
    "sparse": lambda q: (q.to_sparse(), q, q),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("grad", [False, True])
def test_what_pytorch_refuses(name, grad):
    arguments = REFUSED[name](torch.randn(4, 4, 6, 8))
    if grad:
        arguments = [x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in arguments]
    with pytest.raises((TypeError, ValueError, RuntimeError, IndexError, NotImplementedError)):
        F.scaled_dot_product_attention(*arguments)
    ours = RuntimeError if name == "dtypes that differ" else (TypeError, ValueError, NotImplementedError)
    with pytest.raises(ours):
        sdpa(*arguments)


def test_what_pytorch_refuses_and_we_take():
    """A mask with is_causal, and one of another dtype."""
    q, mask = torch.randn(4, 4, 6, 8), torch.randn(6, 6).half()
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    for refused in ((mask, 0.0, False), (mask.float(), 0.0, True)):
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, q, q, *refused)
    torch.testing.assert_close(sdpa(q, q, q, mask), F.scaled_dot_product_attention(q, q, q, mask.float()))
    want = F.scaled_dot_product_attention(q, q, q, mask.float().masked_fill(~seen, -torch.inf))
    torch.testing.assert_close(sdpa(q, q, q, mask, is_causal=True), want)


def test_every_sample_in_other_modes():
    """Under autocast, and mapped by vmap, as PyTorch's; forward mode is refused by both where PyTorch computes it fused."""
    torch.manual_seed(0)
    for sample in OPERATOR.sample_inputs("cpu", torch.float32):
        if sample.kwargs["dropout_p"]:
            continue
        tensors = [x.detach() for x in (sample.input, *sample.args)]
        low, mapped = [], []
        for f in (F.scaled_dot_product_attention, sdpa):
            with torch.autocast("cpu", torch.bfloat16):
                low.append(f(*tensors, **sample.kwargs))
            mapped.append(torch.vmap(lambda *pair, f=f: f(*pair, **sample.kwargs))(*(torch.stack([x, -x]) for x in tensors)))
        assert low[1].dtype == torch.bfloat16
        torch.testing.assert_close(low[1], low[0], rtol=0, atol=4 * torch.finfo(torch.bfloat16).eps * largest(tensors[2]))
        torch.testing.assert_close(mapped[1], mapped[0], rtol=0, atol=1e-4 * largest(tensors[2]))
        with pytest.raises(NotImplementedError):
            torch.func.jvp(lambda query: sdpa(query, *tensors[1:], **sample.kwargs), (tensors[0],), (tensors[0],))
