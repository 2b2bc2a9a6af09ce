#!/usr/bin/env python3
"""Makes data/training.safetensors: 50 steps of PyTorch's AdamW on data/llama, the small random Llama of make_models.py.

    pip install torch transformers safetensors
    tests/lm/make_training.py

"ids" (steps, batch, tokens + 1) are a few sentences of random ids, which a model can learn; "losses", "norms" and
"rates" are those of each step, and "logits" what the model answers to the first batch at the end. Gradients are clipped
to 1, matrices decay by 0.1, the learning rate rises for 5 steps to 0.01 and falls by half a cosine to 0.001: the formulas
of attn/optim.hpp, written here with PyTorch alone. The committed file was made by transformers 5.23.0 and PyTorch 2.15.0.
"""

import math
import os

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
STEPS, BATCH, TOKENS, WARMUP, PEAK, FLOOR = 50, 4, 12, 5, 1e-2, 1e-3


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    return FLOOR + (PEAK - FLOOR) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


if __name__ == "__main__":
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_pretrained(os.path.join(DATA, "llama"), dtype=torch.float32).train()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  betas=(0.9, 0.95), eps=1e-8)  # fmt: skip
    sentences = torch.randint(0, 61, (6, TOKENS + 1))
    ids = sentences[torch.randint(0, 6, (STEPS, BATCH))]
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        logits = model(ids[step, :, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[step, :, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        after = model(ids[0, :, :-1]).logits
    print("losses", losses[0], losses[24], losses[-1], "norms", norms[0], norms[-1])
    save_file({"ids": ids, "losses": torch.tensor(losses, dtype=torch.float64),
               "norms": torch.tensor(norms, dtype=torch.float64),
               "rates": torch.tensor([rate(step) for step in range(STEPS)], dtype=torch.float64), "logits": after},
              os.path.join(DATA, "training.safetensors"))  # fmt: skip
