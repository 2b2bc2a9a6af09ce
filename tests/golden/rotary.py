"""Writes data/rotary.safetensors: rope frequencies of every type, and rotations by them, forward and backward.

    python3 tests/golden/rotary.py

Frequencies and attention factors come from transformers' ROPE_INIT_FUNCTIONS and, for "default", from a model's own
function; configs are given as released models write them, in both forms. Rotations come from transformers' functions of
Llama (by halves) and of GPT-J (interleaved), whose gradients are autograd's. Deterministic. The committed file was made by
transformers 5.23.0 and PyTorch 2.15.0. The format is generate.py's; a config is compact JSON, without spaces.
"""
import copy
import json
import random

import torch
from transformers import Gemma3TextConfig, LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as interleaved
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as halves

from generate import DATA, Golden, line

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64}
LIST = {"short_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 2.5, 3.0, 3.5], "long_factor": [1.5, 2, 3, 5, 8, 13, 21, 34]}


def both_forms(theta, **parameters):
    yield {**SIZES, "rope_theta": theta, "rope_scaling": {**parameters, "type": parameters["rope_type"]}}
    yield {**SIZES, "rope_parameters": {**parameters, "rope_theta": theta}}


def llama_configs():
    yield {**SIZES, "rope_theta": 10000.0}
    yield {**SIZES, "rope_theta": 500000, "head_dim": 24, "rope_scaling": None}
    yield {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    yield from both_forms(10000.0, rope_type="linear", factor=8.0)
    yield {**SIZES, "rope_theta": 1e4, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.5}}
    yield from both_forms(10000.0, rope_type="dynamic", factor=2.0)
    yield from both_forms(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
    yield from both_forms(1e4, rope_type="yarn", factor=40, original_max_position_embeddings=16, beta_fast=8,
                          beta_slow=0.5, mscale=0.8, mscale_all_dim=1.0)  # fmt: skip
    yield from both_forms(1e4, rope_type="yarn", factor=None, original_max_position_embeddings=8, truncate=False)
    yield from both_forms(1e4, rope_type="yarn", factor=1.0, attention_factor=0.7, original_max_position_embeddings=64)
    yield from both_forms(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=32)  # fmt: skip
    yield {"hidden_size": 2048, "num_attention_heads": 32, "max_position_embeddings": 131072, "rope_theta": 500000.0,
           "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                            "original_max_position_embeddings": 8192, "rope_type": "llama3"}}  # fmt: skip
    yield from both_forms(1e4, rope_type="longrope", original_max_position_embeddings=16, **LIST)
    yield from both_forms(1e4, rope_type="longrope", original_max_position_embeddings=16, factor=3.0,
                          attention_factor=1.25, **LIST)  # fmt: skip


def of(rope, config, length, layer_type=None):
    if rope.rope_type == "default" or (layer_type and rope.rope_type[layer_type] == "default"):
        return rope.compute_default_rope_parameters(config, **({"layer_type": layer_type} if layer_type else {}))
    function = ROPE_INIT_FUNCTIONS[rope.rope_type if layer_type is None else rope.rope_type[layer_type]]
    return function(config, torch.device("cpu"), seq_len=length or None, layer_type=layer_type)


def add(golden, name, written, found, **more):
    inv_freq, factor = found
    text = json.dumps(written, separators=(",", ":"))
    golden.add("frequencies", name, line({"json": text, **more}),
               {"inv_freq": inv_freq, "attention_factor": torch.tensor([factor], dtype=torch.float64)})  # fmt: skip


def frequencies(golden):
    for written in llama_configs():
        config = LlamaConfig(**copy.deepcopy(written))
        rope = LlamaRotaryEmbedding(config)
        for length in (0, 16, 17, 64, 65, 200):
            if length in (0, 200) or rope.rope_type in ("dynamic", "longrope"):
                add(golden, rope.rope_type, written, of(rope, config, length), length=length, layer="none")
    phi3 = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 64, "rope_theta": 10000.0,
            "original_max_position_embeddings": 16, "rope_scaling": {"type": "longrope", **LIST}}  # fmt: skip
    config = Phi3Config(**copy.deepcopy(phi3), pad_token_id=0)
    for length in (0, 17):
        add(golden, "longrope", phi3, ROPE_INIT_FUNCTIONS["longrope"](config, None, seq_len=length or None), length=length,
            layer="none")  # fmt: skip
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32, "num_hidden_layers": 6}
    scaled = {"rope_type": "linear", "factor": 8.0}
    for written in (
        {**sizes, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": scaled},
        {**sizes, "rope_parameters": {"full_attention": {**scaled, "rope_theta": 1e6},
                                      "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    ):  # fmt: skip
        config = Gemma3TextConfig(**copy.deepcopy(written))
        rope = Gemma3RotaryEmbedding(config)
        for layer in ("full_attention", "sliding_attention"):
            add(golden, "nested", written, of(rope, config, 0, layer), length=0, layer=layer)


def rotations(golden):
    chooser = random.Random(1)
    for i in range(12):
        layout = ("halves", "interleaved")[i % 2]
        c = {"seed": chooser.randint(0, 2**32), "layout": layout, "b": chooser.randint(1, 3), "h": chooser.randint(1, 3),
             "t": chooser.randint(1, 7), "d": 2 * chooser.randint(1, 9), "last": (9, 5000, 1000000, 10**9)[i % 4]}  # fmt: skip
        rotary_dim = c["rotary_dim"] = c["d"] if i % 3 else 2 * chooser.randint(1, c["d"] // 2)
        stream = torch.Generator().manual_seed(c["seed"])
        x, dy = (torch.empty(c["b"], c["h"], c["t"], c["d"]).uniform_(-2, 2, generator=stream) for _ in range(2))
        x.requires_grad_()
        positions = torch.randint(0, c["last"] + 1, (c["b"], c["t"]), generator=torch.Generator().manual_seed(i))
        positions[0, 0] = c["last"]
        rope = LlamaRotaryEmbedding(LlamaConfig(head_dim=rotary_dim, rope_theta=1e4))
        cos, sin = rope(x, positions)
        turned, rest = x[..., :rotary_dim], x[..., rotary_dim:]
        if layout == "halves":
            turned, _ = halves(turned, turned, cos, sin)
        else:  # GPT-J's tokens stand before its heads
            one = slice(0, rotary_dim // 2)
            turned = interleaved(turned.transpose(1, 2), sin[..., one], cos[..., one]).transpose(1, 2)
        y = torch.cat([turned, rest], dim=-1)
        (y * dy).sum().backward()
        golden.add("rotation", layout, line(c), {"positions": positions, "inv_freq": rope.inv_freq, "output": y,
                                                 "x.grad": x.grad})  # fmt: skip


if __name__ == "__main__":
    made = Golden()
    frequencies(made)
    rotations(made)
    made.save(DATA / "rotary.safetensors")
