#!/usr/bin/env python3
"""Makes docs/benchmarks.md and docs/benchmarks.svg from the machines in bench/results.

    make smollm2
    pip install torch transformers onnx onnxruntime gguf accelerate llama-cpp-python .
    bench/page.py               # measures this machine first: 45 minutes, in which it should do nothing else
    bench/page.py --unit all    # instead each instruction set that the machine has, beside peers that are held to it
    bench/page.py --draw        # only writes the page and the plot anew

The rows are those of bench/headline.txt, and with --unit those of bench/processors.txt. A machine's file is named by its
processor and its unit.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import plot
from figures import ratio, ratio_text, threads_text, time_text
from units import UNITS

HERE = pathlib.Path(__file__).resolve().parent
RESULTS, DOCS = HERE / "results", HERE.parent / "docs"
PER_UNIT = RESULTS / "units"  # what was measured with --unit

INTRO = """# Benchmarks

One command measures the machine that it runs on, and makes this page and its plot. With `--draw` it only makes the
page and the plot, of what was measured before:

<!-- not run: this takes 45 minutes on a machine that does nothing else -->
```sh
bench/page.py
```

The five rows of the table in README are those of `bench/readme.txt`. This command measures them, as medians of three
rounds in which attn and PyTorch took turns:

<!-- not run: it needs PyTorch, and a machine that does nothing else -->
```sh
bench/compare.py --attn build/default/attn --list bench/readme.txt --no-flex --threads all --repeats 3
```

`--unit avx2`, or `avx512`, `avx512bf16`, `amx`, several of these or `all`, holds attn and PyTorch with its libraries to
the same instructions, by `ATEN_CPU_CAPABILITY`, `ONEDNN_MAX_CPU_ISA` and `MKL_ENABLE_INSTRUCTIONS`. MKL heeds the last
one on Intel's processors alone, and ONNX Runtime knows no such limit and is left out.

Each unit and number of threads is measured by a process of its own, which is bound to as many cores, as is the `attn`
that it starts. In each round attn and then its peers compute all rows of a kind, in one order. A time is the median of
the rounds. A ratio is the median of the rounds' own ratios, with the least and the most of them, less a quarter at both
ends. Where that spread is wider than the ratio's distance from 1, or fewer than three rounds were run, the ratio reads
"within noise". Pages that the system must clear before a program can write them are kept from call to call, on both
sides; how fast it clears them is a row of the next table, and `--pages fresh` counts them in.

The rows of this page are in `bench/headline.txt`, and what was measured is in `bench/results`, a file for each machine
and unit. Files of two rounds are older than the spread, and than kept pages and bound cores: their ratios are of
medians. The ratio is the time of PyTorch's `scaled_dot_product_attention` divided by attn's: above 1 attn is faster.
The share compares attn's speed with the machine's own limit from the next table: multiply-adds of the type that the row
names, or reads for `decode` and `cache`. On a processor with AMX, float32 is computed as products of bf16 parts
([kernels.md](kernels.md)) and can pass the limit of float32 multiply-adds.
"""

OPS = {
    "forward": "Shapes are batch, heads, tokens, head size. Where keys have other sizes than queries, these follow a slash.",
    "training": "Forward and backward.",
    "decode": "One query against keys and values that come from memory.",
    "cache": "The same from a `KVCache`; PyTorch has none, so attn is alone.",
    "module": "`MultiHeadAttention` with its projections: batch, tokens, width, heads. PyTorch's column is the fastest of the "
              "seven of the nine modules of the book's bonus notebook for chapter 3.",
    "module-training": "The same, forward and backward.",
}

# Each program's title, its arguments, what it measures, and how many columns of its table name a row.
PROGRAMS = {
    "train.py": ("Training a GPT", ["--attn", None, "--rounds", "2"],
                 "A step of 6 layers, 6 heads, 384 wide, with 256 tokens of context and 16 texts, on two threads. PyTorch "
                 "runs in eager mode, and in bfloat16 under autocast. Memory is the peak of the process; base is what was "
                 "there before the model.", 1),
    "generate.py": ("Generating with a cache", ["--attn", None],
                    "Milliseconds a token of random models in GPT-2's format. The ratio is the time of the faster of "
                    "transformers' `generate()` and a bare loop over its model, divided by attn's. It cannot take "
                    "less time than reading every weight once.", 3),
    "models.py": ("Released models", ["--attn", None, "--rounds", "3"],
                  "Models of one GGUF file each. Medians of three rounds with the least and the most: seconds until the "
                  "model is loaded, tokens a second of a prompt until its first new token, and of 127 new tokens after that, "
                  "and the most memory that the process held. attn-bfloat16 and attn-int8 keep the weights in these dtypes, "
                  "and compute at medium precision with keys and values in bfloat16. transformers computes in float32, by "
                  "PyTorch's `scaled_dot_product_attention` or by attn; attn-file, at medium precision, attn-file-high, at "
                  "high, and llama.cpp multiply the quantised weights as they are. Of runs before 2026-11-25 loading and "
                  "memory were not kept, and Gemma 3 behind 4,096 tokens was timed without transformers. "
                  "[models.md](models.md#speed) says what bounds these figures.", 4),
    "python_overhead.py": ("Calls from Python", [],
                           "Microseconds a call beside PyTorch's `scaled_dot_product_attention`, causal, on one thread. "
                           "Small calls show what a call costs; below 1, attn is faster.", 3),
}

# A paragraph below a program's table tells what it measured on a machine that has no file in bench/results.
ELSEWHERE = {
    "train.py": "On two cores of an AMD Zen 3, which has AVX2 alone, the ratio in float32 is lower: 1.31, 1.23 and 1.03 on two "
                "threads, and 1.00, 1.06, 0.98, 1.11 and 1.05 on one, each by a run of `bench/train.py --precision highest` "
                "with two to four rounds, on 2026-11-26. Attn did 860 to 1,010 tokens a second on one thread and 1,700 to "
                "2,020 on two. The machine was shared, and its speed changed by a third from one minute to the next.",
}


def run(program, *arguments):
    print(program, *arguments, file=sys.stderr)
    command = [sys.executable, str(HERE / program), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(attn, unit):
    """Times this machine and writes its file, or a file for each unit."""
    what = ["--list", str(HERE / "processors.txt"), "--threads", "1", "--unit", unit] if unit else \
        ["--list", str(HERE / "headline.txt")]
    with tempfile.TemporaryDirectory() as folder:
        run("compare.py", "--attn", attn, *what, "--no-flex", "--save", f"{folder}/new.json")
        results = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).iterdir())]
    for result in results:
        result["tables"] = {}
        for program, (_, arguments, _, _) in PROGRAMS.items() if not unit else ():
            printed = run(program, *[attn if each is None else each for each in arguments])
            result["tables"][program] = [line for line in printed.splitlines() if line.startswith("|")]
        keep(result)


def keep(result):
    name = re.sub(r"[^a-z0-9]+", "-", f"{result['machine']} {result['unit'] or result['isa']}".lower()).strip("-")
    place = (PER_UNIT if result["unit"] else RESULTS) / f"{name}.json"
    if place.exists():  # measured before: its kind was written by hand
        result["kind"] = json.loads(place.read_text())["kind"]
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in result.pop("rows"))
    head = json.dumps(result, indent=1, ensure_ascii=False)
    place.write_text(head[:-2] + ',\n "rows": [\n' + rows + "\n ]\n}\n")


def key_of(row):
    return row["op"], row["shape"], row["dtype"], row["mask"], row["precision"]


def label_of(key):
    op, shape, dtype, mask, precision = key
    return " ".join([op, shape, dtype, *([mask] if mask != "none" else []), *([precision] if precision != "highest" else [])])


def fastest_peer(row):
    """PyTorch's fastest way, in milliseconds; None where it has none."""
    return min((ms for who, ms in row["ms"].items() if who != "attn" and not who.startswith("ONNX")), default=None)


def ratio_of(row):
    """(its number or None, its text): PyTorch's fastest way beside attn. Files of two rounds have no samples."""
    theirs = fastest_peer(row)
    if theirs is None:
        return None, "–"
    if "samples" not in row:
        return theirs / row["ms"]["attn"], f"**{theirs / row['ms']['attn']:.2f}**"
    who = next(who for who, ms in row["ms"].items() if ms == theirs)
    samples = row["samples"]["attn"], row["samples"][who]
    found = ratio(*samples)
    return found and found[0], ratio_text(*samples, form="**{:.2f}** ({:.2f}–{:.2f})")


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header), *("| " + " | ".join(row) + " |" for row in rows)]


def machines_table(machines):
    names = {"f32": "float32 multiply-adds, GFLOP/s", "bf16": "bf16 multiply-adds, GFLOP/s", "read": "reads, GB/s",
             "clear": "new pages, GB/s"}
    rows = [["kind", *(m["kind"] for m in machines)],
            ["kernels (`attn info`)", *(m["isa"] for m in machines)],
            ["measured on", *(m["date"] for m in machines)],
            ["beside PyTorch", *(m["peers"]["PyTorch"] for m in machines)]]
    for threads in ("1", "2"):
        for bound, words in names.items():
            limits = [m["limits"].get(threads, {}).get(bound) for m in machines]
            if any(limits):
                rows.append([f"{words}, {threads_text(int(threads))}", *(f"{x:g}" if x else "–" for x in limits)])
    return table(["", *(m["machine"] for m in machines)], rows)


def op_table(machines, op, threads):
    rows = {}
    for machine in machines:
        for row in machine["rows"]:
            if row["op"] == op and row["threads"] == threads:
                rows.setdefault(key_of(row), {})[machine["machine"]] = row
    if not rows:
        return []
    header = ["shape", "dtype", "mask"]
    for machine in machines:
        name = machine["machine"]
        header += [f"{name}: attn", "share", *([] if op == "cache" else ["PyTorch", "ratio"])]
    body = []
    for key, there in rows.items():
        _, shape, dtype, mask, precision = key
        cells = [shape, dtype if precision == "highest" else f"{dtype} {precision}", mask]
        for machine in machines:
            row = there.get(machine["machine"])
            if row is None:
                cells += ["–"] * (2 if op == "cache" else 4)
                continue
            cells += [time_text(row["ms"]["attn"]), f"{row['share']:.0%}"]
            if op != "cache":
                cells += [time_text(fastest_peer(row)), ratio_of(row)[1]]
        body.append(cells)
    return ["", f"### {op}, {threads_text(threads)}", "", *table(header, body)]


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def program_table(machines, program, keys):
    """What a program printed on each machine, side by side: rows of the same first `keys` cells are one row."""
    printed = {m["machine"]: [cells_of(line) for line in m["tables"].get(program, [])] for m in machines}
    printed = {machine: lines for machine, lines in printed.items() if lines}
    header, rows = [], {}
    for lines in sorted(printed.values(), key=len, reverse=True):  # the longest table tells the order
        header = header or lines[0][:keys]
        rows.update({tuple(cells[:keys]): [] for cells in lines[2:] if tuple(cells[:keys]) not in rows})
    for machine, (names, _, *body) in printed.items():
        header += [f"{machine}: {names[keys]}", *names[keys + 1:]]
        there = {tuple(cells[:keys]): cells[keys:] for cells in body}
        for key, row in rows.items():
            row += there.get(key, ["–"] * (len(names) - keys))
    return table(header, [[*key, *row] for key, row in rows.items()])


def units_section(results):
    """A table for each machine, with a column for each of its instruction sets."""
    lines = ["", "## One instruction set after the other", "",
             "`bench/page.py --unit all` measures the rows of `bench/processors.txt` on one thread, and holds attn and "
             "PyTorch to one instruction set at a time. A cell is the share of the limit of that set's multiply-adds, or of "
             "reads, and the ratio, with its spread, to PyTorch's fastest way. PyTorch's projections are MKL's, which on this "
             "AMD processor took about as long with avx512 as with avx2."]
    lines = lines[:3] + [paragraph(lines[3])]
    for machine in dict.fromkeys(result["machine"] for result in results):
        own = sorted((r for r in results if r["machine"] == machine), key=lambda r: list(UNITS).index(r["unit"]))
        rows = {}
        for place, result in enumerate(own):
            for row in result["rows"]:
                cells = rows.setdefault(key_of(row), ["–"] * len(own))
                ratio_text = ratio_of(row)[1]
                cells[place] = f"{row['share']:.0%}" + (f"; {ratio_text}" if ratio_text != "–" else "")
        limits = ", ".join(f"{r['unit']} {r['limits']['1']['f32']:g}" for r in own)
        words = f"{machine}, {own[0]['date']}, {own[0]['rounds']} rounds. Float32 multiply-adds, GFLOP/s: {limits}."
        lines += ["", paragraph(words), "", *table(["row", *(r["unit"] for r in own)],
                                                 [[label_of(key), *cells] for key, cells in rows.items()])]
    return lines


def paragraph(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def page(machines, units):
    lines = [INTRO, *machines_table(machines), ""]
    for machine in machines:
        if machine.get("note"):
            lines += [paragraph(f"{machine['machine']}: {machine['note']}"), ""]
    lines += ["![How many times as fast as PyTorch attn is, by shape](benchmarks.svg)", "", "## The operator and the module"]
    for op, words in OPS.items():
        tables = [op_table(machines, op, threads) for threads in (1, 2)]
        if any(tables):
            lines += ["", paragraph(f"**{op}.** {words}")] + [line for each in tables for line in each]
    if units:
        lines += units_section(units)
    for program, (title, _, words, keys) in PROGRAMS.items():
        if not any(m["tables"].get(program) for m in machines):
            continue
        lines += ["", f"## {title}", "", paragraph(f"`bench/{program}`. {words}"), ""]
        lines += program_table(machines, program, keys)
        if program in ELSEWHERE:
            lines += ["", paragraph(ELSEWHERE[program])]
    return "\n".join(lines) + "\n"


def picture(machines):
    ratios, labels = {m["machine"]: {} for m in machines}, {}
    for machine in machines:
        for row in machine["rows"]:
            found, _ = ratio_of(row)
            if row["threads"] == 1 and found is not None:
                labels.setdefault(key_of(row), label_of(key_of(row)))
                ratios[machine["machine"]][key_of(row)] = found
    order = list(OPS)
    labels = dict(sorted(labels.items(), key=lambda item: order.index(item[0][0])))
    return plot.drawn(list(ratios), labels, ratios, "Times as fast as PyTorch, one thread")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn", default=str(HERE.parent / "build" / "default" / "attn"))
    parser.add_argument("--unit", default="", help="as of bench/compare.py: a unit, several joined by commas, or all")
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--check", action="store_true", help="only say whether the page is what it would be")
    options = parser.parse_args()
    if not options.draw and not options.check:
        measure(options.attn, options.unit)
    machines = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    units = [json.loads(path.read_text()) for path in sorted(PER_UNIT.glob("*.json"))]
    made = {DOCS / "benchmarks.md": page(machines, units), DOCS / "benchmarks.svg": picture(machines)}
    for path, text in made.items():
        if not options.check:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path} is not what bench/page.py --draw writes")


if __name__ == "__main__":
    main()
