#!/usr/bin/env python3
"""The report in a real browser: its numbers against the library's, its controls, its silence on the network.

    ATTN_COMMAND=build/default/attn tests/report/browser/run.py [PART] [-k NAME]

Of the parts, which take as long as one another and may run at the same time, "live" has the pages that compute, "models"
those of models and of all kinds of input, and "pages" every other file here. Without one all are run. "firefox" has pages
that compute once more, in Firefox, and is run only where it is named.
"""

import importlib
import pathlib
import sys
import unittest

import chromium

PARTS = ("live", "models", "pages", "firefox")


def part_of(case):
    if case == "firefox_case":
        return "firefox"
    return "live" if case.startswith("live") else "models" if case in ("model_page_case", "sources_case") else "pages"


if not chromium.find():
    print("skipped: no chromium here (Debian: apt-get install chromium)")
    sys.exit(77)
chosen = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1] in PARTS else None
for path in sorted(pathlib.Path(__file__).parent.glob("*_case.py")):
    if path.stem != "report_case" and (part_of(path.stem) == chosen or not chosen and path.stem != "firefox_case"):
        module = importlib.import_module(path.stem)
        # A file's own classes: those that it takes from another stand there.
        globals().update({name: c for name, c in vars(module).items() if getattr(c, "__module__", "") == path.stem})

unittest.main(verbosity=2)
