#!/usr/bin/env python3
"""Makes data/gpt2: small random GPT-2s as Hugging Face's transformers writes them, with their logits.

    pip install torch transformers safetensors
    tests/lm/make_gpt2.py
    tests/lm/make_gpt2.py --check FOLDER    # a model that we wrote, in transformers, beside its logits

--check reads FOLDER's config.json and model.safetensors by from_pretrained(), and FOLDER/logits.safetensors, with
"ids" and "logits": the test Checkpoint.SavesWhatTransformersReads leaves such a folder where ATTN_KEEP says.
"""

import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "gpt2")
SIZES = {"vocab_size": 61, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2}


def make(name, dtype=torch.float32, bare=False, **more):
    """One folder; `bare` as the models of 2019 have it: no prefix, and the mask's buffers among the weights."""
    torch.manual_seed(len(name))
    config = GPT2Config(**SIZES, **more)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms are not to be zeros and ones
            parameter.copy_((parameter + torch.randn_like(parameter) * 0.3).to(dtype))
        ids = torch.randint(0, config.vocab_size, (3, 12))
        logits = model(ids).logits
    folder = os.path.join(DATA, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    path = os.path.join(folder, "model.safetensors")
    if bare:
        tensors = {key.removeprefix("transformer."): value for key, value in load_file(path).items()}
        for i in range(config.n_layer):
            mask = torch.tril(torch.ones(1, 1, config.n_positions, config.n_positions))
            tensors |= {f"h.{i}.attn.bias": mask, f"h.{i}.attn.masked_bias": torch.tensor(-1e4)}
        save_file(tensors, path)
    greedy = model.float().generate(ids[:1, :3], do_sample=False, min_new_tokens=9, max_new_tokens=9, pad_token_id=0)
    save_file({"ids": ids, "logits": logits, "greedy": greedy[0]}, os.path.join(folder, "logits.safetensors"))


def check(folder):
    wanted = load_file(os.path.join(folder, "logits.safetensors"))
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    print({key: value for key, value in info.items() if value})
    with torch.no_grad():
        error = (model.eval()(wanted["ids"]).logits - wanted["logits"]).abs().max()
    print(f"largest difference of the logits: {error:.3g}")
    sys.exit(1 if error > 1e-5 else 0)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        check(sys.argv[2])
    make("tied-tanh-f32")
    make("tied-gelu-f16", torch.float16, activation_function="gelu", layer_norm_epsilon=1e-4)
    make("untied-bf16", torch.bfloat16, tie_word_embeddings=False)
    make("bare-2019-f32", bare=True)
