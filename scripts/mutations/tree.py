"""The copy of the tree in which lines are broken, and its build: build/mutate/source.

Where mounts are allowed, what builds and tests it sees the copy in the tree's own place. All paths are then those that
build/default was built with, and its objects are taken as they are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

UNKNOWN = 200  # seconds, of a program that was not yet seen to pass
OVER_UNITS = ("kernels", "recurrence")  # programs that go over the units by themselves
BUILD = Path("build") / "default"

# Runs a command ($5 and on, in the folder $4) for which the copy of the tree ($2) stands where the tree ($1) is, and the
# copy's build ($3, within both) where its build is. What else the tree's build folder has stays visible.
IN_PLACE = """
cd "$2"
for each in *; do [ "$each" = build ] || mount --bind "$each" "$1/$each" || exit; done
mount --bind "$3" "$1/$3" && cd "$4" && shift 4 && exec "$@"
"""


@dataclasses.dataclass
class Mutation:
    file: str
    programs: list[str]
    where: str  # in tests/mutations, or the line that it was drawn for
    before: str = ""
    after: str | None = None
    explained: str = ""
    line: int | None = None  # from 0, of one that was drawn: its text may be there twice
    briefly: bool = False  # the likeliest tests of its programs are run alone

    def name(self) -> str:
        return f"{self.file}: {self.before.strip()} -> {(self.after or '').strip()}"

    def title(self) -> str:
        return self.name() if self.line is None else f"{self.file}:{self.line + 1}{self.name().removeprefix(self.file)}"

    @property
    def unit(self) -> str:
        """A source of the units is broken in the copy of one, and tested there: all would take minutes to compile. Headers
        beside the units' folders are the rest of the program's, too."""
        if not re.match(r"src/kernels/(?:\w+/.*\.[ch]pp|unit\.cpp)$", self.file):
            return ""
        return "avx512bf16" if re.search("/(?:bf16|vdpbf16)/", self.file) else "avx2"

    def matches(self, patterns: list[str]) -> bool:
        return not patterns or any(re.search(p, self.name()) for p in patterns)

    def fits(self, text: str) -> str:
        """Tells what is wrong with it, for the text of its file; nothing if all is well."""
        if not self.before or self.after is None or self.before == self.after:
            return "expected a line with - and one with + that differ"
        if self.line is not None:
            return "" if text.split("\n")[self.line] == self.before else f"expected another line {self.line + 1}"
        count = text.count(self.before)
        return "" if count == 1 else f"expected its text once in {self.file}; found {count} times"

    def broken(self, text: str) -> str:
        if self.line is None:
            return text.replace(self.before, self.after)
        lines = text.split("\n")
        return "\n".join(lines[:self.line] + [self.after] + lines[self.line + 1:])


def of(program: str, unit: str) -> str:
    return f"{program} on {unit}" if unit else program


class Tree:
    def __init__(self, root: Path, work: Path, python: str | None, jobs: int) -> None:
        self.root, self.work, self.python, self.jobs = root, work, python, jobs
        self.source = work / "source"
        self.build = self.source / BUILD
        self.log = work / "log.txt"
        # By program and unit: the seconds that all of its tests have taken, from which follows how long they may take (a
        # loop that never ends is caught), and the tests that caught something, the last one first. These were seen to
        # pass unbroken.
        self.times = work / "seconds.json"
        self.seconds: dict[str, float] = json.loads(self.times.read_text()) if self.times.exists() else {}
        self.catchers: dict[str, list[str]] = {}
        self.uses: dict[str, list[str]] = {}  # by file, the objects that it is compiled into
        self.kept = work / "kept"  # objects as they were before the mistake that is tried
        # Where the copy is to what runs in it.
        self.unshare = ["unshare", "--mount"] + (["--map-root-user"] if os.geteuid() else [])
        self.place = self.root if (root / BUILD / "build.ninja").exists() and self.may_mount() else self.source

    def may_mount(self) -> bool:
        try:
            return self.run([*self.unshare, "mount", "--bind", str(self.root), str(self.root)])[0]
        except FileNotFoundError:
            return False

    def inside(self, command: list[str], folder: str | Path = "", timeout: float | None = None, **options) -> tuple[bool, str]:
        """Runs it in a folder of the copy."""
        if self.place == self.source:
            return self.run(command, timeout, cwd=self.source / folder, **options)
        names = [str(self.root), str(self.source), str(BUILD), str(self.root / folder)]
        return self.run(command, timeout, [*self.unshare, "sh", "-c", IN_PLACE, "sh", *names], **options)

    def run(self, command: list[str], timeout: float | None = None, before: Sequence[str] = (), **options) -> tuple[bool, str]:
        """Whether it succeeds, and what it prints."""
        start = time.monotonic()
        with subprocess.Popen([*before, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              start_new_session=True, **options) as process:
            try:
                text, _ = process.communicate(timeout=timeout)
                passed = process.returncode == 0
            except subprocess.TimeoutExpired:  # with all that it has started
                os.killpg(process.pid, 9)
                process.communicate()
                passed, text = False, f"took more than {timeout:.0f} s\n"
        with self.log.open("a") as log:
            print(f"$ {time.monotonic() - start:.1f} s:", *command, file=log)
            log.write(text)
        return passed, text

    def prepare(self) -> None:
        """The files of the tree, as they are: those that differ are written, so that little is built again."""
        self.put_back()  # what an interrupted run has left
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.root, check=True, text=True,
                                stdout=subprocess.PIPE).stdout.splitlines()
        for name in listed:
            here, there = self.root / name, self.source / name
            if not here.is_file():
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            if not there.exists() or there.read_bytes() != here.read_bytes():
                (shutil.copy if there.exists() else shutil.copy2)(here, there)
        copied = [p for folder in ("src", "tools", "tests", "python") for p in (self.source / folder).rglob("*") if p.is_file()]
        for path in copied:
            if not (self.root / path.relative_to(self.source)).exists():
                path.unlink()
        cache = self.build / "CMakeCache.txt"
        if cache.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={self.place}\n" not in cache.read_text():
            shutil.rmtree(self.build)  # it was built for another place
        begins = not cache.exists()
        if begins and self.place == self.root:
            shutil.copytree(self.root / BUILD, self.build, symlinks=True, dirs_exist_ok=True)
        options = []
        if self.python:
            nanobind = subprocess.run([self.python, "-m", "nanobind", "--cmake_dir"], check=True, text=True,
                                      stdout=subprocess.PIPE).stdout.strip()
            options += ["-DATTN_PYTHON=ON", f"-DPython_EXECUTABLE={shutil.which(self.python)}", f"-Dnanobind_DIR={nanobind}"]
        options.append("-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST")
        if not self.inside(["cmake", "--preset", "default", *options])[0]:
            sys.exit(f"the copy cannot be configured: see {self.log}")
        if begins and not self.builds(["all"]):  # what each object is made of, self.uses, is known afterwards
            sys.exit(f"the copy does not compile as it is: see {self.log}")

    def builds(self, targets: list[str]) -> bool:
        command = ["cmake", "--build", str(BUILD), "-j", str(self.jobs), "--target", *targets]
        return not targets or self.inside(command)[0]

    def compiles(self, program: str) -> bool:
        name = program.partition(":")[0]
        if name != "python":
            return self.builds([f"test_{name}"])
        package = self.build / "package" / "attn"
        if not self.builds(["_attn", "attn_command"]):
            return False
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(self.source / "python" / "attn", package)
        for module in (self.build / "python").glob("_attn*.so"):
            shutil.copy(module, package)
        (package / "bin").mkdir()
        shutil.copy(self.build / "attn", package / "bin")
        return True

    def runs(self, program: str, unit: str, first: list[str] | None = None) -> tuple[bool, str]:
        """Whether the program passes, or its tests named first alone, and what it prints."""
        name, _, tests = program.partition(":")
        limit = 60 + 4 * self.seconds.get(of(program, unit), UNKNOWN)
        if name == "python":
            chosen = first or (["tests/python", "-k", tests] if tests else ["tests/python"])
            return self.inside([self.python, "-m", "pytest", "-x", "-rf", "-p", "no:cacheprovider", *chosen], timeout=limit,
                               env=os.environ | {"PYTHONPATH": str(self.place / BUILD / "package")})
        command = [f"./test_{name}", "--gtest_fail_fast"]
        if unit and name in OVER_UNITS:
            tests = f"*/{unit}"
        elif unit:
            command.append(f"--unit={unit}")
        tests = ":".join(first or []) or tests
        return self.inside(command + ([f"--gtest_filter={tests}"] if tests else []), BUILD / "tests", limit,
                           env=os.environ | {"OMP_WAIT_POLICY": "passive"})

    def catches(self, program: str, m: Mutation) -> str:
        """The test that fails, or in which the program ends; empty where all pass. Tests that caught another mistake are
        tried first, and those whose name has a word of the file's or of its folder's."""
        words = [word for word in [*Path(m.file).parts[2:-1], *Path(m.file).stem.split("_")] if len(word) > 2]
        likely = self.catchers.setdefault(of(program, m.unit), [])[:20]
        if program == "python":
            likely += {f"tests/python/{path.name}" for word in words
                       for path in (self.source / "tests" / "python").glob(f"test_*{word}*.py")}
        elif not program.startswith("python"):
            likely += [f"*{word.capitalize()}*{'/' + m.unit if m.unit and program in OVER_UNITS else ''}" for word in words]
        passed, text = self.runs(program, m.unit, likely) if likely and ":" not in program else (True, "")
        if passed and m.briefly:
            return ""
        if passed:
            start = time.monotonic()
            passed, text = self.runs(program, m.unit)
            if passed:
                self.seconds[of(program, m.unit)] = time.monotonic() - start
                self.times.write_text(json.dumps(self.seconds, indent=1))
                return ""
        failed = re.findall(r"^(?:\[  FAILED  \]|FAILED) ([\w/.:-]+)", text, re.MULTILINE)
        failed = failed or re.findall(r"^\[ RUN      \] ([\w/.]+)", text, re.MULTILINE)[-1:]
        failed = failed or ["::".join(at) for at in re.findall(r'"\S+/(tests/python/\w+\.py)", line \d+ in (test_\w+)', text)]
        return failed[0] if failed else "all"

    def passes_unbroken(self, program: str, m: Mutation, test: str) -> bool:
        """Whether the test passes without the mistake; one that fails unbroken catches nothing."""
        known = self.catchers[of(program, m.unit)]
        if test in known:
            known.remove(test)
        elif not self.compiles(program) or not self.runs(program, m.unit, [test] if test != "all" else None)[0]:
            return False
        known.insert(0, test)
        return True

    def objects(self, m: Mutation) -> list[str]:
        """The object files that the file is compiled into, tests' too; with a unit, those of that unit's kernels alone."""
        if not self.uses:
            _, text = self.run(["ninja", "-t", "deps"], cwd=self.build)
            build = self.place / BUILD
            for block in text.split("\n\n"):
                target, *files = block.split("\n")
                name = target.partition(":")[0]
                if re.match(r"(?:src|tools|python|tests)/.*\.o$", name):
                    for file in files:
                        self.uses.setdefault(os.path.relpath(build / file.strip(), self.place), []).append(name)
        used = self.uses.get(m.file, [])
        return [name for name in used if f"/attn_kernels_{m.unit}.dir/" in name] if m.unit else used

    def digest(self, objects: list[str]) -> str:
        return hashlib.sha256(b"".join((self.build / name).read_bytes() for name in objects)).hexdigest()

    def keep(self, objects: list[str]) -> None:
        part = self.work / "part"
        shutil.rmtree(part, ignore_errors=True)
        for name in objects:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.build / name, part / name)
        if objects:
            part.rename(self.kept)

    def put_back(self) -> None:
        """The objects that were kept, with their times, as if nothing had been compiled since. Older than what was linked with
        the broken ones, they would not be linked again: that is removed."""
        objects = [str(p.relative_to(self.kept)) for p in self.kept.rglob("*") if p.is_file()]
        if not objects:
            return
        for name in objects:
            shutil.copy2(self.kept / name, self.build / name)
        _, text = self.run(["ninja", "-t", "query", *objects], cwd=self.build)
        for outputs in re.findall(r"^  outputs:\n((?:    .+\n)*)", text, re.MULTILINE):
            for name in outputs.split():
                (self.build / name).unlink(missing_ok=True)
        shutil.rmtree(self.kept)

    def breaks(self, m: Mutation, kept: str, objects: list[str]) -> bool:
        """Breaks the line, compiles the library's and the command's objects, and mends it again: to what is built from now on,
        the file is what it was before. Whether it compiles."""
        path = self.source / m.file
        times = path.stat()
        path.write_text(m.broken(kept))
        compiled = self.builds(objects)
        if objects:
            path.write_text(kept)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return compiled

    def mend(self, m: Mutation, kept: str) -> None:
        self.put_back()
        if (self.source / m.file).read_text() != kept:
            (self.source / m.file).write_text(kept)

    def outcome(self, m: Mutation) -> str:
        kept = (self.source / m.file).read_text()
        if m.fits(kept):
            return "does not fit"
        objects = self.objects(m)
        if not self.builds(objects):
            sys.exit(f"the copy does not compile as it is: see {self.log}")
        before = self.digest(objects)
        self.keep(objects)
        try:
            if not self.breaks(m, kept, objects):
                return "does not compile"
            if objects and self.digest(objects) == before:
                return "changes nothing"
            for program in m.programs:
                if not self.compiles(program):
                    return "does not compile"
                if test := self.catches(program, m):
                    self.mend(m, kept)
                    if not self.passes_unbroken(program, m, test):
                        sys.exit(f"{program}: {test} fails as it is: see {self.log}")
                    return f"caught by {program}: {test}"
            return "survived"
        finally:
            self.mend(m, kept)
