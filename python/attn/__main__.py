"""python -m attn: the command, when the wheel was built where its libraries are."""

from __future__ import annotations

import os
import pathlib
import sys

COMMAND = pathlib.Path(__file__).parent / "bin" / "attn"
MISSING = """\
attn: error: this wheel was built without the command, for which CMake found no {libraries}.
On Debian: apt-get install libcli11-dev libfmt-dev nlohmann-json3-dev libzip-dev libdlpack-dev pkg-config
then: pip install --force-reinstall --no-cache-dir . ; or, from the source folder, make demo.
The library itself is here: python -c "import attn; help(attn)".
"""


def main() -> int:
    if COMMAND.exists():
        os.execv(COMMAND, ["attn", *sys.argv[1:]])
    from attn._build import MISSING_LIBRARIES

    sys.stderr.write(MISSING.format(libraries=", ".join(MISSING_LIBRARIES)))
    return 3


if __name__ == "__main__":
    sys.exit(main())
