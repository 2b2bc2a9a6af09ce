#!/usr/bin/env python3
"""Times `attn generate` and Hugging Face's transformers on the same random models, in turns, and prints the ratios.

    pip install torch transformers safetensors
    bench/generate.py --attn build/default/attn
    bench/generate.py --models small --threads 1 --repeats 5

Both take the likeliest token, after a prompt of 16, with a cache of keys and values. transformers is timed two ways:
its generate(), and a bare loop over the model, without what generate() does around it; the better one counts. Seconds
a token are of the tokens after the first. The limit is what reading every weight once a token takes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = {  # name: width, layers, heads, context, vocabulary
    "small": (384, 6, 6, 256, 256),
    "117M": (768, 12, 12, 1024, 50257),
}
PROMPT = 16


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--attn", default="attn", help="the command; default: attn of PATH")
    parser.add_argument("--models", default="small,117M", help="default: small,117M")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="of the weights; default: float32,bfloat16")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}", help="default: 1 and all")
    parser.add_argument("--tokens", type=int, default=100, help="default: 100")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; default: 3")
    return parser.parse_args()


def make(name, folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    width, layers, heads, context, vocabulary = SIZES[name]
    torch.manual_seed(1)
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads, n_positions=context, vocab_size=vocabulary,
                        bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    if vocabulary != 256:
        byte_vocabulary(folder, vocabulary)
    return model


def byte_vocabulary(folder, size):
    """Any tokenizer will do: bytes, and names for the rest."""
    from tokenizers.pre_tokenizers import ByteLevel
    tokens = sorted(ByteLevel.alphabet())
    tokens += [f"<{i}>" for i in range(len(tokens), size)]
    with open(os.path.join(folder, "vocab.json"), "w") as file:
        json.dump({token: i for i, token in enumerate(tokens)}, file)
    with open(os.path.join(folder, "merges.txt"), "w") as file:
        file.write("#version: 0.2\n")


def attn(options, folder, dtype, threads):
    """Seconds a token, and the ids."""
    line = [options.attn, "generate", "--model", folder, "--prompt", "a" * PROMPT, "--temperature", "0", "--tokens",
            str(options.tokens), "--weights", dtype, "--json"]
    ran = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    if ran.returncode:
        sys.exit(ran.stderr)
    found = json.loads(ran.stdout)
    return 1 / found["tokens_per_second"], found


def by_generate(model, ids, tokens):
    import torch
    with torch.inference_mode():
        start = time.perf_counter()
        model.generate(ids, max_new_tokens=1, min_new_tokens=1, do_sample=False, pad_token_id=0)
        first = time.perf_counter() - start
        start = time.perf_counter()
        found = model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        return (time.perf_counter() - start - first) / (tokens - 1), found[0, ids.shape[1]:].tolist()


def by_loop(model, ids, tokens):
    import torch
    with torch.inference_mode():
        out = model(ids, use_cache=True)
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        found = [token.item()]
        start = time.perf_counter()
        for _ in range(tokens - 1):
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            found.append(token.item())
        return (time.perf_counter() - start) / (tokens - 1), found


def agreement(a, b):
    """How many tokens are the same before the first that is not: rounding decides between near equal ones."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def main():
    options = arguments()
    import torch
    import transformers
    print(f"| model | weights | threads | attn, ms | transformers {transformers.__version__} generate() | its bare loop "
          "| ratio | attn reads, GB/s | tokens the same |\n|---|---|---|---|---|---|---|---|---|")
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            model = make(name, folder)
            weights = sum(p.numel() for p in model.parameters()) - model.transformer.wpe.weight.numel()
            for dtype in options.dtypes.split(","):
                theirs = model.to(getattr(torch, dtype))
                for threads in [int(n) for n in options.threads.split(",")]:
                    torch.set_num_threads(threads)
                    samples = {"attn": [], "generate()": [], "bare loop": []}
                    for _ in range(options.repeats):
                        seconds, found = attn(options, folder, dtype, threads)
                        samples["attn"].append(seconds)
                        ids = torch.tensor([found["prompt_ids"]])
                        for who, call in (("generate()", by_generate), ("bare loop", by_loop)):
                            seconds, tokens = call(theirs, ids, options.tokens)
                            samples[who].append(seconds)
                    ms = {who: statistics.median(values) * 1e3 for who, values in samples.items()}
                    rate = weights * (4 if dtype == "float32" else 2) / ms["attn"] / 1e6
                    best = min(ms["generate()"], ms["bare loop"])
                    print(f"| {name} | {dtype} | {threads} | {ms['attn']:.2f} | {ms['generate()']:.2f} | "
                          f"{ms['bare loop']:.2f} | {best / ms['attn']:.2f} | {rate:.1f} | "
                          f"{agreement(tokens, found['ids'])} of {options.tokens} |", flush=True)


main()
