#!/usr/bin/env python3
"""Times SmolLM2-135M in `attn generate`, transformers and llama.cpp, in turns: the reading of a prompt, and new tokens.

    make smollm2
    pip install torch transformers gguf accelerate llama-cpp-python .
    bench/smollm2.py --attn build/default/attn
    bench/smollm2.py --prompts 16,512 --threads 1 --who attn-float32,attn-int8,llama.cpp --rounds 1

All read the same GGUF file and the same tokens, and take the likeliest one. attn and transformers make float32 (or
bfloat16, or int8) of its 4-bit weights, llama.cpp multiplies them as they are. Figures are medians of the rounds with the
least and the most, in tokens a second: of the prompt until the first new token, and of the new tokens after that.
attn-bfloat16 and attn-int8 are at medium precision, with keys and values in bfloat16 (llama.cpp's are in float16).
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "build" / "smollm2"
TEXT = "Attention is a weighted sum of values, and the weights are a softmax of scores. "


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--attn", default="attn", help="the command; default: attn of PATH")
    parser.add_argument("--prompts", default="16,512,4096", help="their tokens; default: 16,512,4096")
    parser.add_argument("--tokens", type=int, default=128, help="new ones; default: 128")
    parser.add_argument("--threads", default="1,2", help="default: 1,2")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--who", default=",".join(WAYS), help=f"default: {','.join(WAYS)}")
    return parser.parse_args()


def attn(flags, options, ids, threads):
    """Seconds of the prompt, and of the new tokens after the first."""
    line = [options.attn, "generate", "--model", str(FOLDER / FILE), "--ids", ",".join(map(str, ids)), "--temperature", "0",
            "--tokens", str(options.tokens), "--json", *flags.split()]  # fmt: skip
    ran = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    if ran.returncode:
        sys.exit(ran.stderr)
    found = json.loads(ran.stdout)
    return found["first_token_seconds"], found["seconds"] - found["first_token_seconds"], len(found["ids"])


@functools.cache
def of_transformers(implementation):
    import torch
    from transformers import AutoModelForCausalLM

    if implementation == "attn":
        import attn.transformers  # noqa: F401
    return AutoModelForCausalLM.from_pretrained(
        FOLDER, gguf_file=FILE, dtype=torch.float32, attn_implementation=implementation
    ).eval()


def transformers(implementation, options, ids, threads):
    """A bare loop over the model, without what generate() does around it."""
    import torch

    torch.set_num_threads(threads)
    model, token = of_transformers(implementation), torch.tensor([ids])
    with torch.inference_mode():
        start, past = time.perf_counter(), None
        for i in range(options.tokens):
            out = model(token, past_key_values=past, use_cache=True, logits_to_keep=1)
            token, past = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
            if i == 0:
                first = time.perf_counter() - start
    return first, time.perf_counter() - start - first, options.tokens


@functools.cache
def of_llama(threads, context):
    import llama_cpp

    return llama_cpp.Llama(str(FOLDER / FILE), n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)


def llama(options, ids, threads):
    model = of_llama(threads, max(map(int, options.prompts.split(","))) + options.tokens + 1)
    model.reset()
    start, first, count = time.perf_counter(), 0.0, 0
    for _ in model.generate(ids, temp=0.0, top_k=1, reset=False):
        count += 1
        if count == 1:
            first = time.perf_counter() - start
        if count == options.tokens:
            break
    return first, time.perf_counter() - start - first, count


WAYS = {
    "attn-float32": functools.partial(attn, "--weights float32"),
    "attn-bfloat16": functools.partial(attn, "--weights bfloat16 --precision medium --cache bfloat16"),
    "attn-int8": functools.partial(attn, "--weights int8 --precision medium --cache bfloat16"),
    "transformers-sdpa": functools.partial(transformers, "sdpa"),
    "transformers-attn": functools.partial(transformers, "attn"),
    "llama.cpp": llama,
}


def prompt_of(count):
    import llama_cpp

    vocabulary = llama_cpp.Llama(str(FOLDER / FILE), vocab_only=True, verbose=False)
    ids = vocabulary.tokenize((TEXT * (count // 8 + 1)).encode(), add_bos=False)
    return ids[:count]


def cell(rates):
    """The median of each round's rate, and the least and the most."""
    digits = 0 if statistics.median(rates) >= 200 else 1
    texts = [f"{rate:.{digits}f}" for rate in (statistics.median(rates), min(rates), max(rates))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})" if len(rates) > 1 else texts[0]


def main():
    options = arguments()
    who = options.who.split(",")
    print("| prompt | threads | tokens | " + " | ".join(who) + " |")
    print("|--:|--:|" + "---|" * (1 + len(who)))
    for count in map(int, options.prompts.split(",")):
        ids = prompt_of(count)
        for threads in map(int, options.threads.split(",")):
            found = {one: [] for one in who}
            for _ in range(options.rounds):
                for one in who:
                    first, rest, made = WAYS[one](options, ids, threads)
                    found[one].append((count / first, (made - 1) / rest if made > 1 else 0))
            for i, tokens in enumerate(("of the prompt", "new")):
                cells = [cell([rates[i] for rates in found[one]]) for one in who]
                print(f"| {count} | {threads} | {tokens} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
