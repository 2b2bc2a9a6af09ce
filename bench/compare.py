#!/usr/bin/env python3
"""Times `attn` and its peers on the same shapes, in turns, and prints the ratios.

    bench/compare.py --attn build/default/attn
    bench/compare.py --attn build/default/attn --unit all --save result.json
    bench/compare.py --filter 'forward f32' --threads 1 --repeats 3

Needs torch; onnx and onnxruntime where they are to be compared. Each unit and number of threads has a process of its
own, on cores of its own. There rows of one op are one round: `attn bench` times all of them, then each peer does, and
the next round begins. What is reported is the median of the rounds, with the spread of the middle ones. A ratio whose
spread is wider than its distance from 1 is not printed: noise may be all that it tells.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

from figures import number_text, ratio_text, spread, threads_text, time_text
from units import UNITS, cores, environment, pinned

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ("op", "shape", "dtype", "mask", "precision")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog="The shapes are those of attn bench; see attn bench --help.")
    parser.add_argument("--attn", default="attn", help="the command; default: attn of PATH")
    parser.add_argument("--list", default=HERE / "shapes.txt", help="rows to time; default: shapes.txt beside this program")
    parser.add_argument("--filter", default="", help="only rows that hold every word of this text")
    parser.add_argument("--threads", default="1,all", help="counts joined by commas; default: 1,all")
    parser.add_argument("--unit", default="", help=f"instructions that all may use, of {', '.join(UNITS)}; several joined by "
                        "commas, or all that this machine has; default: no limit")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; default: 5. Fewer than 3 tell no ratio")
    parser.add_argument("--pages", choices=("kept", "fresh"), default="kept",
                        help="whether what a call returns lies in pages of calls before (kept, the default), or may have to be "
                        "cleared by the system first (fresh)")
    parser.add_argument("--no-flex", action="store_true", help="leave out flex_attention, which compiles for minutes")
    parser.add_argument("--save", metavar="FILE", help="write the result as JSON, as bench/page.py reads it; of several "
                        "units a file for each, FILE with the unit's name")
    return parser.parse_args()


# ---- what is measured -----------------------------------------------------------------


def rows_of(path, words):
    """The rows of a list that have every word."""
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        columns = line.split("#")[0].split()
        if columns and not 3 <= len(columns) <= 5:
            sys.exit(f"{path}: expected op, shape, dtype, and mask and precision or not; found {line.strip()!r}")
        columns += ["none", "highest"][len(columns) - 3:] if columns else []
        text = " ".join(columns)
        if columns and all(word in text for word in words.split()):
            rows.append(text)
    return rows or sys.exit(f"no row with {words!r}")


def thread_counts(text):
    usable = len(os.sched_getaffinity(0))
    counts = [usable if each == "all" else int(each) if each.isdecimal() else 0 for each in text.split(",")]
    if not all(1 <= count <= usable for count in counts):
        sys.exit(f"--threads: expected all, or counts from 1 to {usable}; found {text}")
    return list(dict.fromkeys(counts))


def has_unit(attn, unit):
    line = [attn, "bench", "--isa", unit, "--explain", "--filter", "forward 1,1,1,1 f32"]
    return subprocess.run(line, capture_output=True).returncode == 0


def units_of(text, attn):
    """None is no limit."""
    if not text:
        return [None]
    there = [unit for unit in UNITS if has_unit(attn, unit)]
    for unit in [] if text == "all" else text.split(","):
        if unit not in there:
            sys.exit(f"--unit: expected all, or some of {', '.join(there)}; found {unit}")
    return there if text == "all" else list(dict.fromkeys(text.split(",")))


def measured(job, pages, program=HERE / "rounds.py"):
    """What one process measured: its unit is fixed before it loads anything."""
    child = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=environment(job["unit"], job["threads"], pages), preexec_fn=pinned(job["threads"]))
    printed, _ = child.communicate(json.dumps(job))
    return json.loads(printed) if child.returncode == 0 else sys.exit(1)


# ---- results as text ------------------------------------------------------------------


def rate(row, limits):
    """GFLOP/s (GB/s where reads are the bound) and the share of the limit."""
    found = row["amount"] / statistics.median(row["samples"]["attn"])
    return found, found / (limits.get(row["bound"]) or limits["f32"])


def spread_text(samples):
    least, most = spread(samples)
    return f"{time_text(least)} – {time_text(most)}" if len(samples) > 1 else ""


def report(parts):
    lines, not_run = [], {}
    for part in parts:
        title = f"{part['unit'] or 'no limit'}, {threads_text(part['threads'])} on {', '.join(map(str, part['cores']))}"
        lines += [title, f"  new pages: {number_text(part['limits']['clear'])} GB/s"]
        for row in part["rows"]:
            found, share = rate(row, part["limits"])
            ours = row["samples"]["attn"]
            lines.append(f"  {row['row']}")
            for who, samples in row["samples"].items():
                words = f"{found:.1f}, {share:.0%} of the limit" if who == "attn" else ratio_text(ours, samples)
                lines.append(f"    {who:24}{time_text(statistics.median(samples)):>10}  {spread_text(samples):22}  {words}")
        for who, reason, count in part["not_run"]:
            not_run[who, reason] = not_run.get((who, reason), 0) + count
    lines += ["", "Times are medians of the rounds, and the middle ones' least and most; × is a peer's time in attn's.",
              "Within noise: the ratio's spread is wider than its distance from 1. Not run (rows):"]
    lines += [f"  {who}: {reason} ({count})" for (who, reason), count in not_run.items()]
    return "\n".join(lines)


def processor():
    with open("/proc/cpuinfo") as file:
        return next((line.split(": ")[1].strip() for line in file if line.startswith("model name")), "unknown")


def result_of(parts, options):
    """What bench/results holds of a machine, or of a unit of it, but for its tables: the parts of all threads."""
    rows, limits = [], {}
    for texts in zip(*(part["rows"] for part in parts)):
        for part, row in zip(parts, texts):
            found, share = rate(row, part["limits"])
            samples = {who: [round(ms, 6) for ms in all_ms] for who, all_ms in row["samples"].items()}
            rows.append(dict(zip(COLUMNS, row["row"].split())) |
                        {"threads": part["threads"], "ms": {who: statistics.median(all_ms) for who, all_ms in samples.items()},
                         "samples": samples, "rate": round(found, 1), "share": round(share, 2)})
    for part in parts:
        limits[str(part["threads"])] = {bound: round(limit, 1) for bound, limit in part["limits"].items()}
    names = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
    isa = parts[0]["rows"][0]["isa"]
    return {"machine": processor(), "kind": isa, "isa": isa, "unit": parts[0]["unit"], "pages": options.pages,
            "threads": len(os.sched_getaffinity(0)), "date": datetime.date.today().isoformat(), "rounds": options.repeats,
            "peers": {names.get(name, name): version for name, version in parts[0]["versions"].items()}, "limits": limits,
            "rows": rows}


def place_of(path, unit, several):
    path = pathlib.Path(path)
    return path.with_name(f"{path.stem}-{unit}{path.suffix}") if several else path


def main():
    options = arguments()
    rows, counts = rows_of(options.list, options.filter), thread_counts(options.threads)
    units, everything = units_of(options.unit, options.attn), []
    for unit in units:
        parts = [measured({"attn": options.attn, "unit": unit, "threads": threads, "rows": rows, "flex": not options.no_flex,
                           "repeats": options.repeats}, options.pages) for threads in counts]
        everything += parts
        if options.save:
            text = json.dumps(result_of(parts, options), indent=1, ensure_ascii=False)
            place_of(options.save, unit, len(units) > 1).write_text(text)
    print(report(everything))


if __name__ == "__main__":
    main()
