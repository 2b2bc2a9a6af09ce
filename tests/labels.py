#!/usr/bin/env python3
"""Whether every choice of tests that presets, .ci/run and documents make finds a test.

    tests/labels.py BUILD_FOLDER

A label or a name that matches nothing would leave out in silence what it was meant to run, or run what it was meant to
leave out.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OF_ANOTHER_TREE = ("^on_neon$",)


def chosen_by_presets():
    """(place, kind, pattern) of each filter."""
    for preset in json.loads((ROOT / "CMakePresets.json").read_text())["testPresets"]:
        for side in preset.get("filter", {}).values():
            for kind, pattern in side.items():
                yield preset["name"], kind, pattern


def chosen_by_commands():
    """The same of `ctest … -R PATTERN` and `-L PATTERN` in what tells or runs commands."""
    files = [ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "HACKING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in files:
        for line in path.read_text().splitlines():
            for command in re.findall(r"ctest (?!--preset asan|--preset neon)[^`]*", line):
                for option, _, pattern in re.findall(r"-([RL]) ('?)([^' `|&;]+(?:\\?\|[^' `]+)*)\2", command):
                    if not pattern.isupper() and "$" not in pattern[:1]:
                        yield path.name, "name" if option == "R" else "label", pattern.replace("\\|", "|")


def main() -> int:
    listed = subprocess.run(["ctest", "--test-dir", sys.argv[1], "--show-only=json-v1"], capture_output=True, text=True,
                            check=True).stdout
    names, labels = set(), set()
    for test in json.loads(listed)["tests"]:
        names.add(test["name"])
        labels.update(*(p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"))
    wrong = count = 0
    for place, kind, pattern in [*chosen_by_presets(), *chosen_by_commands()]:
        # An alternative that matches nothing is a mistake, too.
        count += 1
        outer = re.fullmatch(r"\^\((.*)\)\$", pattern)
        for part in [f"^{word}$" for word in outer[1].split("|")] if outer else pattern.split("|"):
            if part not in OF_ANOTHER_TREE and not any(re.search(part, one) for one in (names if kind == "name" else labels)):
                print(f"{place}: no test's {kind} matches {part!r}")
                wrong += 1
    print(f"{count} choices, {wrong} parts of them match nothing")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
