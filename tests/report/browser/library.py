"""The library's numbers, by way of the command: what the page must show."""

import json
import math
import os
import struct
import subprocess

ATTN = os.environ.get("ATTN_COMMAND", "build/default/attn")
FORMATS = {"F32": ("f", 4), "F64": ("d", 8), "I64": ("q", 8)}


def attn(folder, *arguments, stdin=None):
    ran = subprocess.run([os.path.abspath(ATTN), *map(str, arguments)], cwd=folder, input=stdin, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout.decode()


class Array:
    def __init__(self, values, shape):
        self.values, self.shape = values, shape

    def __getitem__(self, index):
        at = 0
        for i, size in zip(index, self.shape):
            assert 0 <= i < size
            at = at * size + i
        return self.values[at]


def steps(path):
    """Name → Array of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        letter, size = FORMATS[entry["dtype"]]
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        found[name] = Array(struct.unpack(f"<{(end - begin) // size}{letter}", raw), entry["shape"])
    return found


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def number(text):
    """A number as the page writes it."""
    text = text.strip().replace("−", "-").replace("∞", "inf")
    return math.nan if text == "NaN" else float(text)


def save_npy(path, values, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values))


def save_safetensors(path, tensors):
    """{name: (values, shape)}, as float32."""
    header, data = {}, b""
    for name, (values, shape) in tensors.items():
        raw = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
