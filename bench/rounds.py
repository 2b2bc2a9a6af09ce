#!/usr/bin/env python3
"""The rounds of compare.py for one unit and one number of threads, in a process that was started for them (units.py).

Reads a job from standard input, and prints what it measured; both are JSON.
"""

import json
import math
import mmap
import os
import shlex
import subprocess
import sys
import tempfile
import time

from units import capability

SAMPLE = 0.01  # seconds: shorter calls are repeated for so long, as `attn bench` does


def say(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


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


def clearing_rate(megabytes=256):
    """GB/s at which the system gives new pages, that is, clears them."""
    with mmap.mmap(-1, megabytes << 20) as memory:
        def touch():
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1
        first, again = seconds_of(touch, 1), seconds_of(touch, 1)  # the second time nothing is cleared
    return (megabytes << 20) / max(first - again, 1e-9) / 1e9


def attn_bench(attn, *more):
    """The objects that `attn bench --json` prints."""
    line = [attn, "bench", "--json", *more]
    ran = subprocess.run(line, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{shlex.join(line)}\n{ran.stderr}")
    return [json.loads(each) for each in ran.stdout.splitlines()]


class Rounds:
    def __init__(self, job):
        import torch
        import peers
        self.job, self.peers = job, peers
        torch.set_num_threads(job["threads"])
        found, wanted = torch.backends.cpu.get_cpu_capability(), capability(job["unit"])
        if wanted and found != wanted:
            sys.exit(f"PyTorch was to compute by {wanted}, and computes by {found}")
        self.limits, self.rows, self.not_run = {}, {}, {}

    def prepare(self, row):
        """{peer: call}; those that cannot are noted with the reason."""
        calls = {}
        for who, make in self.peers.peers_for(row, self.job["flex"], self.job["unit"]).items():
            try:
                call = make(row, self.job["threads"])
                call()
                calls[who] = call
            except Exception as error:  # a peer may fail in any way; the report says how
                self.note(who, error)
        return calls

    def note(self, who, error):
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0] if isinstance(error, self.peers.NotRun) else f"{type(error).__name__}: {lines[0][:150]}"
        self.not_run[who, reason] = self.not_run.get((who, reason), 0) + 1

    def peers_round(self, calls, rows):
        """A sample of each peer; one that fails now is left out of its row, and the run goes on."""
        for key, there in calls.items():
            for who in list(there):
                try:
                    rows[key]["samples"].setdefault(who, []).append(sample(there[who]))
                except Exception as error:
                    self.note(who, error)
                    del there[who]
                    rows[key]["samples"].pop(who, None)

    def attn_round(self, path, rows):
        threads = str(self.job["threads"])
        for entry in attn_bench(self.job["attn"], "--repeats", "1", "--threads", threads, "--list", path):
            if entry["op"] == "limit":  # the best that was seen of each
                self.limits[entry["bound"]] = max(self.limits.get(entry["bound"], 0), entry["limit"])
                continue
            found = rows[self.peers.Row(entry).key()]
            found["samples"].setdefault("attn", []).append(entry["ms"])
            found |= {"isa": entry["isa"], "bound": entry["bound"]}
            found["amount"] = entry["gbps" if entry["bound"] == "read" else "gflops"] * entry["ms"]

    def group(self, texts):
        """All rows of one op, in turns."""
        rows = {tuple(text.split()): {"row": text, "samples": {}} for text in texts}
        self.rows |= rows
        calls = {key: self.prepare(self.peers.Row.of(key)) for key in rows}
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.writelines(f"{text}\n" for text in texts)  # attn checks them
            file.flush()
            for turn in range(self.job["repeats"]):
                say(f"{self.job['unit'] or 'no limit'}, {texts[0].split()[0]}, {self.job['threads']}: "
                    f"{turn + 1}/{self.job['repeats']}")
                self.attn_round(file.name, rows)
                self.peers_round(calls, rows)

    def run(self):
        texts = self.job["rows"]
        for op in dict.fromkeys(text.split()[0] for text in texts):
            self.group([text for text in texts if text.split()[0] == op])
        say("")
        self.limits["clear"] = clearing_rate()
        return {"unit": self.job["unit"], "threads": self.job["threads"], "cores": sorted(os.sched_getaffinity(0)),
                "limits": self.limits, "rows": list(self.rows.values()), "versions": self.peers.versions(),
                "not_run": [[who, reason, count] for (who, reason), count in self.not_run.items()]}


if __name__ == "__main__":
    print(json.dumps(Rounds(json.load(sys.stdin)).run()))
