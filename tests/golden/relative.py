"""Writes data/relative.safetensors: relative-position biases by buckets of distances, as transformers' T5 computes them.

    python3 tests/golden/relative.py

The buckets are those of T5Attention._relative_position_bucket; outputs and gradients those of T5Attention, whose projections
are made the identity, in float64. Deterministic. The committed file was made by transformers 5.23.0 and PyTorch 2.15.0. The format is
generate.py's.
"""
import random

import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from generate import DATA, Golden, line

FARTHEST = 3000
TABLES = [(32, 128), (32, 256), (16, 64), (8, 20), (64, 1000), (4, 100), (6, 50), (10, 128), (40, 128), (7, 30), (128, 4096)]


def buckets(golden):
    distances = torch.arange(-FARTHEST, FARTHEST + 1)
    for bidirectional in (1, 0):
        for count, farthest in TABLES:
            found = T5Attention._relative_position_bucket(distances, bool(bidirectional), count, farthest)
            golden.add("relative", "buckets", line({"bidirectional": bidirectional, "buckets": count, "max_distance": farthest}),
                       {"buckets": found.to(torch.uint8)})  # fmt: skip


def attention(golden, chooser):
    for i in range(16):
        heads, width, b = chooser.choice([1, 2, 3]), chooser.choice([4, 8, 16]), chooser.choice([1, 2])
        t = chooser.choice([1, 5, 17]) if i % 4 else chooser.choice([70, 150])
        bidirectional, (count, farthest) = i % 2, chooser.choice(TABLES)
        c = {"seed": chooser.randint(0, 2**32), "b": b, "h": heads, "t": t, "d": width, "bidirectional": bidirectional,
             "buckets": count, "max_distance": farthest}  # fmt: skip
        config = T5Config(d_model=heads * width, d_kv=width, num_heads=heads, relative_attention_num_buckets=count,
                          relative_attention_max_distance=farthest, dropout_rate=0.0, is_decoder=not bidirectional)  # fmt: skip
        config._attn_implementation = "eager"
        module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
        stream = torch.Generator().manual_seed(c["seed"])

        def drawn(*shape):
            return torch.empty(shape).uniform_(-2, 2, generator=stream).double()

        with torch.no_grad():
            for part in (module.q, module.k, module.v, module.o):
                part.weight.copy_(torch.eye(heads * width))
            module.relative_attention_bias.weight.copy_(drawn(count, heads))
        x = drawn(b, t, heads * width).requires_grad_()
        d_output = drawn(b, t, heads * width)
        mask = None if bidirectional else torch.full((t, t), -torch.inf).double().triu(1)[None, None].expand(b, 1, t, t)
        output = module(x, mask=mask)[0]
        (output * d_output).sum().backward()
        expected = {"output": output, "x.grad": x.grad, "table.grad": module.relative_attention_bias.weight.grad}
        golden.add("relative", "attention", line(c), {name: value.float() for name, value in expected.items()})


if __name__ == "__main__":
    golden, chooser = Golden(), random.Random(5)
    buckets(golden)
    attention(golden, chooser)
    golden.save(DATA / "relative.safetensors")
