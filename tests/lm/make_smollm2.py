#!/usr/bin/env python3
"""Makes data/smollm2.safetensors: what transformers computes with SmolLM2-135M-Instruct, as `make smollm2` fetches it.

    pip install torch transformers safetensors gguf accelerate
    make smollm2 && tests/lm/make_smollm2.py

Of five prompts "prompt.N", their token ids; "greedy.N", the 30 that follow, or fewer where the text ends; and of the
logits after the prompt the 64 largest and 64 others: "at.N" and "logits.N". All in float32 from the weights of the GGUF
file. The script fails where a tie would leave a token to rounding. Of twenty texts "text.N", their bytes, and "ids.N", the
ids of transformers' tokenizer. The committed file was made by transformers 5.23.0, PyTorch 2.15.0 and gguf 0.19.0.
"""

import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "build", "smollm2")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = ["The capital of France is", "Attention is all you need, because", "def fibonacci(n):\n",
           "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
           "Once upon a time there was a little robot who " + "walked and walked and " * 130]  # fmt: skip

TEXTS = [
    "The capital of France is Paris.", "Attention is all you need", "  two blanks, and a tab\there", "line\n\nline\r\n\n  x",
    "3.14159, 2024-11-22 and 1,000,000", "It's they're we'll I'd you've he'S", "def f(x):\n    return x**2  # square\n",
    "Größe, naïve, café, œuvre, Ångström", "Привет, мир! Как дела?", "你好，世界。今天天气很好。", "日本語の文章です", "한국어 문장",
    "مرحبا بالعالم", "नमस्ते दुनिया", "🙂👩‍👩‍👧‍👦🏳️‍🌈 emoji", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "snake_case camelCase CONSTANT_CASE kebab-case", "https://example.org/a?b=c&d=%20#e", "e\u0301 \u00a0 \u200b \ufeff", "",
]  # fmt: skip

if __name__ == "__main__":
    tokenizer = AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype=torch.float32).eval()
    tensors = {}
    for i, prompt in enumerate(PROMPTS):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=30,
                                 output_logits=True, return_dict_in_generate=True)  # fmt: skip
        best = torch.stack(out.logits).topk(2).values
        margin = (best[..., 0] - best[..., 1]).min().item()
        text = out.sequences[0, ids.shape[1]:]
        print(repr(prompt[:40]), ids.shape[1], "ids, least margin", margin, repr(tokenizer.decode(text)))
        assert margin > 2e-3, "a tie"
        first = out.logits[0][0]
        at = torch.cat([first.topk(64).indices, torch.arange(64) * 700])
        tensors |= {f"prompt.{i}": ids[0], f"greedy.{i}": text, f"at.{i}": at, f"logits.{i}": first[at]}
    for i, text in enumerate(TEXTS):
        tensors[f"text.{i}"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
        tensors[f"ids.{i}"] = torch.tensor(tokenizer(text).input_ids, dtype=torch.int64)
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(HERE, "data", "smollm2.safetensors"))
