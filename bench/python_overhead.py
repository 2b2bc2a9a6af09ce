"""What a call costs from Python, beside PyTorch's own: python bench/python_overhead.py [--threads N]

Small shapes say what the call itself costs; large ones how fast the kernels are from there. Both take turns in one run;
the smallest of the times counts. Needs attn, torch and numpy.
"""

import argparse
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F

import attn
import attn.torch

SMALL = [(1, 1, 6, 2), (2, 2, 6, 16), (1, 12, 16, 64)]
LARGE = [(1, 12, 1024, 64), (1, 8, 4096, 128)]


def seconds(call, least):
    """One measurement: as many calls as take `least` seconds, per call."""
    count, spent = 1, 0.0
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - start
        if spent >= least:
            return spent / count
        count = max(count + 1, int(count * min(10, 1.2 * least / max(spent, 1e-9))))


def compare(calls, rounds, least):
    for call in calls.values():
        call()
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, least))
    return {name: (min(t), statistics.median(t)) for name, t in times.items()}


def calls_for(shape, dtype):
    q, k, v = (torch.randn(shape, dtype=dtype) for _ in range(3))
    with_grad = [t.clone().requires_grad_() for t in (q, k, v)]
    d_output = torch.randn(shape, dtype=dtype)

    def train(f):
        torch.autograd.grad(f(*with_grad, is_causal=True), with_grad, d_output)

    calls = {
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "attn.torch": lambda: attn.torch.scaled_dot_product_attention(q, k, v, is_causal=True),
        "torch, with gradients": lambda: train(F.scaled_dot_product_attention),
        "attn.torch, with gradients": lambda: train(attn.torch.scaled_dot_product_attention),
    }
    if dtype == torch.float32:
        a, b, c = (t.numpy() for t in (q, k, v))
        calls["attn, NumPy"] = lambda: attn.scaled_dot_product_attention(a, b, c, is_causal=True)
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each measurement")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)  # one OpenMP for both: attn follows
    print(f"attn {attn.__version__}, torch {torch.__version__}, numpy {np.__version__}, {flags.threads} thread(s)")
    print("causal; µs a call (median), of torch's time\n")
    print("| shape | dtype | call | µs | (median) | × torch |\n|---|---|---|---|---|---|")
    for shape in SMALL + LARGE:
        for dtype in (torch.float32, torch.bfloat16):
            results = compare(calls_for(shape, dtype), flags.rounds, flags.seconds)
            for name, (least, median) in results.items():
                base = results["torch, with gradients" if "gradients" in name else "torch"][0]
                label = "" if name.startswith("torch") else f"{least / base:.2f}"
                print(f"| {shape} | {str(dtype)[6:]} | {name} | {least * 1e6:.1f} | {median * 1e6:.1f} | {label} |")


if __name__ == "__main__":
    main()
