"""examples/attention.ipynb is what its script makes, runs, and prints what it printed."""

import importlib.util
import re

import pytest
from conftest import ROOT

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("attention_notebook", ROOT / "examples" / "attention_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(text):
    return [float(n) for n in re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?", text)]


@pytest.mark.no_sanitizer
def test_the_notebook(script, tmp_path):
    committed = nbformat.read(script.PATH, as_version=4)
    nbformat.validate(committed)
    assert [c.source for c in committed.cells] == [c.source for c in script.build().cells]
    fresh = script.execute(script.build(), tmp_path)
    assert (tmp_path / "attention-report.html").stat().st_size > 10_000
    old, new = script.pictures(committed), script.pictures(fresh)
    assert len(old) == len(new) == 4
    for before, after in zip(old, new):
        assert "journey" in before and before.count("<") == after.count("<")
    for old, new in zip(script.outputs(committed), script.outputs(fresh)):
        # The last printed digit may round differently on another processor.
        assert numbers(old) == pytest.approx(numbers(new), abs=2e-4, rel=2e-3)
        assert re.sub(r"[-\d. e+]+", "", old) == re.sub(r"[-\d. e+]+", "", new)


def test_it_prints_what_the_seed_notebooks_print(script):
    text = "".join(script.outputs(nbformat.read(script.PATH, as_version=4)))
    for name in ("000", "001", "002", "003", "004"):
        printed = (ROOT / f"tools/attn/check/printed/{name}.inc").read_text()
        lines = {line.strip().rstrip(",").strip("[]") for line in text.splitlines() if "0." in line}
        theirs = [line for line in printed.splitlines() if any(part and part in line for part in lines)]
        assert len(theirs) > 4, name
