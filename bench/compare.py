#!/usr/bin/env python3
"""Times `attn` and its peers on the same shapes, in turns, and prints the ratios.

    bench/compare.py --attn build/default/attn
    bench/compare.py --attn build/default/attn --save result.json
    bench/compare.py --filter 'forward f32' --threads 1 --repeats 3

Needs torch; onnx and onnxruntime where they are to be compared. Rows of one op are one round: `attn bench` times all
of them, then each peer does, and the next round begins. What is reported is the median of the rounds.
"""

import argparse
import datetime
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

SAMPLE = 0.01  # seconds: shorter calls are repeated for so long, as `attn bench` does


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="The shapes are those of attn bench; see attn bench --help.")
    parser.add_argument("--attn", default="attn", help="the command; default: attn of PATH")
    parser.add_argument("--list", help="rows to time; default: shapes.txt beside this program")
    parser.add_argument("--filter", default="", help="only rows that hold every word of this text")
    parser.add_argument("--threads", default="1,all", help="counts joined by commas; default: 1,all")
    parser.add_argument("--isa", help="instruction set of attn; default: the fastest")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; default: 5")
    parser.add_argument("--no-flex", action="store_true", help="leave out flex_attention, which compiles for minutes")
    parser.add_argument("--save", metavar="FILE", help="write the result as JSON, as bench/page.py reads it")
    return parser.parse_args()


# ---- timing ---------------------------------------------------------------------------


def seconds_of(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def sample(call):
    """Milliseconds of a call, by the rule of `attn bench`: short calls warm up and are repeated."""
    expected = seconds_of(call, 1)
    if expected < SAMPLE / 100:
        expected = seconds_of(call, 100)
    if expected > 0.2:
        return expected * 1e3
    return seconds_of(call, max(1, math.ceil(SAMPLE / expected))) * 1e3


def attn_bench(options, *more):
    """The objects that `attn bench --json` prints."""
    line = [options.attn, "bench", "--json", *more]
    if options.isa:
        line += ["--isa", options.isa]
    ran = subprocess.run(line, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{shlex.join(line)}\n{ran.stderr}")
    return [json.loads(each) for each in ran.stdout.splitlines()]


class Results:
    """Samples by (row, threads, who), limits, and what was not run."""

    def __init__(self):
        self.rows, self.samples, self.attn, self.limits, self.not_run = [], {}, {}, {}, {}

    def add(self, row, threads, who, ms):
        self.samples.setdefault((row.key(), threads, who), []).append(ms)

    def median(self, row, threads, who):
        samples = self.samples.get((row.key(), threads, who))
        return statistics.median(samples) if samples else None

    def limit(self, entry):
        """Keeps the best that was seen of each of the machine's limits."""
        key = (entry["threads"], entry["bound"])
        self.limits[key] = max(self.limits.get(key, 0), entry["limit"])

    def peers(self, row, threads):
        return [who for key, count, who in self.samples if (key, count) == (row.key(), threads) and who != "attn"]

    def rate(self, row, threads):
        """GFLOP/s (GB/s where reads are the bound) and the share of the limit."""
        facts, ms = self.attn[row.key(), threads], self.median(row, threads, "attn")
        rate = facts["gbps" if facts["bound"] == "read" else "gflops"] * facts["ms"] / ms
        limit = self.limits.get((threads, facts["bound"])) or self.limits[threads, "f32"]
        return rate, rate / limit


def rows_of(options):
    """The rows of the list that have every word of the filter."""
    from peers import Row
    rows = []
    with open(options.list or os.path.join(os.path.dirname(__file__), "shapes.txt")) as file:
        for line in file:
            words = line.split("#")[0].split()
            words += ["none", "highest"][len(words) - 3:] if words else []
            text = " ".join(words)
            if words and all(word in text for word in options.filter.split()):
                rows.append(Row(dict(zip(("op", "shape", "dtype", "mask", "precision"), words))))
    return rows or sys.exit(f"no row with {options.filter!r}")


def prepare(row, threads, options, results):
    """{peer: call}; those that cannot are noted with the reason."""
    from peers import NotRun, peers_for
    calls = {}
    for who, make in peers_for(row, not options.no_flex).items():
        try:
            call = make(row, threads)
            call()
            calls[who] = call
        except Exception as error:  # a peer may fail in any way; the page says how
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = lines[0] if isinstance(error, NotRun) else f"{type(error).__name__}: {lines[0][:150]}"
            results.not_run.setdefault((who, reason), []).append(row)
    return calls


def measure_group(rows, threads, options, results):
    """All rows of one op, in turns."""
    import torch
    from peers import Row
    torch.set_num_threads(threads)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(" ".join(row.key()) + "\n" for row in rows)  # attn checks them
        file.flush()
        calls = {row.key(): prepare(row, threads, options, results) for row in rows}
        for turn in range(options.repeats):
            say(f"{rows[0].op}, {threads}: {turn + 1}/{options.repeats}")
            for entry in attn_bench(options, "--repeats", "1", "--threads", str(threads), "--list", file.name):
                if entry["op"] == "limit":
                    results.limit(entry)
                    continue
                row = next(r for r in rows if r.key() == Row(entry).key())
                results.attn[row.key(), threads] = entry
                results.add(row, threads, "attn", entry["ms"])
            for row in rows:
                for who, call in calls[row.key()].items():
                    results.add(row, threads, who, sample(call))


def measure(rows, counts, options):
    results = Results()
    results.rows = rows
    for op in dict.fromkeys(row.op for row in rows):
        for threads in counts:
            measure_group([row for row in rows if row.op == op], threads, options, results)
    say("")
    return results


def say(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# ---- the machine ----------------------------------------------------------------------


def processor():
    with open("/proc/cpuinfo") as file:
        return next((line.split(": ")[1].strip() for line in file if line.startswith("model name")), "unknown")


def usable_threads():
    return len(os.sched_getaffinity(0))


def thread_counts(text):
    counts = [usable_threads() if each == "all" else int(each) for each in text.split(",")]
    return list(dict.fromkeys(counts))


# ---- results as text ------------------------------------------------------------------


def time_text(ms):
    value, unit = (ms * 1e3, "µs") if ms < 1 else (ms, "ms") if ms < 1e3 else (ms / 1e3, "s")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def threads_text(threads):
    return f"{threads} thread" + ("s" if threads > 1 else "")


def report(results, counts):
    lines = []
    for row in results.rows:
        for threads in counts:
            ours = results.median(row, threads, "attn")
            rate, share = results.rate(row, threads)
            lines.append(f"{' '.join(row.key())}, {threads_text(threads)}")
            lines.append(f"  {'attn':24}{time_text(ours):>10}  {rate:8.1f}  {share:4.0%} of the limit")
            for who in results.peers(row, threads):
                theirs = results.median(row, threads, who)
                lines.append(f"  {who:24}{time_text(theirs):>10}  {theirs / ours:7.2f}×")
    lines += ["", "Times are medians; × is a peer's time in attn's. Not run (rows):"]
    lines += [f"  {who}: {reason} ({len(rows)})" for (who, reason), rows in results.not_run.items()]
    return "\n".join(lines)


def save(results, counts, versions, options):
    """What bench/results holds of a machine, but for its tables."""
    columns = ("op", "shape", "dtype", "mask", "precision")
    rows = []
    for row in results.rows:
        for threads in counts:
            rate, share = results.rate(row, threads)
            ms = {who: round(results.median(row, threads, who), 6) for who in ["attn", *results.peers(row, threads)]}
            rows.append(dict(zip(columns, row.key())) |
                        {"threads": threads, "ms": ms, "rate": round(rate, 1), "share": round(share, 2)})
    limits = {}
    for (threads, bound), limit in results.limits.items():
        limits.setdefault(str(threads), {})[bound] = round(limit, 1)
    isa = next(iter(results.attn.values()))["isa"]
    names = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
    result = {"machine": processor(), "kind": isa, "isa": isa, "threads": usable_threads(),
              "date": datetime.date.today().isoformat(), "rounds": options.repeats,
              "peers": {names.get(name, name): version for name, version in versions.items()}, "limits": limits,
              "rows": rows}
    with open(options.save, "w") as file:
        json.dump(result, file, indent=1, ensure_ascii=False)


def main():
    options = arguments()
    try:
        import peers
    except ImportError as error:
        sys.exit(f"compare.py needs PyTorch: pip install torch ({error})")
    counts = thread_counts(options.threads)
    rows = rows_of(options)
    results = measure(rows, counts, options)
    print(report(results, counts))
    if options.save:
        save(results, counts, peers.versions(), options)


if __name__ == "__main__":
    main()
