"""What `attn` is compared with. Each peer turns a row of the list into a call, or raises NotRun with the reason."""

import functools
import importlib
import math

import torch
from torch.nn import functional as F

from book_variants import VARIANTS

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class NotRun(Exception):
    pass


COLUMNS = ("op", "shape", "dtype", "mask", "precision")


class Row:
    """A line of `attn bench --json`: op, shape, dtype, mask."""

    def __init__(self, fields):
        self.fields = tuple(fields[key] for key in COLUMNS)
        self.op, self.shape, self.dtype, self.mask, self.precision = self.fields
        self.parts = [] if self.mask == "none" else self.mask.split("+")
        places = [[int(size) for size in place.split("/")] for place in self.shape.split(",")]
        self.sizes = [place[0] for place in places]
        self.is_attention = self.op in ("forward", "backward", "training", "decode")
        if self.is_attention:
            self.b = self.sizes[0]
            (self.hq, self.hkv), (self.tq, self.tk), (self.d, self.dv) = ((p[0], p[-1]) for p in places[1:])

    @classmethod
    def of(cls, key):
        return cls(dict(zip(COLUMNS, key)))

    def key(self):
        return self.fields

    def value(self, part):
        """The number of a mask part like softcap=50; None when the row has no such part."""
        return next((float(p.split("=")[1]) for p in self.parts if p.startswith(part + "=")), None)

    def only(self, *parts):
        """Raises NotRun when the mask has a part that is not among these."""
        for part in self.parts:
            if part.split("=")[0] not in parts:
                raise NotRun(f"has no {part.split('=')[0]}")


def operands(row, requires_grad=False):
    dtype = DTYPES[row.dtype]
    make = functools.partial(torch.randn, dtype=dtype, requires_grad=requires_grad)
    return (make(row.b, row.hq, row.tq, row.d), make(row.b, row.hkv, row.tk, row.d),
            make(row.b, row.hkv, row.tk, row.dv))


def rotating(row, call):
    """decode: other caches on every call, so that each comes from memory, as `attn bench` does it."""
    element = DTYPES[row.dtype].itemsize
    bytes_of_cache = row.b * row.hkv * row.tk * (row.d + row.dv) * element
    copies = min(16, max(1, math.ceil(3 * last_level_cache() / bytes_of_cache)))
    sets = [operands(row) for _ in range(copies)]
    state = {"next": 0}

    def run():
        state["next"] = (state["next"] + 1) % copies
        return call(*sets[state["next"]])

    return run


def last_level_cache():
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index3/size") as file:
            return int(file.read().strip().rstrip("K")) * 1024
    except (OSError, ValueError):
        return 32e6


# ---- PyTorch's scaled_dot_product_attention --------------------------------------------


def sdpa_options(row):
    """Its arguments for the row's mask; boolean masks where it has no flag."""
    row.only("causal", "window", "lengths", "keep", "bias", "alibi", "dropout")
    options = {"enable_gqa": row.hq != row.hkv, "dropout_p": row.value("dropout") or 0.0}
    if row.parts == ["causal"] or (len(row.parts) == 2 and "causal" in row.parts and options["dropout_p"]):
        return options | {"is_causal": True}
    i, j = torch.arange(row.tq)[:, None], torch.arange(row.tk)[None, :]
    keep, bias = torch.ones(1, 1, row.tq, row.tk, dtype=torch.bool), None
    if "causal" in row.parts:
        keep = keep & (j <= i)
    if window := row.value("window"):
        keep = keep & (j <= i) & (j >= i - window)
    if "lengths" in row.parts:
        lengths = torch.tensor([row.tk * (n + 1) // row.b for n in range(row.b)])
        keep = keep & (j < lengths[:, None, None, None])
    if "keep" in row.parts:
        keep = keep & (torch.rand(1, 1, row.tq, row.tk) < 0.5)
    if "bias" in row.parts:
        bias = torch.randn(1, 1, row.tq, row.tk)
    if "alibi" in row.parts:
        slopes = 2.0 ** (-8 * torch.arange(1, row.hq + 1) / row.hq)
        bias = -slopes[None, :, None, None] * (i - j).abs()
    if bias is not None:
        return options | {"attn_mask": bias.masked_fill(~keep, -torch.inf).to(DTYPES[row.dtype])}
    return options if keep.all() else options | {"attn_mask": keep}


def torch_sdpa(row, threads):
    del threads
    options = sdpa_options(row)

    def forward(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **options)

    if row.op == "decode":
        return no_grad(rotating(row, forward))
    q, k, v = operands(row, requires_grad=row.op != "forward")
    if row.op == "forward":
        return no_grad(lambda: forward(q, k, v))
    output = forward(q, k, v)
    d_output = torch.randn_like(output)
    if row.op == "backward":
        return lambda: torch.autograd.grad(output, (q, k, v), d_output, retain_graph=True)
    return lambda: torch.autograd.grad(forward(q, k, v), (q, k, v), d_output)


def no_grad(call):
    def run():
        with torch.no_grad():
            return call()

    return run


# ---- PyTorch's flex_attention, compiled ------------------------------------------------


def torch_flex(row, threads):
    del threads
    if row.op not in ("forward", "decode"):
        raise NotRun("has no backward on CPUs")
    row.only("causal", "window", "softcap", "alibi")
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    torch._dynamo.config.recompile_limit = 1000
    window, cap = row.value("window"), row.value("softcap")
    mask = None
    if "causal" in row.parts or window is not None:
        mask = create_block_mask(
            lambda b, h, i, j: (j <= i) if window is None else (j <= i) & (j >= i - window),
            None, None, row.tq, row.tk, device="cpu")
    slopes = 2.0 ** (-8 * torch.arange(1, row.hq + 1) / row.hq)
    modify = None
    if cap is not None:
        modify = lambda s, b, h, i, j: cap * torch.tanh(s / cap)
    elif "alibi" in row.parts:
        modify = lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()
    compiled = torch.compile(flex_attention, dynamic=False)

    def call(q, k, v):
        return compiled(q, k, v, score_mod=modify, block_mask=mask, enable_gqa=row.hq != row.hkv)

    run = rotating(row, call) if row.op == "decode" else functools.partial(call, *operands(row))
    return no_grad(run)


# ---- PyTorch's layers -----------------------------------------------------------------


def torch_linear(row, threads):
    del threads
    rows, d_in, d_out = row.sizes
    dtype = DTYPES[row.dtype]
    layer, x = torch.nn.Linear(d_in, d_out, bias=row.mask != "no-bias", dtype=dtype), torch.randn(rows, d_in, dtype=dtype)
    if row.op == "linear":
        return no_grad(lambda: layer(x))
    return training(layer, x)


def torch_module(variant, row, threads):
    del threads
    b, t, d, heads = row.sizes
    if row.mask != "causal":
        raise NotRun("the book's variants are causal")
    module, x = VARIANTS[variant](d, heads, t), torch.randn(b, t, d)
    if row.op == "module":
        module.eval()
        return no_grad(lambda: module(x))
    return training(module, x)


def training(module, x):
    x.requires_grad_()
    dz = torch.randn_like(module(x))

    def run():
        x.grad = None
        module.zero_grad(set_to_none=True)
        module(x).backward(dz)

    return run


# ---- ONNX Runtime ---------------------------------------------------------------------


def onnx_session(row, threads, contrib):
    """One node: the standard's Attention, or ONNX Runtime's own MultiHeadAttention."""
    from onnx import TensorProto, helper
    import onnxruntime
    name = {"f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16"}[row.dtype]
    element = getattr(TensorProto, name)
    causal = int("causal" in row.parts)
    if contrib:
        shapes = [(row.b, t, h * d) for t, h, d in
                  ((row.tq, row.hq, row.d), (row.tk, row.hkv, row.d), (row.tk, row.hkv, row.dv))]
        out = (row.b, row.tq, row.hq * row.dv)
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["o"], domain="com.microsoft",
                                num_heads=row.hq, unidirectional=causal)
    else:
        shapes = [(row.b, row.hq, row.tq, row.d), (row.b, row.hkv, row.tk, row.d), (row.b, row.hkv, row.tk, row.dv)]
        out = (row.b, row.hq, row.tq, row.dv)
        node = helper.make_node("Attention", ["q", "k", "v"], ["o"], is_causal=causal)
    inputs = [helper.make_tensor_value_info(n, element, s) for n, s in zip("qkv", shapes)]
    graph = helper.make_graph([node], "attention", inputs, [helper.make_tensor_value_info("o", element, out)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23),
                                                    helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = min(model.ir_version, 10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    # Its threads would otherwise spin on while another peer is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"]), shapes


def onnx_runtime(contrib, row, threads):
    if row.op not in ("forward", "decode"):
        raise NotRun("has no backward in its Python package")
    row.only("causal")
    if contrib and row.hq != row.hkv:
        raise NotRun("needs as many key heads as query heads")
    if row.dtype != "f32":
        raise NotRun("timed in f32 only")
    session, shapes = onnx_session(row, threads, contrib)
    element = row.b * row.hkv * row.tk * (row.d + row.dv) * 4
    copies = min(16, max(1, math.ceil(3 * last_level_cache() / element))) if row.op == "decode" else 1
    sets = [dict(zip("qkv", (torch.randn(shape).numpy() for shape in shapes))) for _ in range(copies)]
    state = {"next": 0}

    def run():
        state["next"] = (state["next"] + 1) % copies
        return session.run(None, sets[state["next"]])

    return run


# ---- who can do what ------------------------------------------------------------------


def at_precision(make, row, threads):
    """PyTorch's call with its float32 products as the row says; the setting is global, so it is set for each call."""
    call = make(row, threads)
    if row.precision == "highest":
        return call

    def run():
        torch.set_float32_matmul_precision(row.precision)
        try:
            return call()
        finally:
            torch.set_float32_matmul_precision("highest")

    return run


def unlimited(row, threads):
    raise NotRun("has no limit of its instructions")


def peers_for(row, flex=True, unit=None):
    """{name: function(row, threads) -> call} of those that have anything like the row's op, held to a unit."""
    if row.op.startswith("cache"):
        return {}  # decode's rows have the peers
    if row.op.startswith("linear"):
        torch_peers = {"PyTorch": torch_linear}
    elif row.op.startswith("module"):
        torch_peers = {name: functools.partial(torch_module, name) for name in VARIANTS}
    else:
        torch_peers = {"PyTorch SDPA": torch_sdpa} | ({"PyTorch flex": torch_flex} if flex else {})
    peers = {name: functools.partial(at_precision, make) for name, make in torch_peers.items()}
    if row.op in ("forward", "decode") and row.precision == "highest":
        peers["ONNX Runtime Attention"] = unlimited if unit else functools.partial(onnx_runtime, False)
        peers["ONNX Runtime MHA"] = unlimited if unit else functools.partial(onnx_runtime, True)
    return peers


def versions():
    """{package: version or why it is not there}"""
    found = {}
    for package in ("torch", "onnxruntime"):
        try:
            found[package] = importlib.import_module(package).__version__
        except ImportError:
            found[package] = "not installed"
    return found
