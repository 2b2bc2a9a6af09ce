#!/usr/bin/env python3
"""Times attention over ranks, and sets it beside a model.

    bench/ranks.py pairs                     two ranks of one thread each beside one process of two threads
    sudo bench/ranks.py machines             2 and 4 namespaces of this machine at given rates (scripts/machines)
    sudo bench/ranks.py kill                 kills one of four ranks at work, and tells what becomes of the others
    sudo bench/ranks.py slow                 stops one of two ranks for half of the time
    bench/ranks.py model FLOPS LATENCY_US    efficiency on 2 to 1024 machines by the library's cost model

Each prints a table of docs/distributed.md. Runs are taken in turns, and of each the fastest counts: what else the
machine does only adds time.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ATTN = ROOT / "build" / "default" / "attn"
PAIRS = [f"{op} {shape} {dtype} {mask}"
         for shape in ("1,8,16384,128", "1,32/8,16384,128")
         for op in ("forward", "training") for dtype in ("bf16", "f32") for mask in ("causal", "none")]  # fmt: skip


def launcher(ranks):
    options = ["--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    return ["mpirun", *options, "-n", str(ranks)]


def bench(command, threads, row, scheme, repeats):
    rows = json.loads(subprocess.run(
        [*map(str, command), str(ATTN), "bench", "--list", str(row), "--scheme", scheme,
         "--repeats", str(repeats), "--json"],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)}, check=True, capture_output=True, text=True,
    ).stdout)  # fmt: skip
    return rows


def fastest(samples):
    return min(samples, key=lambda sample: sample["fastest"])


def least(samples):
    """Seconds of processors, which other processes take less of than of time."""
    return min(sample["processors"] for sample in samples)


def table(titles, rows):
    print("| " + " | ".join(titles) + " |")
    print("|---|" + "---:|" * (len(titles) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def list_file(folder, row):
    path = pathlib.Path(folder) / (row.replace(" ", "_").replace("/", "-").replace(",", ".") + ".txt")
    path.write_text(row + "\n")
    return path


def pairs(options, folder):
    rows = []
    for row in [row for row in PAIRS if all(word in row for word in options.filter.split())]:
        path, one, two = list_file(folder, row), [], []
        for _ in range(options.turns):
            one.append(bench(launcher(1), 2, path, "auto", options.repeats))
            two.append(bench(launcher(2), 1, path, options.scheme, options.repeats))
        a, b = fastest(one), fastest(two)
        parts = [b[part] for part in ("computing", "waiting", "sending")]
        share = [f"{100 * part / sum(parts):.1f} %" for part in parts]
        rows.append([row, f"{a['fastest']:.3g} s", f"{b['fastest']:.3g} s", *share,
                     f"{100 * a['fastest'] / b['fastest']:.0f} %",
                     f"{100 * least(one) / least(two):.0f} %"])  # fmt: skip
        print(*rows[-1], file=sys.stderr, flush=True)
    table(["row", "one process", "two ranks", "computing", "waiting", "sending", "efficiency", "by processors"],
          rows)


def machines(options, folder):
    """Ranks share this machine's processors: efficiency is against one rank that has one of them to itself, with as
    many ranks at work as it has processors at most."""
    rows = []
    for row in options.rows:
        path = list_file(folder, row)
        for count in options.machines:
            for rate in options.rates:
                command = [ROOT / "scripts" / "machines", "--machines", count, "--rate", rate]
                found = fastest([bench(command, 1, path, options.scheme, options.repeats) for _ in range(options.turns)])
                rows.append([row, str(count), rate, f"{found['fastest']:.3g} s", f"{found['estimated']:.3g} s",
                             *(f"{found[part]:.3g} s" for part in ("computing", "waiting", "sending")),
                             f"{found['bytes'] / 1e6:.0f}", f"{found['bytes_per_second'] * 8e-9:.2g} Gbit/s",
                             f"{found['latency'] * 1e6:.0f} µs", f"{found['flops_per_second'] / 1e9:.0f}"])  # fmt: skip
                print(*rows[-1], file=sys.stderr, flush=True)
    table(["row", "machines", "rate", "time", "by the model", "computing", "waiting", "sending", "MB sent", "rate measured",
           "message", "GFLOP/s"], rows)


def rank_process(started, rank):
    """The process of a rank, of the command that was started; None where there is none yet."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == bytes(ATTN) and f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment and (
            f"ATTN_BENCH_RUN={started}".encode() in environment
        ):
            return int(folder.name)
    return None


def on_machines(count, rate, arguments, run):
    """Starts the command on machines of one thread each."""
    return subprocess.Popen(
        [str(ROOT / "scripts" / "machines"), "--machines", str(count), "--rate", rate, str(ATTN), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ATTN_BENCH_RUN": run}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_rank(process, run, rank):
    while process.poll() is None:
        if (found := rank_process(run, rank)) is not None:
            return found
        time.sleep(0.1)
    sys.exit(process.stderr.read())


def kill(options, folder):
    """A sequence whose computation takes seconds; the rank dies in the midst of it."""
    path, output = pathlib.Path(folder) / "x.npy", pathlib.Path(folder) / "out.npy"
    subprocess.run([ATTN, "draw", "randn:1,8,16384,64", "--output", path], check=True, stdout=subprocess.DEVNULL)
    run = str(os.getpid())
    files = [word for flag in ("--q", "--k", "--v") for word in (flag, str(path))]
    process = on_machines(4, "1gbit", ["sdpa", *files, "--causal", "top-left", "--output", str(output)], run)
    victim = wait_for_rank(process, run, 2)
    time.sleep(options.after)
    os.kill(victim, signal.SIGKILL)
    start = time.monotonic()
    _, err = process.communicate()
    took = time.monotonic() - start
    left = sorted(each.name for each in pathlib.Path(folder).iterdir())
    said = [line for line in err.splitlines() if "exited on signal" in line]
    print(f"exit code {process.returncode} after {took:.1f} s; files left: {', '.join(left)}; {' '.join(said)}")


def slow(options, folder):
    """Stopped and continued every 20 ms, so that it has half of its time."""
    row = list_file(folder, options.row)
    for share in (1.0, 0.5):
        run = f"{os.getpid()}-{share}"
        arguments = ["bench", "--list", str(row), "--scheme", options.scheme, "--repeats", "3", "--json"]
        process = on_machines(2, "10gbit", arguments, run)
        victim = wait_for_rank(process, run, 1)
        while process.poll() is None and share < 1:
            for stop in (signal.SIGSTOP, signal.SIGCONT):
                try:
                    os.kill(victim, stop)
                except ProcessLookupError:
                    break
                time.sleep(0.02)
        found = json.loads(process.communicate()[0])
        parts = ", ".join(f"{part} {found[part]:.3g} s" for part in ("computing", "waiting", "sending"))
        print(f"rank 1 with {100 * share:.0f} % of its time: {found['fastest']:.3g} s; {parts}")


def model(options, _):
    import attn.distributed

    layout_of, rows = attn.distributed.Layout.zigzag, []
    for tokens in options.tokens:
        for gigabits in (10, 25, 100, 200):
            cells = []
            for ranks in (2, 8, 32, 128, 512, 1024):
                best = attn.distributed.estimate(
                    layout_of(tokens * ranks, ranks), query_heads=32, key_heads=8, head_dim=128, dtype="bfloat16",
                    is_causal=True, scheme=options.scheme, bytes_per_second=gigabits * 1e9 / 8 * options.share,
                    latency=options.latency * 1e-6, flops_per_second=options.flops * options.cores,
                )  # fmt: skip
                cells.append(f"{100 * best.flops / (options.flops * options.cores) / best.seconds:.0f} %")
            rows.append([f"{tokens} tokens each, {gigabits} Gbit/s", *cells])
    table(["", "2", "8", "32", "128", "512", "1024 machines"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, run in (("pairs", pairs), ("machines", machines), ("kill", kill), ("slow", slow), ("model", model)):
        verb = verbs.add_parser(name)
        verb.set_defaults(run=run)
        verb.add_argument("--scheme", default="ring")
        verb.add_argument("--turns", type=int, default=3)
        verb.add_argument("--repeats", type=int, default=1)
        if name == "pairs":
            verb.add_argument("--filter", default="", help="only rows with these words")
        elif name == "machines":
            verb.add_argument("--rows", nargs="+", default=["forward 1,8,8192,128 f32 causal"])
            verb.add_argument("--machines", nargs="+", type=int, default=[2, 4])
            verb.add_argument("--rates", nargs="+", default=["1gbit", "10gbit"])
        elif name == "kill":
            verb.add_argument("--after", type=float, default=3, help="seconds from the rank's start on")
        elif name == "slow":
            verb.add_argument("--row", default="forward 1,8,4096,128 f32 causal")
        else:
            verb.add_argument("flops", type=float, help="a second, of a core")
            verb.add_argument("--cores", type=int, default=64, help="of a machine, which is one rank")
            verb.add_argument("latency", type=float, help="of a message, in µs")
            verb.add_argument("--share", type=float, default=0.9, help="of the published rate that messages get")
            verb.add_argument("--tokens", nargs="+", type=int, default=[1024, 4096, 16384], help="of a machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.run(options, folder)


if __name__ == "__main__":
    main()
