#!/usr/bin/env python3
"""Files that a document names exist: sources and folders in `code`, by the end of their path, and links to files."""

import fnmatch
import pathlib
import re
import sys

from blocks import documents

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"[\w./*-]+(?:\.(?:c|h|cpp|hpp|py|js|cmake|in|\*)|/)")


def tree() -> list[str]:
    """All files and folders, a folder with a slash at its end."""
    paths = []
    for top in ROOT.iterdir():
        if top.name not in (".git", "build"):
            paths += [top, *top.rglob("*")]
    return [f"/{path.relative_to(ROOT)}" + "/" * path.is_dir() for path in paths]


def missing(document: pathlib.Path, names: list[str]) -> list[str]:
    text = FENCED.sub("", document.read_text())
    spans = [span for span in re.findall(r"`([^`\n]+)`", text) if SOURCE.fullmatch(span)]
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if not re.match(r"\w+:", link)]
    return [span for span in spans if not fnmatch.filter(names, f"*/{span}")] + [
        link for link in links if not (document.parent / link).exists()]


def main() -> int:
    names = tree()
    wrong = [f"{document.relative_to(ROOT)}: there is no {name}"
             for document in documents(ROOT) for name in missing(document, names)]
    print("\n".join(wrong) or "every file that a document names exists")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
