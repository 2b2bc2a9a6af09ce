"""python -m attn: the command, which the wheel holds beside the module."""

from __future__ import annotations

import os
import pathlib
import sys

COMMAND = pathlib.Path(__file__).parent / "bin" / "attn"


def main() -> int:
    if COMMAND.exists():
        os.execv(COMMAND, ["attn", *sys.argv[1:]])
    sys.stderr.write("attn: error: this wheel was built without the command (ATTN_COMMAND=OFF)\n")
    return 3


if __name__ == "__main__":
    sys.exit(main())
