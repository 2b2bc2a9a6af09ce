#!/usr/bin/env python3
"""The command's work grows linearly with every count that a file can state.

Instructions are counted by valgrind, so that no clock and no load decides. Of three files whose counts double, the
second difference may be twice the first one; for work with the square it is four times as much. Needs ATTN_COMMAND.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

COMMAND = os.environ["ATTN_COMMAND"]
LLAMA = Path(__file__).resolve().parent.parent / "lm/data/llama"
SKIPPED = 77


def safetensors(path, count, name, shape=(1,), metadata=None):
    size = 4
    for extent in shape:
        size *= extent
    header = {"__metadata__": metadata} if metadata else {}
    for i in range(count):
        header[name.format(i)] = {"dtype": "F32", "shape": list(shape), "data_offsets": [size * i, size * (i + 1)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + struct.pack("<f", 0.5) * (size // 4 * count))


def npz(path, count):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<f", 1)
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(count):
            archive.writestr(f"a{i}.npy", member)


def many_tensors(place, count):
    safetensors(place / "x.safetensors", count, "t{}")
    return ["info", "x.safetensors"]


def many_metadata(place, count):
    safetensors(place / "x.safetensors", 1, "t{}", metadata={f"key{i}": "value" for i in range(count)})
    return ["info", "x.safetensors"]


def many_layers(place, count):
    safetensors(place / "x.safetensors", count, "layers.{}.weights", (1, 2, 2))
    return ["show", "x.safetensors", "--json"]


def many_members(place, count):
    npz(place / "x.npz", count)
    return ["info", "x.npz"]


def many_columns(place, count):
    names, numbers = ",".join(f"c{i}" for i in range(count)), ",".join("1" for _ in range(count))
    (place / "x.csv").write_text(f"{names}\n{numbers}\n")
    return ["info", "x.csv"]


def many_prompts(place, count):
    return ["generate", "--model", str(LLAMA), "--tokens", "0", "--ids", *["1"] * count]


CASES = {many_tensors: 1000, many_metadata: 1000, many_layers: 1000, many_members: 500, many_columns: 4000,
         many_prompts: 100}


def instructions(case, count):
    with tempfile.TemporaryDirectory() as folder:
        line = case(Path(folder), count)
        ran = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", COMMAND, *line], cwd=folder,
                             capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        found = re.search(r"Collected : (\d+)", ran.stderr)
        assert ran.returncode == 0 and found, ran.stderr
        return int(found[1])


def main():
    if shutil.which("valgrind") is None:
        print("valgrind is not there")
        return SKIPPED
    chosen = [case for case in CASES if len(sys.argv) < 2 or case.__name__ in sys.argv[1:]]
    wrong = 0
    for case in chosen:
        few, more, most = (instructions(case, CASES[case] * times) for times in (1, 2, 4))
        ratio = (most - more) / max(more - few, 1)
        fits = ratio < 2.5
        wrong += not fits
        print(f"{'ok' if fits else 'WRONG'} {case.__name__}: {few} {more} {most}, ratio {ratio:.2f}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
