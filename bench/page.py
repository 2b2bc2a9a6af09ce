#!/usr/bin/env python3
"""Makes docs/benchmarks.md: every benchmark, one after the other, in a quarter of an hour, on a machine that does nothing else.

    pip install torch transformers onnx onnxruntime .
    bench/page.py [--attn build/default/attn] [--out docs/benchmarks.md]
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

SECTIONS = [
    ("Training a GPT", "train.py", ["--attn", None, "--rounds", "2"],
     "A step of 6 layers, 6 heads, 384 wide, 256 tokens of context, 16 texts, two threads; PyTorch eager, in bfloat16 "
     "under autocast; memory is the process's peak, base what was there before the model. On a processor with AMX: "
     "[benchmarks-amx.md](benchmarks-amx.md)."),
    ("Generating with a cache", "generate.py", ["--attn", None],
     "Milliseconds a token, random models of GPT-2's format; the ratio is of the faster of transformers' `generate()` and "
     "a bare loop over its model. Reading every weight once bounds it. On AMX: [benchmarks-amx.md](benchmarks-amx.md)."),
    ("Calls from Python", "python_overhead.py", [],
     "Beside PyTorch's `scaled_dot_product_attention`, causal, one thread."),
]


def run(program, arguments):
    print(program, *arguments, file=sys.stderr)
    command = [sys.executable, str(HERE / program), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def operator_page(attn):
    with tempfile.NamedTemporaryFile(suffix=".md") as page:
        run("compare.py", ["--attn", attn, "--list", str(HERE / "headline.txt"), "--repeats", "2", "--no-flex",
                           "--isas", "avx2", "--markdown", page.name])
        command = "<!-- not run: this takes from minutes to an hour on a machine that does nothing else -->\n```sh\nbench/page.py\n```"
        return re.sub(r"```sh\n.*?\n```", command, page.read().decode(), count=1, flags=re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn", default=str(HERE.parent / "build" / "default" / "attn"))
    parser.add_argument("--out", default=str(HERE.parent / "docs" / "benchmarks.md"))
    options = parser.parse_args()
    parts = [operator_page(options.attn)]
    for title, program, arguments, words in SECTIONS:
        table = run(program, [options.attn if each is None else each for each in arguments])
        parts.append(f"\n## {title}\n\n`bench/{program}`. {words}\n\n{table}")
    pathlib.Path(options.out).write_text("".join(parts))


if __name__ == "__main__":
    main()
