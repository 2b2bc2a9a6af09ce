#!/usr/bin/env python3
"""Times released models in `attn generate`, transformers and llama.cpp, in turns: loading, a prompt, new tokens, memory.

    make smollm2
    pip install torch transformers gguf accelerate llama-cpp-python .
    bench/models.py --attn build/default/attn
    bench/models.py other.gguf --prompts 16,512 --threads 1 --who attn-float32,attn-int8,llama.cpp --rounds 1

Without files, the models are those of build/smollm2 and build/others that are there. All read the same GGUF file and the
same tokens, take the likeliest one, and run in a process of their own each time. attn and transformers make float32 (or
bfloat16, or int8) of its quantised weights, attn-file and llama.cpp multiply them as they are. Figures are medians of
the rounds, with the least and the most: of seconds until the model is loaded (of attn those of the whole process but the generation), of
tokens a second of the prompt until the first new token, and of the new tokens after that; and the most memory that a
process held, in MB, its programs and libraries among it.
attn-bfloat16, attn-int8 and attn-file are at medium precision, attn-file-high is at high, all with keys and values in
bfloat16 (llama.cpp's are in float16).
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"
MODELS = [BUILD / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf", BUILD / "others" / "gemma-3-270m-q4_k_m.gguf"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="*", help="GGUF files; default: SmolLM2 and Gemma 3 270M, where they are")
    parser.add_argument("--attn", default="attn", help="the command; default: attn of PATH")
    parser.add_argument("--prompts", default="16,512,4096", help="their tokens; default: 16,512,4096")
    parser.add_argument("--tokens", type=int, default=128, help="new ones, two or more; default: 128")
    parser.add_argument("--threads", default="1,2", help="default: 1,2")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--who", default=",".join(WAYS), help=f"default: {','.join(WAYS)}")
    parser.add_argument("--one", choices=WAYS, help="runs one of them in this process, as the program starts itself")
    return parser.parse_args()


def seconds_of(steps, tokens, start, loaded):
    """Takes the first `tokens` of what makes one a step."""
    first, count = 0.0, 0
    for _ in steps:
        count += 1
        first = first or time.perf_counter() - loaded
        if count == tokens:
            break
    return {"load": loaded - start, "first": first, "rest": time.perf_counter() - loaded - first, "count": count}


def transformers(implementation, file, ids, tokens, threads):
    """A bare loop over the model, without what generate() does around it."""
    import torch
    from transformers import AutoModelForCausalLM

    if implementation == "attn":
        import attn.transformers  # noqa: F401
    torch.set_num_threads(threads)
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32, attn_implementation=implementation
    ).eval()
    loaded = time.perf_counter()

    def steps():
        token, past = torch.tensor([ids]), None
        while True:
            out = model(token, past_key_values=past, use_cache=True, logits_to_keep=1)
            token, past = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
            yield token

    with torch.inference_mode():
        return seconds_of(steps(), tokens, start, loaded)


def llama(file, ids, tokens, threads):
    import llama_cpp

    start = time.perf_counter()
    model = llama_cpp.Llama(str(file), n_ctx=len(ids) + tokens + 1, n_threads=threads, n_threads_batch=threads,
                            verbose=False)  # fmt: skip
    loaded = time.perf_counter()
    return seconds_of(model.generate(ids, temp=0.0, top_k=1, reset=False), tokens, start, loaded)


HERE = {
    "transformers-sdpa": functools.partial(transformers, "sdpa"),
    "transformers-attn": functools.partial(transformers, "attn"),
    "llama.cpp": llama,
}
MODULES = {
    "transformers-sdpa": ["torch", "transformers", "gguf", "accelerate"],
    "transformers-attn": ["torch", "transformers", "gguf", "accelerate", "attn"],
    "llama.cpp": ["llama_cpp"],
}
FLAGS = {
    "attn-float32": "--weights float32",
    "attn-bfloat16": "--weights bfloat16 --precision medium --cache bfloat16",
    "attn-int8": "--weights int8 --precision medium --cache bfloat16",
    "attn-file": "--weights file --precision medium --cache bfloat16",
    "attn-file-high": "--weights file --precision high --cache bfloat16",
}
WAYS = [*FLAGS, *HERE]


def run(line, threads):
    """What a process prints, its seconds, and the most memory that it held, in MB."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, text=True, env=environment)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), errors.seek(0)
        if child.returncode:
            sys.exit(f"{' '.join(line)[:200]}\nended by {child.returncode}: {errors.read()[-2000:]}")
        text = out.read()
        return json.loads(text[text.index("{") :]), seconds, used.ru_maxrss / 1000


def measured(who, options, file, count, threads):
    """(seconds to load, tokens a second of the prompt, and of the new ones, MB) of one run."""
    if who in FLAGS:
        line = [options.attn, "generate", "--model", str(file), "--ids", ",".join(map(str, prompt(count))),
                "--temperature", "0", "--tokens", str(options.tokens), "--json", *FLAGS[who].split()]  # fmt: skip
        found, seconds, memory = run(line, threads)
        first, rest, made = found["first_token_seconds"], found["seconds"] - found["first_token_seconds"], len(found["ids"])
        load = seconds - found["seconds"]
    else:
        line = [sys.executable, __file__, str(file), "--one", who, "--prompts", str(count), "--threads", str(threads),
                "--tokens", str(options.tokens)]  # fmt: skip
        found, _, memory = run(line, threads)
        load, first, rest, made = found["load"], found["first"], found["rest"], found["count"]
    return load, count / first, (made - 1) / rest if made > 1 else 0.0, memory


def prompt(count):
    """Tokens that every vocabulary of released models has: speed does not depend on which."""
    return [1000 + 37 * i % 997 for i in range(count)]


def available(who):
    missing = [name for name in MODULES.get(who, []) if importlib.util.find_spec(name) is None]
    if missing:
        print(f"{who} is left out: Python finds no {' and no '.join(missing)}", file=sys.stderr)
    return not missing


def cell(values):
    """The median of the rounds, and the least and the most."""
    middle = statistics.median(values)
    digits = 0 if middle >= 200 else 1 if middle >= 10 else 2
    texts = [f"{value:.{digits}f}" for value in (middle, min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})" if len(values) > 1 else texts[0]


def main():
    options = arguments()
    files = [pathlib.Path(file) for file in options.files] or [file for file in MODELS if file.exists()]
    if not files:
        sys.exit(f"[models.py] expected a GGUF file; found none; name one, or run make smollm2, which makes {MODELS[0]}")
    if options.one:
        count, threads = int(options.prompts), int(options.threads)
        print(json.dumps(HERE[options.one](files[0], prompt(count), options.tokens, threads)))
        return
    who = [one for one in options.who.split(",") if available(one)]
    print("| model | prompt | threads | who | loaded, s | prompt, tokens/s | new, tokens/s | memory, MB |")
    print("|---|--:|--:|---|---|---|---|---|")
    for file in files:
        for count in map(int, options.prompts.split(",")):
            for threads in map(int, options.threads.split(",")):
                found = {one: [] for one in who}
                for _ in range(options.rounds):
                    for one in who:
                        found[one].append(measured(one, options, file, count, threads))
                for one in who:
                    cells = " | ".join(cell(values) for values in zip(*found[one], strict=True))
                    print(f"| {file.stem} | {count} | {threads} | {one} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
