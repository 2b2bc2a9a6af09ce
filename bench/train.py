"""A training step beside PyTorch's: tokens a second and peak memory, in turns.

    python3 bench/train.py [--attn build/default/attn] [--rounds 3] [--steps 6] [--threads N] [--unit avx2] [--precision highest]
                           [--json]

Needs PyTorch (`pip install torch`). The model is GPT-2's block, 6 layers, 6 heads, 384 wide, 256 tokens of context,
16 texts a step, 256 tokens in the vocabulary; AdamW, clipping. PyTorch runs it in eager mode with its own attention
operator (tests/golden/torch_gpt.py), under autocast for bfloat16; attn by `attn train`, --precision medium for
bfloat16. Each row has both at the precision of one name, float32 once more at `high`: on AMX attn multiplies three pairs
of bfloat16 parts then, where float32 takes six, and PyTorch what torch.set_float32_matmul_precision("high") gives (in
2.15 on a CPU without TF32: float32). --unit holds both to one instruction set, as bench/compare.py does. Each round
starts every program anew, on as many cores as it has threads; a program's rate is that of its fastest step, the first
one left out; memory is the process's peak resident size, of which `base` was there before the model (imports).
"""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from units import UNITS, environment, pinned

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = {"layers": 6, "heads": 6, "width": 384, "context": 256}
BATCH, VOCAB = 16, 256
WORDS = {"highest": "float32", "high": "float32 high", "medium": "bfloat16"}


def peak_megabytes(who=resource.RUSAGE_SELF):
    return resource.getrusage(who).ru_maxrss / 1024


def run_torch(precision, steps, threads):
    """In a process of its own: prints one JSON object."""
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    import torch
    from torch_gpt import GPT, FastAttention, optimizer

    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high" if precision == "high" else "highest")
    base = peak_megabytes()
    model = GPT(VOCAB, attention=FastAttention, **MODEL).draw(1337).train()
    adamw = optimizer(model, 0.1, lr=1e-3, betas=(0.9, 0.95))
    seconds = []
    for _ in range(steps):
        text = torch.randint(0, VOCAB, (BATCH, MODEL["context"] + 1))
        start = time.perf_counter()
        adamw.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "medium"):
            loss = model(text[:, :-1].contiguous(), text[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"version": torch.__version__, "seconds": seconds, "peak": peak_megabytes(), "base": base}))


def bound(options):
    """What a program of either kind is started with."""
    return {"stdout": subprocess.PIPE, "text": True, "preexec_fn": pinned(options.threads),
            "env": environment(options.unit, options.threads, pages="")}


def measure_torch(precision, options):
    command = [sys.executable, __file__, "--peer", precision, "--steps", str(options.steps), "--threads",
               str(options.threads)]
    return json.loads(subprocess.run(command, check=True, **bound(options)).stdout)


def measure_attn(precision, options):
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_bytes(random.Random(1).randbytes(200_000))
        command = [options.attn, "train", "--text", str(text), "--out", folder + "/m.safetensors", "--json",
                   "--log-every", "1", "--steps", str(options.steps), "--batch", str(BATCH), "--eval-every", "1000000",
                   "--save-every", "1000000", "--precision", precision]
        for name, value in MODEL.items():
            command += ["--" + name, str(value)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **bound(options))
        times = [json.loads(line)["seconds"] for line in process.stdout]
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit("attn train failed")
    # The last line comes after the measurement at the end.
    return {"seconds": [b - a for a, b in zip(times, times[1:])][:-1], "peak": usage.ru_maxrss / 1024, "base": 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn", default=str(ROOT / "build" / "default" / "attn"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--unit", default="", choices=["", *UNITS], help="instructions that both may use; default: all")
    parser.add_argument("--precision", choices=WORDS, help="a row alone; default: all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 3:
        parser.error(f"--steps: expected at least 3, as attn's last and PyTorch's first are left out; found {options.steps}")
    if options.peer:
        return run_torch(options.peer, options.steps, options.threads)
    tokens = BATCH * MODEL["context"]
    precisions = [options.precision] if options.precision else list(WORDS)
    results = {}
    for _ in range(options.rounds):
        for precision in precisions:
            for name, measure in (("attn", measure_attn), ("torch", measure_torch)):
                result = measure(precision, options)
                best = results.setdefault((name, precision), {"rate": 0, "peak": 0, "base": result["base"]})
                seconds = result["seconds"] if name == "attn" else result["seconds"][1:]
                best["rate"] = max(best["rate"], tokens / min(seconds))
                best["peak"] = max(best["peak"], result["peak"])
                best["version"] = result.get("version", "")
    if not options.json:
        print("| precision | attn tokens/s | PyTorch %s tokens/s | ratio | attn peak MB | PyTorch peak MB (base) |"
              % results["torch", precisions[0]]["version"])
        print("|---|---|---|---|---|---|")
    for precision in precisions:
        words = WORDS[precision]
        ours, theirs = results["attn", precision], results["torch", precision]
        row = {"precision": words, "threads": options.threads, "attn": ours["rate"], "torch": theirs["rate"],
               "ratio": ours["rate"] / theirs["rate"], "attn_peak_mb": ours["peak"], "torch_peak_mb": theirs["peak"],
               "torch_base_mb": theirs["base"], "torch_version": theirs["version"]}
        if options.json:
            print(json.dumps(row))
        else:
            print("| %s | %.0f | %.0f | %.2f | %.0f | %.0f (%.0f) |" % (words, ours["rate"], theirs["rate"], row["ratio"],
                                                                     ours["peak"], theirs["peak"], theirs["base"]))


if __name__ == "__main__":
    main()
