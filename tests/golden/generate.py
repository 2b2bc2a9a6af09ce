"""Writes the golden data in data/: what PyTorch computes, for the library to repeat.

    python3 tests/golden/generate.py                 # random, modules, operator, scores
    python3 tests/golden/generate.py --mkl [LIBRARY] # mkl: dropout of the flavour `mkl`, and modules under it

Deterministic. The committed files come from Debian 12's python3-torch 1.13.1, which is built without MKL and
therefore draws the dropout flavour `native`. Later versions draw the same, but for randint, which takes 64
random bits an element for ranges from 2^28 on, where 1.13 took them from 2^32 on: tests/random and tests/python have
those between.

--mkl needs a PyTorch built with MKL (the Linux x86 wheel of PyPI) on an Intel processor: on any other processor
PyTorch draws `native` even with MKL. Elsewhere, name MKL's own library (`pip install mkl`, then
.../lib/libmkl_rt.so.3 with that folder in LD_LIBRARY_PATH): its Bernoulli generator is then called as PyTorch
calls it. The committed file was made in that way, by the PyTorch above and mkl 2026.2.

Each file is safetensors. Its metadata holds one entry a case, "<kind> <number> <name>" -> "key=value key=value ...",
from which the test repeats the case; the tensors "<number>.<what>" are the expected results. Inputs are not
stored: test and script draw them from the same seed, which the tests of the random streams make safe.
"""
import ctypes
import itertools
import json
import math
import pathlib
import random
import struct
import sys

import torch

from kept import kept
from torch_modules import attend, build, causal_keep

DATA = pathlib.Path(__file__).parent / "data"
DTYPES = {torch.float64: "F64", torch.float16: "F16", torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8"}


class Golden:
    """One file: cases, and the tensors expected of them."""

    def __init__(self):
        self.metadata, self.tensors, self.count = {}, {}, 0

    def add(self, kind, name, config, expected, given=()):
        """`given` are the names of those that the test begins with."""
        number = "%04d" % self.count
        self.count += 1
        self.metadata["%s %s %s" % (kind, number, name)] = config
        for what, tensor in expected.items():
            self.tensors[number + "." + what] = (tensor if what in given else kept(tensor)).detach().contiguous()

    def save(self, path):
        # Wide elements first, so that every tensor is aligned.
        names = sorted(self.tensors, key=lambda n: (-self.tensors[n].element_size(), n))
        header, data = {"__metadata__": self.metadata}, bytearray()
        for name in names:
            tensor = self.tensors[name]
            content = tensor.numpy().tobytes()
            header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                            "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        print(path.name, self.count, "cases,", path.stat().st_size, "bytes")


def line(config):
    return " ".join("%s=%s" % item for item in config.items())


# ---- random streams: a program of draws on one generator ---------------------------------------------------------


def packed(keep):
    """Eight elements a byte, the first in the lowest bit."""
    bits = torch.cat([keep.reshape(-1).to(torch.uint8), torch.zeros(-keep.numel() % 8, dtype=torch.uint8)])
    return (bits.reshape(-1, 8) * (2 ** torch.arange(8))).sum(1).to(torch.uint8)


def linear(d_in, d_out, bias):
    layer = torch.nn.Linear(d_in, d_out, bias=bool(bias))
    return torch.cat([p.detach().reshape(-1) for p in layer.parameters()])


DRAWS = {
    "seed": torch.manual_seed,
    "rand": torch.rand,
    "uniform": lambda low, high, n: torch.empty(n).uniform_(low, high),
    "randint": lambda low, high, n: torch.randint(low, high, (n,)),
    "randn": torch.randn,
    "bernoulli": lambda p, n: packed(torch.empty(n).bernoulli_(1 - p) != 0),
    "dropout": lambda p, n: packed(torch.nn.functional.dropout(torch.ones(n), p, True) != 0),
    "linear": linear,
}


def program(golden, name, *steps):
    expected = {}
    for i, (draw, *arguments) in enumerate(steps):
        result = DRAWS[draw](*arguments)
        if draw != "seed":
            expected[str(i)] = result
    text = " ".join(draw + "=" + ",".join(map(repr, arguments)) for draw, *arguments in steps)
    golden.add("program", name, text, expected)


SEEDS = [0, 1, 123, 789, 1337, 2**31 - 1, 2**32 - 1, 2**32, 2**32 + 123, 2**63 - 1, 2**63, 2**64 - 1, -1, -123, -(2**63)]
SIZES = list(range(1, 41))


def by_size(golden, name, draw):
    """One stream through all small sizes; a fresh seed for each of them; large sizes."""
    program(golden, name, ("seed", 123), *[draw(n) for n in SIZES])
    program(golden, name, *itertools.chain(*[(("seed", n), draw(n)) for n in SIZES]))
    program(golden, name, ("seed", 42), draw(1000), draw(4099), draw(7))
    program(golden, name, *itertools.chain(*[(("seed", seed), draw(18)) for seed in SEEDS]))


def random_programs(golden):
    by_size(golden, "rand", lambda n: ("rand", n))
    by_size(golden, "randn", lambda n: ("randn", n))
    for low, high in ((-1.0, 1.0), (-5.1, 2.2), (0.1, 0.3), (1e-3, 1e3), (2.5, 2.5)):
        program(golden, "uniform", ("seed", 7), *[("uniform", low, high, n) for n in (1, 2, 9, 33, 1001)])
    by_size(golden, "randint", lambda n: ("randint", 0, 100, n))
    for low, high in ((0, 1), (-5, 6), (0, 2**32), (-(2**40), 2**50), (-(2**63), 2**63 - 1)):
        program(golden, "randint", ("seed", 99), *[("randint", low, high, n) for n in (1, 5, 40)])
    dropout_programs(golden)
    for d_in, d_out, bias in ((1, 1, 1), (1, 5, 0), (3, 2, 0), (3, 2, 1), (3, 4, 1), (7, 9, 1), (16, 16, 1), (33, 5, 0),
                              (64, 48, 1), (100, 10, 1), (768, 4, 1), (1600, 3, 1), (4096, 1, 1)):
        program(golden, "linear", ("seed", 123), ("linear", d_in, d_out, bias), ("linear", d_out, d_in, 1 - bias))
    mixed_programs(golden)


def dropout_programs(golden):
    for kind in ("dropout", "bernoulli"):
        for p in (0.5, 0.1, 0.2, 1 / 3, 0.9, 1e-3):
            by_size(golden, kind, lambda n: (kind, p, n))
    for p in (0.0, 1.0):  # draw nothing: the rand after them shows it
        program(golden, "dropout", ("seed", 5), ("dropout", p, 20), ("rand", 4))
    program(golden, "dropout", ("seed", 5), ("dropout", 0.4, 100000), ("rand", 4))


def mixed_programs(golden):
    program(golden, "mixed", ("seed", 1), ("randn", 5), ("rand", 3), ("randn", 20), ("randn", 2), ("randn", 1))
    program(golden, "mixed", ("seed", 1), ("randn", 1), ("seed", 1), ("randn", 1), ("rand", 1), ("randn", 1), ("randn", 1))
    program(golden, "mixed", ("seed", 123), ("linear", 3, 2, 1), ("randn", 3), ("dropout", 0.5, 36), ("randn", 3))
    chooser = random.Random(4)
    for _ in range(60):
        steps = [("seed", chooser.choice(SEEDS))]
        for _ in range(chooser.randint(3, 12)):
            n = chooser.choice([1, 2, 3, 5, 15, 16, 17, 31, 32, 47])
            steps.append(chooser.choice([("rand", n), ("randn", n), ("randn", n), ("randint", -3, 1000, n),
                                         ("uniform", -0.7, 1.3, n), ("dropout", 0.3, n), ("bernoulli", 0.6, n),
                                         ("linear", n, 2, 1), ("seed", chooser.randint(0, 2**64 - 1))]))
        program(golden, "mixed", *steps)


# ---- modules -----------------------------------------------------------------------------------------------------

PLAIN = ["SimplifiedSelfAttention", "AveragePast"]
MODULES = PLAIN + ["Linear", "SelfAttentionV1", "SelfAttentionV2", "SelfAttentionHead", "CausalAttention",
                   "CrossAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper"]


def module_config(module, i, chooser):
    heads = chooser.choice([1, 2, 3, 4]) if module in ("CrossAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper") else 1
    tokens = [1, 2, 40][i] if i < 3 else chooser.randint(1, 40)
    train = i % 3 == 2 and module not in ("SimplifiedSelfAttention", "AveragePast", "Linear", "SelfAttentionV1")
    longest = max(tokens, chooser.randint(1, 40) if module == "CrossAttention" else 0)
    return {
        "module": module, "seed": chooser.choice([123, 789, chooser.randint(0, 2**40)]), "x_seed": chooser.randint(0, 2**32),
        "d_in": chooser.randint(1, 20), "d_out": heads * chooser.randint(1, 5), "heads": heads,
        "context": chooser.choice([0, longest, longest + 7]), "batch": (0, 1, 3)[i % 3], "tokens": tokens,
        "source_tokens": longest if module == "CrossAttention" and i % 2 else chooser.randint(1, longest),
        "bias": chooser.randint(0, 1), "causal": int(chooser.random() < 0.7),
        "order": "kqv" if module == "SelfAttentionHead" else chooser.choice(["qkv", "kqv"]),
        "scale": chooser.choice(["default", "default", 0.37, 1.0]), "out_proj": int(chooser.random() < 0.7),
        "dropout": chooser.choice([0.1, 0.5, 0.8]) if train else chooser.choice([0.0, 0.5]), "train": int(train),
    }


def module_case(golden, c):
    torch.manual_seed(c["seed"])
    module = build(c)
    module.train(bool(c["train"]))
    stream = torch.Generator().manual_seed(c["x_seed"])

    def drawn(*shape):
        return torch.empty(shape).uniform_(-1, 1, generator=stream)

    batch = [c["batch"]] if c["batch"] else []
    x = drawn(*batch, c["tokens"], c["d_in"]).requires_grad_()
    inputs = {"x": x}
    if c["module"] == "CrossAttention":
        inputs["source"] = drawn(*batch, c["source_tokens"], c["d_in"]).requires_grad_()
    z = module(*inputs.values())
    expected = {"output": z}
    if c["module"] not in PLAIN:
        (z * drawn(*z.shape)).sum().backward()
        expected.update({name + ".grad": tensor.grad for name, tensor in inputs.items()})
        expected.update({name + ".grad": p.grad for name, p in module.named_parameters()})
    golden.add("module", c["module"], line(c), expected)


def module_cases(golden):
    chooser = random.Random(20)
    for module in MODULES:
        for i in range(15):
            module_case(golden, module_config(module, i, chooser))


# ---- the operator ------------------------------------------------------------------------------------------------


def broadcastable(chooser, full):
    """A shape that broadcasts to `full`."""
    shape = [n if chooser.random() < 0.7 else 1 for n in full]
    return shape[chooser.choice([0, 0, 2]):]


def operator_config(i, chooser):
    hkv, groups = chooser.choice([1, 2]), chooser.choice([1, 1, 2, 3])
    b, tq, tk = chooser.randint(1, 2), chooser.randint(1, 9), chooser.randint(1, 9)
    if i % 10 == 9:  # past the block sizes of fused kernels
        b, hkv, tq, tk = 1, 1, chooser.choice([1, 33, 65]), chooser.choice([1, 31, 70])
    full = [b, hkv * groups, tq, tk]
    masks = chooser.sample(["causal", "keep", "bias"], chooser.choice([0, 1, 1, 2, 3]))
    if i < 4:
        masks = ["causal"]
    return {
        "dtype": ("float32", "float64")[i % 2], "seed": chooser.randint(0, 2**32), "b": b, "hq": hkv * groups, "hkv": hkv,
        "tq": tq, "tk": tk, "d": chooser.randint(1, 8), "dv": chooser.randint(1, 8),
        "causal": chooser.choice(["top_left", "bottom_right"]) if "causal" in masks else "none",
        "keep": "x".join(map(str, broadcastable(chooser, full))) if "keep" in masks else "none",
        "bias": "x".join(map(str, broadcastable(chooser, full))) if "bias" in masks else "none",
        "bias_inf": chooser.choice([0.0, 0.3]), "scale": chooser.choice(["default", "default", 0.7, -1.3, 3.0]),
        "softcap": chooser.choice([0.0, 0.0, 2.0, 50.0]), "dropout": chooser.choice([0.0, 0.0, 0.25, 0.9]),
    }


def sizes(text):
    return [int(n) for n in text.split("x")]


def operator_case(golden, c):
    stream = torch.Generator().manual_seed(c["seed"])
    dtype = getattr(torch, c["dtype"])

    def drawn(*shape):  # float32 values in both dtypes, so that any reader of the seed can draw them
        return torch.empty(shape).uniform_(-2, 2, generator=stream).to(dtype)

    def drawn_bool(p, *shape):  # true with probability 1 - p
        return torch.rand(shape, generator=stream) >= p

    b, hq, tq, tk = c["b"], c["hq"], c["tq"], c["tk"]
    q = drawn(b, hq, tq, c["d"]).requires_grad_()
    k = drawn(b, c["hkv"], tk, c["d"]).requires_grad_()
    v = drawn(b, c["hkv"], tk, c["dv"]).requires_grad_()
    keep = bias = None
    if c["keep"] != "none":
        keep = drawn_bool(0.4, *sizes(c["keep"]))
    if c["bias"] != "none":
        bias = drawn(*sizes(c["bias"]))
        bias = bias.masked_fill(~drawn_bool(c["bias_inf"], *sizes(c["bias"])), -math.inf).requires_grad_()
    if c["causal"] != "none":
        causal = causal_keep(tq, tk, c["causal"] == "bottom_right")
        keep = causal if keep is None else keep & causal
    drop = lambda weights: weights
    if c["dropout"]:
        kept = drawn_bool(c["dropout"], b, hq, tq, tk)
        drop = lambda weights: weights * kept / (1 - c["dropout"])
    groups = hq // c["hkv"]
    output, lse, weights = attend(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), bias, keep,
                                  None if c["scale"] == "default" else c["scale"], c["softcap"], drop)
    (output * drawn(*output.shape)).sum().backward()
    expected = {"output": output, "lse": lse, "weights": weights, "q.grad": q.grad, "k.grad": k.grad, "v.grad": v.grad}
    if bias is not None:
        expected["bias.grad"] = bias.grad
    golden.add("operator", c["dtype"], line(c), expected)


def operator_cases(golden):
    chooser = random.Random(3)
    for i in range(120):
        operator_case(golden, operator_config(i, chooser))


# ---- functions of the scores, and block-sparse masks ---------------------------------------------------------------


def t5_bucket(distance, bidirectional, buckets, far):
    """Raffel et al. 2020, section 2.1: of key minus query position; logarithmic from buckets / 2 of a side on."""
    base = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        base = (distance > 0) * buckets
        length = distance.abs()
    else:
        length = (-distance).clamp(min=0)
    exact = buckets // 2
    share = torch.log(length.clamp(min=1).double() / exact) / math.log(far / exact)
    shared = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
    return base + torch.where(length < exact, length, shared)


def scores_case(golden, c):
    stream = torch.Generator().manual_seed(c["seed"])
    dtype = getattr(torch, c["dtype"])

    def drawn(*shape):
        return torch.empty(shape).uniform_(-2, 2, generator=stream).to(dtype)

    b, h, tq, tk = c["b"], c["h"], c["tq"], c["tk"]
    q, k, v = (drawn(b, h, t, d).requires_grad_() for t, d in ((tq, c["d"]), (tk, c["d"]), (tk, c["dv"])))
    table = drawn(h, c["buckets"])
    blocks = torch.rand(-(-tq // c["block_query"]), -(-tk // c["block_key"]), generator=stream) >= 0.5
    keep = blocks.repeat_interleave(c["block_query"], 0).repeat_interleave(c["block_key"], 1)[:tq, :tk]
    distance = torch.arange(tk)[None, :] - torch.arange(tq)[:, None]
    bias = table[:, t5_bucket(distance, bool(c["bidirectional"]), c["buckets"], c["far"])]
    output, lse, _ = attend(q, k, v, bias, keep, c["scale"])
    (output * drawn(*output.shape)).sum().backward()
    golden.add("scores", c["dtype"], line(c), {"output": output, "lse": lse, "q.grad": q.grad, "k.grad": k.grad,
                                               "v.grad": v.grad})


def scores_cases(golden):
    chooser = random.Random(33)
    for i in range(16):
        scores_case(golden, {
            "dtype": ("float32", "float64")[i % 2], "seed": chooser.randint(0, 2**32), "b": chooser.randint(1, 2),
            "h": chooser.randint(1, 2), "tq": chooser.choice([1, 5, 20, 33]), "tk": chooser.choice([3, 18, 40, 70]),
            "d": chooser.randint(1, 5), "dv": chooser.randint(1, 5), "bidirectional": chooser.randint(0, 1),
            "buckets": chooser.choice([8, 32]), "far": chooser.choice([16, 128]), "scale": chooser.choice([1.0, 0.6]),
            "block_query": chooser.choice([1, 4, 16]), "block_key": chooser.choice([1, 3, 16]),
        })


# ---- dropout of the flavour mkl ----------------------------------------------------------------------------------


def draws_mkl():
    """Whether this PyTorch on this processor draws from MKL: it then takes one 32-bit number, native draws take many."""
    torch.manual_seed(0)
    torch.nn.functional.dropout(torch.ones(100), 0.5, True)
    after = torch.rand(1)
    torch.manual_seed(0)
    return torch.equal(torch.rand(2)[1:], after)


def use_mkl(library):
    """Makes Tensor.bernoulli_ and dropout draw as PyTorch does with MKL on an Intel processor."""
    mkl = ctypes.CDLL(library)
    brng_mcg31, method_icdf = 1 << 20, 0

    def next_u32():
        state = torch.get_rng_state()
        both = int(torch.empty(1, dtype=torch.int64).random_(-(2**63), None))  # (first << 32) | second
        torch.set_rng_state(state)
        torch.rand(1)  # takes the first alone
        return (both % 2**64) >> 32

    def bernoulli_(tensor, p):
        seed = next_u32()  # of MKL's stream
        sample, stream = torch.empty(tensor.shape, dtype=torch.int32), ctypes.c_void_p()
        assert mkl.vslNewStream(ctypes.byref(stream), ctypes.c_int(brng_mcg31), ctypes.c_uint(seed)) == 0
        assert mkl.viRngBernoulli(ctypes.c_int(method_icdf), stream, ctypes.c_int(sample.numel()),
                                  ctypes.c_void_p(sample.data_ptr()), ctypes.c_double(p)) == 0
        assert mkl.vslDeleteStream(ctypes.byref(stream)) == 0
        return tensor.copy_(sample)

    def dropout(x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        if p == 1:
            return x * 0
        return x * (bernoulli_(torch.empty_like(x), 1 - p) / (1 - p))

    torch.Tensor.bernoulli_ = bernoulli_
    torch.nn.functional.dropout = dropout


def mkl_cases(golden):
    dropout_programs(golden)
    mixed_programs(golden)
    chooser = random.Random(21)
    for module in ("CausalAttention", "CrossAttention", "MultiHeadAttention", "MultiHeadAttentionWrapper"):
        for i in (2, 5, 8, 11):
            c = module_config(module, i, chooser)
            module_case(golden, {**c, "batch": chooser.choice([0, 1, 2]), "tokens": min(c["tokens"], 20)})


def write(name, *parts):
    golden = Golden()
    for part in parts:
        part(golden)
    golden.save(DATA / (name + ".safetensors"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--mkl"]:
        if not draws_mkl():
            if len(sys.argv) < 3:
                sys.exit("this PyTorch draws `native` here: see the docstring, name MKL's library")
            use_mkl(sys.argv[2])
            assert draws_mkl()
        write("mkl", mkl_cases)
    elif sys.argv[1:] or draws_mkl():
        sys.exit("this PyTorch draws `mkl`, or an unknown argument: see the docstring")
    else:
        write("random", random_programs)
        write("modules", module_cases)
        write("operator", operator_cases)
        write("scores", scores_cases)
