"""Times linear_attention(), this library's causal softmax attention, and transformers' functions in turns.

    cmake --build --preset default --target bench_linear_attention
    python3 bench/linear_attention.py [--threads 1] [--heads 8] [--tokens 1024 4096 16384] [--rounds 3]

The gated delta rule with 128 columns a head. Times are of the processor, over the threads, and the least of all rounds
counts: other work on the machine only adds to a time. The softmax and transformers are left out beyond 4,096 and 16,384
tokens. Shares are of the multiply-adds that this processor does out of registers, by 7 d² operations a token forward and
16 d² + 11 · 32 d backward.
"""
import argparse
import os
import re
import subprocess
import time

PROGRAM = os.path.join(os.path.dirname(__file__), "../build/default/tests/bench_linear_attention")


def ours(tokens, heads, rule, threads):
    command = [PROGRAM, str(tokens), str(heads), "128", rule, "3"]
    text = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    found = re.findall(r"(\w+) ([\d.]+) ms, ([\d.]+) GFLOP/s, \d+ % of (\d+)", text)
    return {rule + " " + what: (float(ms), float(rate), float(limit)) for what, ms, rate, limit in found}


def transformers(tokens, heads, threads):
    import torch
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    torch.set_num_threads(threads)
    q, k = (torch.nn.functional.normalize(torch.randn(1, tokens, heads, 128), dim=-1) for _ in range(2))
    v, g, beta = torch.randn(1, tokens, heads, 128), -torch.rand(1, tokens, heads) / 10, torch.rand(1, tokens, heads)
    inputs = [x.requires_grad_() for x in (q, k, v, g, beta)]
    with torch.no_grad():
        begin = time.process_time()
        torch_chunk_gated_delta_rule(*inputs)
        forward = time.process_time() - begin
    begin = time.process_time()
    torch_chunk_gated_delta_rule(*inputs)[0].sum().backward()
    both = time.process_time() - begin
    scale = 1e3 / threads
    return {"transformers forward": (forward * scale, 0, 0), "transformers both": (both * scale, 0, 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for tokens in options.tokens:
        best, limit = {}, 1
        for _ in range(options.rounds):
            times = {}
            for rule in ["gated", "channel"] + (["softmax"] if tokens <= 4096 else []):
                times |= ours(tokens, options.heads, rule, options.threads)
            times |= transformers(tokens, options.heads, options.threads) if tokens <= 16384 else {}
            for name, (ms, rate, of) in times.items():
                limit = max(limit, of)
                if name not in best or ms < best[name][0]:
                    best[name] = ms, rate
        print(f"{tokens} tokens, {options.heads} heads, {options.threads} threads; multiply-adds {limit:.0f} GFLOP/s")
        for name, (ms, rate) in best.items():
            print(f"  {name:22} {ms:9.1f} ms" + (f"  {100 * rate / limit:3.0f} %" if rate else ""))


if __name__ == "__main__":
    main()
