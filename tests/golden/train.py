"""Writes data/train.safetensors: language models in PyTorch, their gradients and their loss curves.

    python3 tests/golden/train.py

Deterministic. The committed file comes from PyTorch 1.13.1 (`pip install torch==1.13.1 numpy==1.26.4`) on a processor
on which it draws the dropout flavour `native`. Its format is generate.py's.
"""
import random

import torch

from generate import DATA, Golden, line
from torch_gpt import GPT, optimizer, rate


def pieces(golden):
    """LayerNorm, GELU and cross-entropy by themselves, with gradients."""
    chooser = random.Random(1)
    for i in range(16):
        rows, width = chooser.randint(1, 12), chooser.choice([5, 16, 31, 33, 200, 384])
        c = {"seed": i, "rows": rows, "width": width, "scale": chooser.choice([0.1, 1.0, 8.0])}
        stream = torch.Generator().manual_seed(c["seed"])

        def drawn(*shape):
            return torch.empty(shape).uniform_(-1, 1, generator=stream)

        x, weight, bias, dy = drawn(rows, width) * c["scale"], drawn(width), drawn(width), drawn(rows, width)
        x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()
        y = torch.nn.functional.layer_norm(x, (width,), weight, bias)
        (y * dy).sum().backward()
        golden.add("layer_norm", "layer_norm", line(c), {"output": y, "x.grad": x.grad, "weight.grad": weight.grad,
                                                          "bias.grad": bias.grad})
        for form in ("tanh", "none"):
            a = x.detach().clone().requires_grad_()
            z = torch.nn.functional.gelu(a, approximate=form)
            (z * dy).sum().backward()
            golden.add("gelu", "exact" if form == "none" else form, line(c), {"output": z, "x.grad": a.grad})
        logits = (x.detach() * 5).requires_grad_()
        targets = torch.randint(0, width, (rows,), generator=stream)
        targets[torch.rand(rows, generator=stream) < 0.2] = -100
        loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        loss.backward()
        golden.add("cross_entropy", "cross_entropy", line(c),
                   {"loss": loss.double().reshape(1), "targets": targets, "logits.grad": logits.grad})


def model(c):
    torch_model = GPT(c["vocab"], c["context"], c["layers"], c["heads"], c["width"], c["dropout"], c["gelu"], bool(c["tied"]))
    return torch_model.draw(c["seed"]).train()


def gradients(golden):
    chooser = random.Random(2)
    for i in range(12):
        heads = chooser.choice([1, 2, 3])
        c = {"seed": chooser.randint(0, 2**31), "vocab": chooser.choice([17, 64, 256]), "context": chooser.randint(8, 24),
             "layers": chooser.randint(1, 3), "heads": heads, "width": heads * chooser.choice([4, 8, 10]),
             "dropout": 0.2 if i % 3 == 2 else 0.0, "gelu": ("tanh", "exact")[i % 2], "tied": int(i % 4 != 3),
             "batch": chooser.randint(1, 3), "tokens": chooser.randint(2, 8)}
        m = model(c)
        ids = torch.randint(0, c["vocab"], (c["batch"], c["tokens"]))
        targets = torch.randint(0, c["vocab"], (c["batch"], c["tokens"]))
        loss = m(ids, targets)
        loss.backward()
        expected = {"loss": loss.double().reshape(1)}
        expected.update({name + ".grad": p.grad for name, p in m.named_parameters()})
        golden.add("model", "model", line(c), expected)


CURVE = {"seed": 1337, "vocab": 64, "context": 32, "layers": 2, "heads": 4, "width": 32, "dropout": 0.0, "gelu": "tanh",
         "tied": 1, "batch": 8, "tokens": 32, "steps": 200, "peak": 0.003, "floor": 0.0003, "warmup": 20, "decay": 0.1,
         "clip": 1.0}


def text(length, vocab):
    """Something that can be learned: runs over the vocabulary with steps drawn from a few."""
    ids, at = [], 0
    steps = torch.randint(0, 4, (length,))
    for step in steps.tolist():
        at = (at + (1, 2, 5, 11)[step]) % vocab
        ids.append(at)
    return torch.tensor(ids)


def curve(golden, **changes):
    c = {**CURVE, **changes}
    m = model(c)
    o = optimizer(m, c["decay"], lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    data = text(4000, c["vocab"])
    losses, norms = [], []
    for step in range(c["steps"]):
        for group in o.param_groups:
            group["lr"] = rate(step, c["peak"], c["floor"], c["warmup"], c["steps"])
        starts = torch.randint(0, len(data) - c["tokens"], (c["batch"],)).tolist()
        ids = torch.stack([data[s : s + c["tokens"]] for s in starts])
        targets = torch.stack([data[s + 1 : s + 1 + c["tokens"]] for s in starts])
        o.zero_grad(set_to_none=True)
        loss = m(ids, targets)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(m.parameters(), c["clip"]))
        o.step()
        losses.append(loss.detach())
    print("loss", float(losses[0]), "->", float(losses[-1]), "clipped", sum(float(n) > c["clip"] for n in norms))
    golden.add("curve", "curve", line(c), {"loss": torch.stack(losses), "norm": torch.stack(norms)})


if __name__ == "__main__":
    torch.set_num_threads(1)
    golden = Golden()
    pieces(golden)
    gradients(golden)
    curve(golden)
    curve(golden, gelu="exact", tied=0, seed=7)
    curve(golden, dropout=0.1, seed=99)
    golden.save(DATA / "train.safetensors")
