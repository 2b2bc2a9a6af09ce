"""The library's door, compiled for this machine: what the one in a page must answer, bit for bit."""

import ctypes
import json
import math
import os
import struct


class Door:
    """As src/web/library.js, by ctypes. A call that fails ends the program, so only good ones belong here."""

    def __init__(self, path=os.environ["ATTN_DOOR"]):
        assert os.environ["ATTN_FORCE_ISA"] == "scalar"
        self.library = ctypes.CDLL(path)
        for name in ("open_model", "encode", "embed", "names", "steps", "next"):
            getattr(self.library, f"attn_{name}").restype = ctypes.c_char_p

    def call(self, name, *values):
        given = []
        for value in values:
            if isinstance(value, str):
                given.append(value.encode())
            elif isinstance(value, bytes):
                given += [value, ctypes.c_size_t(len(value))]
            elif isinstance(value, float):
                given.append(ctypes.c_double(value))
            elif isinstance(value, list):
                given.append(self.array(value))
            else:
                given.append(value)
        return getattr(self.library, f"attn_{name}")(*given)

    @staticmethod
    def array(values):
        kind = ctypes.c_int32 if isinstance(values[0], int) else ctypes.c_float
        return (kind * len(values))(*values)

    def open_model(self, data, config="", weights=0):
        return json.loads(self.call("open_model", data, config, weights))

    def open_module(self, config, weights=b""):
        self.call("open_module", json.dumps(config), weights)

    def of_ids(self, name, ids):
        return self.call(name, ids, ctypes.c_size_t(len(ids)))

    def run(self, ids, edits=()):
        self.call("run", ids, ctypes.c_size_t(len(ids)), json.dumps(edits))

    def run_module(self, x, tokens, width, source=(0.0,), sources=0, edits=()):
        size = ctypes.c_size_t
        self.call("run_module", x, size(tokens), size(width), list(source), size(sources), json.dumps(edits))

    def steps(self):
        """Name → the bytes of its float32 numbers."""
        return {one["name"]: ctypes.string_at(one["at"], 4 * math.prod(one["shape"])) for one in json.loads(self.call("steps"))}


def apart(a, b):
    """The most that two steps' numbers differ by, as a share of the largest: 0 only where all bits agree."""
    if a == b:
        return 0.0
    x, y = (struct.unpack(f"<{len(c) // 4}f", c) for c in (a, b))
    most = max((abs(v) for v in x if math.isfinite(v)), default=1.0)
    worst = max((abs(p - q) for p, q in zip(x, y) if math.isfinite(p) and math.isfinite(q)), default=0.0)
    assert all(math.isfinite(p) == math.isfinite(q) for p, q in zip(x, y))
    return max(worst / most, 1e-30)
