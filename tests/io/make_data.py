#!/usr/bin/python3
"""Writes the golden files in data/: arrays as NumPy saves them, and safetensors put together byte by byte.

Element i of every tensor, row-major, is (i - 3) / 2 for floats, i - 3 for signed integers, i for uint8 and
whether i is odd for bool; the tests know that rule and nothing else of this script.
"""

import io
import json
import pathlib
import struct

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"
NPY_TYPES = ["f2", "f4", "f8", "i1", "u1", "i4", "i8", "b1"]
SAFETENSORS_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
}


def values(dtype, shape):
    dtype = np.dtype(dtype)
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    rule = {"f": (i - 3) / 2, "i": i - 3, "u": i, "b": i % 2 == 1}
    return rule[dtype.kind].reshape(shape).astype(dtype)


def bfloat16(shape):
    """The upper halves of float32; the values of the rule are exact in them."""
    return (values("<f4", shape).view("<u4") >> 16).astype("<u2")


def save_npy(name, array, version=(1, 0)):
    with open(DATA / name, "wb") as file:
        np.lib.format.write_array(file, array, version=version)


def safetensors(entries, metadata=None, padding=0):
    """entries: name, dtype, shape, array in the order of the header; the data holds the widest elements first."""
    offsets, at = {}, 0
    for name, _, _, array in sorted(entries, key=lambda e: -e[3].itemsize):
        offsets[name] = [at, at + array.nbytes]
        at += array.nbytes
    header = {} if metadata is None else {"__metadata__": metadata}
    for name, dtype, shape, _ in entries:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets[name]}
    text = json.dumps(header).encode() + b" " * padding
    data = b"".join(e[3].tobytes() for e in sorted(entries, key=lambda e: -e[3].itemsize))
    return struct.pack("<Q", len(text)) + text + data


def write_npy_files():
    for code in NPY_TYPES:
        save_npy(f"le_{code}.npy", values("<" + code, (2, 3)))
        save_npy(f"be_{code}.npy", values(">" + code, (2, 3)))
        save_npy(f"fortran_{code}.npy", np.asfortranarray(values("<" + code, (2, 3, 4))))
    save_npy("version2.npy", values("<f4", (2, 3)), (2, 0))
    save_npy("version3.npy", values("<f4", (2, 3)), (3, 0))
    save_npy("fortran_be_i8.npy", np.asfortranarray(values(">i8", (2, 3, 4))))
    save_npy("rank0.npy", values("<f8", ()))
    save_npy("rank1.npy", values("<f4", (5,)))
    save_npy("rank8.npy", values("<f4", (1, 2, 1, 3, 1, 1, 2, 1)))
    save_npy("rank9.npy", values("<f4", (1,) * 9))
    save_npy("empty.npy", values("<f4", (0, 3)))
    save_npy("empty_fortran.npy", np.zeros((3, 0, 2), "<f4", order="F"))
    save_npy("unsupported_u2.npy", np.zeros(2, "<u2"))
    save_npy("unsupported_c8.npy", np.zeros(2, "<c8"))
    save_npy("unsupported_string.npy", np.array(["your", "journey"]))
    save_npy("unsupported_fields.npy", np.zeros(2, [("x", "<f4"), ("y", "<i4")]))
    np.save(DATA / "unsupported_object.npy", np.array([1, "x", None], dtype=object), allow_pickle=True)


def write_npz_files():
    arrays = {
        "x": values("<f4", (2, 3)),
        "turned": np.asfortranarray(values("<i8", (2, 3, 4))),
        "mask": values("|b1", (3,)),
        "none": values("<f8", (0, 4)),
        "one": values(">f8", ()),
        "größe": values("<f2", (2,)),
    }
    np.savez(DATA / "stored.npz", **arrays)
    np.savez_compressed(DATA / "deflated.npz", **arrays)
    np.savez_compressed(DATA / "zeros.npz", zeros=np.zeros((512, 512), "<f4"))
    np.savez(DATA / "empty.npz")


def write_safetensors_files():
    entries = [(code.lower(), code, (2, 3), values(dtype, (2, 3))) for code, dtype in SAFETENSORS_TYPES.items()]
    entries.insert(3, ("bf16", "BF16", (2, 3), bfloat16((2, 3))))
    (DATA / "dtypes.safetensors").write_bytes(safetensors(entries, {"format": "pt", "note": "größe"}))
    entries = [("narrow", "I8", (3,), values("|i1", (3,))), ("wide", "F64", (2,), values("<f8", (2,)))]
    (DATA / "unaligned_header.safetensors").write_bytes(safetensors(entries, padding=3))
    entries = [
        ("scalar", "F32", (), values("<f4", ())),
        ("none", "F32", (0, 3), values("<f4", (0, 3))),
        ("rank8", "U8", (1, 2, 1, 3, 1, 1, 2, 1), values("|u1", (1, 2, 1, 3, 1, 1, 2, 1))),
    ]
    (DATA / "shapes.safetensors").write_bytes(safetensors(entries))
    (DATA / "empty.safetensors").write_bytes(safetensors([]))


def write_csv_files():
    buffer = io.StringIO()
    np.savetxt(buffer, values("<f4", (4, 3)), header="x y z")
    (DATA / "savetxt.csv").write_text(buffer.getvalue())
    rows = "\n".join(";".join(str(v) for v in row) for row in values("<f4", (4, 3)))
    (DATA / "semicolons.csv").write_text("x;y;z\r\n" + rows.replace("\n", "\r\n") + "\r\n", newline="")


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    write_npy_files()
    write_npz_files()
    write_safetensors_files()
    write_csv_files()
