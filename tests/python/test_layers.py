"""The package's modules import each other in one direction: there is no circle, of lazy imports and of types' either."""

import ast
import graphlib

import pytest
from conftest import ROOT

PACKAGE = ROOT / "python"


def modules():
    """{name: file}; attn._attn, which is compiled, imports none of them."""
    files = {file.relative_to(PACKAGE).with_suffix("").parts: file for file in (PACKAGE / "attn").rglob("*.py")}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): file for parts, file in files.items()}


def imported(tree, known):
    """The modules that a file imports, wherever in it the import stands. `from package import module` is of the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from {whole if whole in known else node.module} & known


def graph(texts):
    known = {*texts, "attn._attn"}
    return {name: set(imported(ast.parse(text), known)) for name, text in texts.items()}


def test_modules_import_each_other_in_one_direction():
    found = graph({name: file.read_text() for name, file in modules().items()})
    assert {"attn", "attn._options", "attn.torch.functional"} <= found.keys()
    assert "attn._attn" in found["attn.cache"] and "attn.torch" in found["attn.transformers"]
    graphlib.TopologicalSorter(found).prepare()


@pytest.mark.parametrize("back", ["import a.b", "def f():\n    from a import b", "if TYPE_CHECKING:\n    from a.b import B"])
def test_a_circle_is_found(back):
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(graph({"a": "", "a.b": "from a import c", "a.c": back})).prepare()


def test_every_import_says_the_modules_whole_name():
    """A relative import would be none that this test sees."""
    for name, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            assert not isinstance(node, ast.ImportFrom) or node.level == 0, name
