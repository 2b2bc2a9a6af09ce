"""Writes data/masks.safetensors: windows, lengths, packed sequences, ALiBi, sinks, softcap and grouped heads.

    python3 tests/golden/masks.py

Each value comes from code that others wrote for that very purpose: Hugging Face's transformers (its mask functions, the
eager attention of Llama, Gemma 2 and gpt-oss, the ALiBi of BLOOM and MPT) and PyTorch (causal_lower_right, piece by piece).
Deterministic. The committed file was made by transformers 5.23.0 and PyTorch 2.15.0. The format is generate.py's.
"""
import random
import types

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers import masking_utils
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from generate import DATA, Golden, line

CASES = 10  # of each kind


def config(chooser, i, **more):
    """Every third case is past the block sizes of fused kernels."""
    hkv, tq = chooser.choice([1, 2]), chooser.randint(1, 9)
    tk = tq + chooser.randint(0, 5)
    b = chooser.randint(1, 2)
    if i % 3 == 2:
        b, hkv, tq, tk = 1, 1, *chooser.choice([(33, 70), (65, 65), (18, 140), (70, 71)])
    return {"seed": chooser.randint(0, 2**32), "b": b, "hq": hkv * chooser.choice([1, 2, 3]), "hkv": hkv, "tq": tq, "tk": tk,
            "d": chooser.randint(1, 6), "causal": 0, "align": "top_left", "left": -1, "right": -1, "lengths": "none",
            "query_starts": "none", "key_starts": "none", "scale": round(chooser.uniform(0.2, 1.5), 2), "softcap": 0.0,
            "sinks": 0, **more}  # fmt: skip


def add(golden, name, c, attend, **tensors):
    """attend(q, k, v, sinks) gives (output (b, hq, tq, d), weights or None)."""
    stream = torch.Generator().manual_seed(c["seed"])

    def drawn(*shape):
        return torch.empty(shape).uniform_(-2, 2, generator=stream)

    q = drawn(c["b"], c["hq"], c["tq"], c["d"]).requires_grad_()
    k, v = (drawn(c["b"], c["hkv"], c["tk"], c["d"]).requires_grad_() for _ in "kv")
    d_output = drawn(*q.shape)
    sinks = drawn(c["hq"]).requires_grad_() if c["sinks"] else None
    output, weights = attend(q, k, v, sinks)
    (output * d_output).sum().backward()
    expected = {"output": output, "q.grad": q.grad, "k.grad": k.grad, "v.grad": v.grad, **tensors}
    if weights is not None and weights.numel() < 1000:
        expected["weights"] = weights
    if sinks is not None:
        expected["sinks.grad"] = sinks.grad
    golden.add("masks", name, line(c), expected)


def eager(c, model=modeling_llama, mask=None, **options):
    """The eager attention of one of transformers' models."""

    def attend(q, k, v, sinks):
        module = types.SimpleNamespace(num_key_value_groups=c["hq"] // c["hkv"], training=False, sinks=sinks)
        output, weights = model.eager_attention_forward(module, q, k, v, mask, dropout=0.0, scaling=c["scale"], **options)
        return output.transpose(1, 2), weights

    return attend


def mask_of(c, function, padding=None):
    """A mask function of transformers' as eager attention takes it; under bottom_right the first keys are a cache's."""
    offset = c["tk"] - c["tq"] if c["align"] == "bottom_right" else 0
    return masking_utils.eager_mask(c["b"], c["tq"], c["tk"], offset, mask_function=function, attention_mask=padding)


def windows(golden, chooser):
    for i in range(CASES):
        size, both_sides = chooser.choice([1, 2, 3, 5, 20]), i % 2
        c = config(chooser, i, align="bottom_right", left=size if both_sides else size - 1, right=size if both_sides else -1,
                   causal=1 - both_sides)  # fmt: skip
        function = (masking_utils.sliding_window_bidirectional_mask_function if both_sides
                    else masking_utils.sliding_window_causal_mask_function)  # fmt: skip
        if i % 5 == 0:  # no query without keys, though no offset
            c.update(align="top_left", tk=c["tq"])
        add(golden, "window", c, eager(c, mask=mask_of(c, function(size))))


def lengths(golden, chooser):
    for i in range(CASES):
        causal, aligned = i % 2, i % 4 == 3
        c = config(chooser, i, causal=causal, align="bottom_right" if aligned else "top_left")
        each = [chooser.randint(c["tq"] if aligned else 1, c["tk"]) for _ in range(c["b"])]
        c["lengths"] = "x".join(map(str, each))
        if aligned:  # item by item: the diagonal ends at the last key of each
            add(golden, "lengths", c, one_by_one(c, [((b, 0, c["tq"]), (b, 0, n)) for b, n in enumerate(each)]))
            continue
        padding = torch.arange(c["tk"]) < torch.tensor(each)[:, None]
        function = masking_utils.causal_mask_function if causal else masking_utils.bidirectional_mask_function
        add(golden, "lengths", c, eager(c, mask=mask_of(c, function, padding)))


def one_by_one(c, parts):
    """PyTorch's operator and causal_lower_right on pieces ((item, first, last) of the queries, the same of the keys)."""

    def attend(q, k, v, _):
        output = torch.zeros_like(q)
        for (b, q0, q1), (_, k0, k1) in parts:
            piece = F.scaled_dot_product_attention(
                q[b : b + 1, :, q0:q1], k[b : b + 1, :, k0:k1], v[b : b + 1, :, k0:k1],
                attn_mask=causal_lower_right(q1 - q0, k1 - k0)._materialize() if c["causal"] else None,
                scale=c["scale"], enable_gqa=True)  # fmt: skip
            output[b : b + 1, :, q0:q1] = piece
        return output, None

    return attend


def starts(chooser, pieces, least):
    """Cumulative lengths of some pieces, each at least `least[i]` long."""
    result = [0]
    for i in range(pieces):
        result.append(result[-1] + least[i] + chooser.randint(0, 12))
    return result


def packed(golden, chooser):
    for i in range(CASES):
        c = config(chooser, i, b=1)
        pieces = chooser.randint(1, 4)
        q_starts = starts(chooser, pieces, [1] * pieces)
        kind = ("itself", "all keys", "lower right")[i % 3]
        k_starts = q_starts if kind == "itself" else starts(chooser, pieces, [b - a for a, b in zip(q_starts, q_starts[1:])])
        c.update(tq=q_starts[-1], tk=k_starts[-1], causal=int(kind != "all keys"),
                 align="bottom_right" if kind == "lower right" else "top_left",
                 query_starts="x".join(map(str, q_starts)), key_starts="x".join(map(str, k_starts)))  # fmt: skip
        if kind == "itself":
            ids = torch.bucketize(torch.arange(c["tq"]), torch.tensor(q_starts[1:]), right=True)[None]
            within = torch.arange(c["tq"])[None] - torch.tensor(q_starts)[ids]
            size = chooser.choice([2, 5])  # a window, too: it counts within the sequence
            c["left"] = size - 1
            function = masking_utils.packed_sequence_compatibility_function(
                masking_utils.sliding_window_causal_mask_function(size), within, ids)  # fmt: skip
            add(golden, "packed", c, eager(c, mask=mask_of(c, function)))
        else:
            add(golden, "packed", c, one_by_one(c, [((0, *q), (0, *k)) for q, k in
                                                    zip(zip(q_starts, q_starts[1:]), zip(k_starts, k_starts[1:]))]))  # fmt: skip


def alibi(golden, chooser):
    """Biases by the key's position alone; under a causal mask softmax takes that for the distance."""
    for i in range(CASES):
        heads = chooser.choice([1, 2, 3, 6, 8, 12])
        c = config(chooser, i, causal=1, align="bottom_right", hq=heads, hkv=1, d=2)
        build = mpt_bias if i % 2 else bloom_bias
        mask = build(heads, c["tk"]) + mask_of(c, masking_utils.causal_mask_function)
        first_two = build(heads, 2)[:, 0]
        add(golden, "alibi", c, eager(c, mask=mask), slopes=first_two[:, 1] - first_two[:, 0])


def bloom_bias(heads, keys):
    """(heads, 1, keys)."""
    return build_alibi_tensor(torch.ones(1, keys, dtype=torch.long), heads, torch.float32)


def mpt_bias(heads, keys):
    return build_mpt_alibi_tensor(heads, keys)


def sinks(golden, chooser):
    for i in range(CASES):
        size = chooser.choice([2, 4])
        c = config(chooser, i, sinks=1, causal=1, align="bottom_right", left=size - 1 if i % 2 else -1)
        function = masking_utils.sliding_window_causal_mask_function(size) if i % 2 else masking_utils.causal_mask_function
        add(golden, "sinks", c, eager(c, modeling_gpt_oss, mask_of(c, function)))


def softcap(golden, chooser):
    for i in range(CASES):
        c = config(chooser, i, softcap=chooser.choice([1.0, 5.0, 50.0]), causal=i % 2, align="bottom_right")
        mask = mask_of(c, masking_utils.causal_mask_function) if i % 2 else None
        add(golden, "softcap", c, eager(c, modeling_gemma2, mask, softcap=c["softcap"]))


def grouped(golden, chooser):
    for i in range(CASES):
        groups = chooser.choice([2, 3, 4, 7])
        c = config(chooser, i, causal=i % 2, align="bottom_right")
        c["hq"] = groups * c["hkv"]
        add(golden, "grouped", c, eager(c, mask=mask_of(c, masking_utils.causal_mask_function) if i % 2 else None))


if __name__ == "__main__":
    golden, chooser = Golden(), random.Random(15)
    for part in (windows, lengths, packed, alibi, sinks, softcap, grouped):
        part(golden, chooser)
    golden.save(DATA / "masks.safetensors")
