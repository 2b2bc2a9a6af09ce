#!/usr/bin/env python3
"""Times `attn` and its peers on the same shapes, in turns, and prints the ratios.

    bench/compare.py --attn build/default/attn
    bench/compare.py --attn build/default/attn --markdown docs/benchmarks.md
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
    parser.add_argument("--isas", default="", help="also run attn alone with these instruction sets, for the page")
    parser.add_argument("--markdown", metavar="FILE", help="write a page with the result")
    parser.add_argument("--save", metavar="FILE", help="write every sample as JSON")
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


def dtype_text(dtype, precision):
    return dtype if precision == "highest" else f"{dtype} {precision}"


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


def markdown_table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def op_table(results, op, threads):
    rows = [row for row in results.rows if row.op == op]
    peers = list(dict.fromkeys(who for row in rows for who in results.peers(row, threads)))
    unit = "GB/s" if results.attn[rows[0].key(), threads]["bound"] == "read" else "GFLOP/s"
    body = []
    for row in rows:
        ours = results.median(row, threads, "attn")
        rate, share = results.rate(row, threads)
        dtype = dtype_text(row.dtype, row.precision)
        cells = [row.shape, dtype, row.mask, time_text(ours), f"{rate:.1f}", f"{share:.0%}"]
        for who in peers:
            theirs = results.median(row, threads, who)
            cells.append("–" if theirs is None else f"{time_text(theirs)} ({theirs / ours:.2f}×)")
        body.append(cells)
    return markdown_table(["shape", "dtype", "mask", "attn", unit, "share", *peers], body)


def ratios_table(results, counts):
    """Of the fastest peer's time to attn's: the smallest and the median over the rows of an op and dtype."""
    ratios = {}
    for row in results.rows:
        for threads in counts:
            theirs = [results.median(row, threads, who) for who in results.peers(row, threads)]
            if theirs:
                ratio = min(theirs) / results.median(row, threads, "attn")
                ratios.setdefault((row.op, row.dtype, threads_text(threads)), []).append(ratio)
    body = [[*key, str(len(each)), f"{min(each):.2f}×", f"{statistics.median(each):.2f}×"]
            for key, each in ratios.items()]
    return markdown_table(["op", "dtype", "threads", "rows", "smallest", "median"], body)


def limits_table(results, counts):
    names = {"f32": "float32 multiply-adds, GFLOP/s", "bf16": "bf16 multiply-adds, GFLOP/s", "read": "reads, GB/s"}
    kinds = [kind for kind in names if any(bound == kind for _, bound in results.limits)]
    body = [[names[kind], *(f"{results.limits.get((n, kind), float('nan')):.1f}" for n in counts)] for kind in kinds]
    return markdown_table(["limit", *(threads_text(n) for n in counts)], body)


def isa_tables(options):
    """attn alone, forced to each of --isas."""
    lines = []
    for isa in filter(None, options.isas.split(",")):
        chosen = argparse.Namespace(attn=options.attn, isa=isa)
        flags = ["--list", options.list] if options.list else []
        flags += ["--filter", options.filter] if options.filter else []
        entries = attn_bench(chosen, "--repeats", str(options.repeats), "--threads", "1", *flags)
        limits = [e for e in entries if e["op"] == "limit"]
        entries = [e for e in entries if e["op"] != "limit"]
        told = ", ".join(f"{e['limit']:.1f} {'GB/s of reads' if e['bound'] == 'read' else 'GFLOP/s'}" for e in limits)
        body = [[e["op"], e["shape"], dtype_text(e["dtype"], e["precision"]), e["mask"], time_text(e["ms"]),
                 f"{e['gbps'] or e['gflops']:.1f}", f"{e['share']:.0%}",
                 f"{e['plain_ms'] / e['ms']:.2f}×" if e["plain_ms"] else "–"] for e in entries]
        header = ["op", "shape", "dtype", "mask", "attn", "GFLOP/s or GB/s", "share", "plain path"]
        lines += ["", f"## {isa}, one thread, without peers", "", f"Limits: {told}.", "", *markdown_table(header, body)]
    return lines


def page(results, counts, versions, options):
    isa = next(iter(results.attn.values()))["isa"]
    lines = [
        "# Benchmarks", "",
        "Made by a command; do not edit:", "", "```sh", shlex.join([os.path.relpath(sys.argv[0])] + sys.argv[1:]),
        "```", "",
        f"- machine: {processor()}, {usable_threads()} threads; attn used {isa}",
        f"- date: {datetime.date.today().isoformat()}",
        "- peers: " + ", ".join(f"{name} {version}" for name, version in versions.items()), "",
        f"Times are medians of {options.repeats} rounds, in which attn and its peers took turns; in brackets a peer's "
        "time in attn's: above 1 attn is faster. GFLOP/s count a causal mask half and a backward pass as 2.5 forward "
        "passes; share is of the limit below. decode reads keys and values that come from memory, cache the same from "
        "a KVCache. training is forward and backward; module is MultiHeadAttention with its projections, beside the "
        "ways of the book's chapter 3 on PyTorch; high and medium are PyTorch's with its float32_matmul_precision.",
        "", *limits_table(results, counts), "", "## Against the fastest peer of each row", "",
        *ratios_table(results, counts),
    ]
    for op in dict.fromkeys(row.op for row in results.rows):
        for threads in counts:
            lines += ["", f"## {op}, {threads_text(threads)}", "", *op_table(results, op, threads)]
    lines += isa_tables(options)
    lines += ["", "## Not run", ""]
    for (who, reason), rows in results.not_run.items():
        texts = dict.fromkeys(" ".join(row.key()) for row in rows)
        lines.append(f"- {who}: {reason}: " + "; ".join(texts))
    if options.no_flex:
        lines.append("- PyTorch flex: left out by --no-flex")
    return "\n".join(lines) + "\n"


def save(results, path):
    columns = ("op", "shape", "dtype", "mask", "precision")
    samples = [dict(zip(columns, key)) | {"threads": threads, "who": who, "ms": ms}
               for (key, threads, who), ms in results.samples.items()]
    with open(path, "w") as file:
        json.dump(samples, file, indent=1)


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
        save(results, options.save)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(page(results, counts, peers.versions(), options))


if __name__ == "__main__":
    main()
