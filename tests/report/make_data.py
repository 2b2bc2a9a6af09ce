"""Writes data/print.txt: tensors, print options, and the text that PyTorch prints for them.

    python3 tests/report/make_data.py        # any PyTorch; the committed file is PyTorch 1.13's

Deterministic: the values come from Python's own random, seeded. A case is a line of five columns, with tabs between them:
the dtype; the sizes; precision, threshold, edge_items and line_width; the bits of each element in hexadecimal, row-major;
and the printed text, in which "\\n" stands for the end of a line.
"""
import math
import pathlib
import random
import struct

import torch

random.seed(20240607)
CODES = {"float64": "d", "float32": "f", "int64": "q", "int32": "i", "int8": "b", "uint8": "B"}
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = {"int64": 63, "int32": 31, "int8": 7, "uint8": 8}
cases = []


def add(values, shape, dtype="float32", precision=4, threshold=1000, edge_items=3, line_width=80):
    flat = torch.tensor(values, dtype=torch.float64 if dtype in FLOATS else torch.int64)
    tensor = flat.to(getattr(torch, dtype)).reshape(shape)
    cases.append((tensor, dtype, (precision, threshold, edge_items, line_width)))


def numel(shape):
    return math.prod(shape)


def any_shape(limit, rank=None):
    rank = random.randint(0, 8) if rank is None else rank
    shape = [1] * rank
    for _ in range(3 * rank):
        i = random.randrange(rank)
        larger = shape[:i] + [shape[i] + random.randint(1, 9)] + shape[i + 1 :]
        if numel(larger) <= limit:
            shape = larger
    return shape


def uniform(low, high, integral=False):
    value = random.uniform(low, high)
    return float(round(value)) if integral else value


# Kinds of numbers, which PyTorch's choice between int, fixed and scientific mode depends on.
KINDS = {
    "weights": lambda: uniform(0, 1),
    "signed": lambda: uniform(-3, 3),
    "hundreds": lambda: uniform(-200, 999),
    "small": lambda: uniform(-1e-3, 1e-3),
    "wide": lambda: random.choice([-1, 1]) * 10 ** uniform(-30, 30),
    "tiny": lambda: 10 ** uniform(-45, -36),
    "integers": lambda: uniform(-50, 50, True),
    "thousands": lambda: uniform(1, 1500, True),
    "huge": lambda: uniform(-3e8, 3e8, True),
    "halves": lambda: uniform(-9, 9, True) / 2,
    "zeros": lambda: random.choice([0.0, -0.0]),
    "bits": lambda: random.choice([0.0, 1.0]),
}
SPECIALS = [math.inf, -math.inf, math.nan, 0.0, -0.0]


def sprinkle(values, chance):
    return [random.choice(SPECIALS) if random.random() < chance else v for v in values]


def random_cases():
    for kind, draw in KINDS.items():
        for dtype in FLOATS:
            for chance in (0, 0.3):
                shape = any_shape(60)
                add(sprinkle([draw() for _ in range(numel(shape))], chance), shape, dtype)
    for dtype, bits in INTEGERS.items():
        for reach in (2, bits // 2, bits):
            low = 0 if dtype == "uint8" else -(2**reach)
            shape = any_shape(60)
            add([random.randint(low, 2**reach - 1) for _ in range(numel(shape))], shape, dtype)
    for _ in range(6):
        shape = any_shape(60)
        add([random.randint(0, 1) for _ in range(numel(shape))], shape, "bool")


def long_rows():
    for n in list(range(7, 30)) + [100]:
        add([uniform(0, 1) for _ in range(n)], [n])
        add([uniform(-9, 9, True) for _ in range(n)], [n], random.choice(["float32", "float64"]))
    for n in (20, 23, 24, 25, 26, 48, 49):
        add([0.0] * n, [n])  # printed wider than the width that PyTorch counts
        add([1] * n, [n], "bool")
        add([math.inf] * n, [n])
    for n in (9, 17, 40):
        add([uniform(-1, 1) for _ in range(2 * n * 3)], [2, 3, n])


def summarised():
    for shape in ([1001], [1000], [4, 251], [7, 7, 7, 7], [1, 1001], [6, 200], [7, 200], [200, 7], [200, 6], [3, 2, 400],
                  [2, 1, 3, 1, 2, 1, 1, 100]):
        add([uniform(-2, 2) for _ in range(numel(shape))], shape)
    add([uniform(-50, 50, True) for _ in range(1200)], [30, 40])
    add([uniform(0, 1) if 3 <= i % 40 < 37 else i % 40 for i in range(1200)], [30, 40])  # the fractions are hidden
    add([1e9 if i == 500 else i / 7 for i in range(1100)], [1100])  # the value that would force "e" is hidden
    add([random.randint(-9, 99999) for _ in range(1300)], [13, 100], "int64")
    add([random.randint(0, 1) for _ in range(1300)], [100, 13], "bool")
    add([uniform(-2, 2) for _ in range(1024)], [4, 256], "float16")
    add([uniform(-2, 2) for _ in range(1024)], [1024], "bfloat16")
    add([uniform(-2, 2) for _ in range(1024)], [32, 32], "float64")


def empty():
    for shape in ([0], [0, 3], [3, 0], [2, 0, 4], [0, 0], [1, 1, 1, 1, 1, 1, 1, 0]):
        for dtype in ("float32", "float64", "int64", "bool", "bfloat16"):
            add([], shape, dtype)


def scalars():
    for dtype in FLOATS:
        for value in (0.0, -0.0, 1.0, -3.0, 0.5, 1e-5, 1e9, math.pi, math.inf, -math.inf, math.nan):
            add([value], [], dtype)
    for dtype in INTEGERS:
        add([127 if dtype == "int8" else 200], [], dtype)
    add([1], [], "bool")
    add([0], [1], "bool")


def hostile():
    inf, nan = math.inf, math.nan
    for values in ([1, inf], [1, nan, -inf], [10, nan], [1.5, nan], [1.5, -inf, 2], [0, 0], [0, inf], [nan, nan], [-nan],
                   [1, 1000], [1, 1001], [0.1, 100], [0.1, 100.1], [1e-4, 2e-4], [9.9e-5, 2e-4], [1e8], [1e8 + 8],
                   [99999999.5], [123456789.5], [5e-324], [1.7976931348623157e308], [-1e-310, 1], [0.00005, 0.0001],
                   [0.99995, 0.99994999], [9.99995, 1], [999.99995, 1.5], [2.5, 3.5, -0.5], [-0.0001, 0.05], [1e-7, nan, 0],
                   [0.12345, 0.123450001, 0.12355], [-1e-5, 1e-5], [1e100, 1e-100], [1e15, 1e16], [16777216, 16777217]):
        for dtype in ("float32", "float64"):
            add(values, [len(values)], dtype)
    for values in ([65504, 1], [6e-8], [0.1, 0.2, 0.3], [2048, 2049], [1e-5, 1]):
        for dtype in ("float16", "bfloat16"):
            add(values, [len(values)], dtype)
    for value in (2**63 - 1, -(2**63)):
        add([value, 0], [2], "int64")
    add([2**31 - 1, -(2**31)], [2, 1], "int32")


def suffix_placement():
    for n in range(1, 14):  # the last line grows past the place where "dtype=" still fits
        add([uniform(0, 1) for _ in range(n)], [n], "float64")
        add([uniform(0, 1) for _ in range(2 * n)], [2, n], "float16")
        add([random.randint(0, 200) for _ in range(2 * n)], [n, 2], "uint8")
        add([random.randint(10, 99) for _ in range(n)], [n], "int32", line_width=30 + n)


def other_options():
    for _ in range(40):
        options = {"precision": random.randint(0, 12), "threshold": random.choice([0, 5, 20, 1000]),
                   "edge_items": random.randint(1, 5), "line_width": random.choice([1, 8, 20, 40, 120, 200])}
        shape = any_shape(150)
        draw = random.choice(list(KINDS.values()))
        dtype = random.choice(FLOATS)
        add(sprinkle([draw() for _ in range(numel(shape))], random.choice([0, 0.1])), shape, dtype, **options)


def bits_of(tensor, dtype):
    flat = tensor.reshape(-1)
    if dtype in CODES:
        size = struct.calcsize(CODES[dtype])
        return [struct.pack(">" + CODES[dtype], v).hex().zfill(2 * size) for v in flat.tolist()]
    if dtype == "bool":
        return [str(int(v)) for v in flat.tolist()]
    return ["%04x" % (v & 0xFFFF) for v in flat.view(torch.int16).tolist()]


def write(path):
    with open(path, "w") as out:
        for tensor, dtype, options in cases:
            precision, threshold, edge_items, line_width = options
            torch.set_printoptions(precision=precision, threshold=threshold, edgeitems=edge_items, linewidth=line_width)
            numbers = [" ".join(map(str, row)) for row in (tensor.shape, options)]
            text = str(tensor).replace("\n", "\\n")
            out.write("\t".join([dtype, *numbers, " ".join(bits_of(tensor, dtype)), text]) + "\n")


if __name__ == "__main__":
    for part in (scalars, hostile, empty, random_cases, long_rows, summarised, suffix_placement, other_options):
        part()
    target = pathlib.Path(__file__).parent / "data" / "print.txt"
    target.parent.mkdir(exist_ok=True)
    write(target)
    print(len(cases), "cases,", target.stat().st_size, "bytes, PyTorch", torch.__version__)
