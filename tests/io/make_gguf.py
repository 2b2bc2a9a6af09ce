#!/usr/bin/env python3
"""Writes data/types.gguf, a tensor of each type and a value of each kind, and data/types.safetensors, the tensors'
elements as the gguf package (`pip install gguf safetensors`), llama.cpp's own, reads them."""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

DATA = pathlib.Path(__file__).parent / "data"
SHAPE = 3, 512
# The places of a block's scales. MXFP4's scale, a power of two, is drawn like any other byte.
RANDOM = {T.Q8_0: (0,), T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q2_K: (80, 82), T.Q3_K: (108,),
          T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,), T.IQ4_NL: (0,), T.IQ4_XS: (0,), T.MXFP4: ()}  # fmt: skip


def random_blocks(kind: T, rng: np.random.Generator) -> np.ndarray:
    """Blocks of which every bit is drawn, so that it also holds what no quantizer would write. Most scales are finite."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (SHAPE[0] * SHAPE[1] // elements, size), np.uint8)
    for at in RANDOM[kind]:
        scales = rng.normal(0, 0.1, len(blocks)).astype(np.float16)
        scales[:3] = np.inf, np.nan, 6e-8
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(SHAPE[0], -1)


def main() -> None:
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(DATA / "types.gguf", "example")
    writer.add_uint8("kind.u8", 200)
    writer.add_int8("kind.i8", -100)
    writer.add_uint16("kind.u16", 60000)
    writer.add_int16("kind.i16", -30000)
    writer.add_uint32("kind.u32", 4_000_000_000)
    writer.add_int32("kind.i32", -2_000_000_000)
    writer.add_float32("kind.f32", 0.5)
    writer.add_bool("kind.bool", True)
    writer.add_string("kind.string", "größer")
    writer.add_uint64("kind.u64", 1 << 62)
    writer.add_int64("kind.i64", -(1 << 62))
    writer.add_float64("kind.f64", 0.1)
    writer.add_array("list.string", ["a", "", "Ġthe"])
    writer.add_array("list.i32", [1, -2, 3])
    writer.add_array("list.f32", [0.25, -8.0])
    writer.add_array("list.bool", [True, False])
    expected = {}
    plain = rng.normal(size=SHAPE).astype(np.float32)
    for kind in [*RANDOM, T.BF16, T.F16, T.F32]:  # the last needs no padding behind it
        stored = random_blocks(kind, rng) if kind in RANDOM else gguf.quantize(plain, kind)
        expected[kind.name] = gguf.dequantize(stored, kind).astype(np.float32).reshape(SHAPE)
        raw = None if kind in (T.F32, T.F16) else kind
        writer.add_tensor(kind.name, stored, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, DATA / "types.safetensors")


main()
