#!/usr/bin/env python3
"""Runs what the documents show: shell commands in their order, C++ snippets compiled, linked and run.

Python snippets are run by tests/python/test_documents.py, where the package is installed. A document's commands share
one new folder, in which the folders `examples`, `tests` and `build/smollm2` lie as in a clone, and find `attn` on the path.

    ATTN_COMMAND=build/default/attn ATTN_LIBRARY=build/default/src/libattn.a tests/documents/run.py [DOCUMENT...]
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from blocks import ROOT, Block, blocks, documents

COMMAND = pathlib.Path(os.environ["ATTN_COMMAND"]).resolve()
LIBRARY = pathlib.Path(os.environ["ATTN_LIBRARY"]).resolve()
SECONDS = 120  # of one block, at most


def program(snippet: str) -> str:
    """A snippet as a whole program: what is no include is the body of main, unless it has one."""
    if re.search(r"\bint main\(", snippet):
        return snippet
    includes = [line for line in snippet.splitlines() if line.startswith("#include")]
    body = [line for line in snippet.splitlines() if not line.startswith("#include")]
    return "\n".join([*includes, "#include <attn/attn.hpp>", "int main() {", *body, "}"]) + "\n"


def run_cpp(block: Block, folder: pathlib.Path, environment: dict[str, str]) -> tuple[str, str]:
    source, binary = folder / "snippet.cpp", folder / "snippet"
    source.write_text(program(block.text))
    # An unused result is what a snippet that shows one has.
    flags = ["-std=c++20", "-O0", "-Wall", "-Wno-unused", f"-I{ROOT}/include", f"-I{LIBRARY.parent.parent}/include"]
    link = [str(LIBRARY), "-fopenmp", *os.environ.get("ATTN_LINK", "-lzip -lz").split()]
    compiler = os.environ.get("CXX", "c++")
    compiled = run([compiler, *flags, str(source), "-o", str(binary), *link], folder, environment)
    return compiled if compiled[0] else run([str(binary)], folder, environment)


def run_sh(block: Block, folder: pathlib.Path, environment: dict[str, str]) -> tuple[str, str]:
    return run(["bash", "-euo", "pipefail", "-c", block.text], folder, environment)


def run(command: list[str], folder: pathlib.Path, environment: dict[str, str]) -> tuple[str, str]:
    """What went wrong, or nothing, and what was printed."""
    try:
        ran = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS} s", ""
    wrong = f"exit code {ran.returncode}\n{ran.stdout[-1500:]}{ran.stderr[-1500:]}"
    return wrong if ran.returncode else "", ran.stdout


def not_printed(block: Block, printed: str) -> str:
    """The first line of what a document shows that was not printed, or nothing."""
    lines = [line.rstrip() for line in printed.splitlines()]
    missing = [line for line in block.text.splitlines() if line.rstrip() not in lines]
    return f"expected the line {missing[0]!r} from the block before; found\n{printed[-1500:]}" if missing else ""


RUNNERS = {"sh": run_sh, "cpp": run_cpp}


def main() -> int:
    chosen = [pathlib.Path(name).resolve() for name in sys.argv[1:]] or documents(ROOT)
    passed = failed = 0
    for document in chosen:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for shared in ("examples", "tests"):
                (folder / shared).symlink_to(ROOT / shared)
            (folder / "build").mkdir()
            (folder / "build" / "smollm2").symlink_to(ROOT / "build" / "smollm2")
            environment = {**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
            printed = None  # by the block before, where it ran
            for block in blocks(document):
                if block.printed and printed is not None:
                    wrong = not_printed(block, printed)
                elif block.language not in RUNNERS:
                    continue
                elif block.reason_not_run:
                    print(f"{block.place}: not run: {block.reason_not_run}")
                    printed = None
                    continue
                else:
                    wrong, printed = RUNNERS[block.language](block, folder, environment)
                print(f"{block.place}: {wrong or 'ok'}")
                passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
