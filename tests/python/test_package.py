"""What is installed: quick to import, typed, and a command."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import attn

PACKAGE = pathlib.Path(attn.__file__).parent


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@pytest.mark.no_sanitizer
def test_import_is_quick_and_brings_no_framework():
    """Modules are counted, not milliseconds, which depend on what else the machine does."""
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; before = set(sys.modules); import attn\n"
        "print(*[name for name in sys.modules if name not in before])"
    )
    found = run("-S", "-c", code).stdout.split()
    frameworks = {"numpy", "torch", "jax", "numba", "typing", "inspect", "json", "html"}
    assert "attn" in found and not frameworks & set(found)
    assert len([name for name in found if not name.startswith("attn")]) <= 30, found


def test_version_and_names():
    assert attn.__version__.count(".") == 2
    assert all(hasattr(attn, name) for name in attn.__all__)


def test_the_readmes_snippet():
    code, = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    assert names["out"].shape == names["q"].shape and names["out"].dtype == names["q"].dtype


def test_the_documented_calls():
    """docs/python.md's first two: of the operator and of a score function."""
    pytest.importorskip("numba")
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)[:2]
    names = {}
    exec(first + second, names)
    assert names["rows"].shape == (1, 8, 2, 1024) and names["lse"].shape == (1, 8, 1024)


def test_command():
    result = run("-m", "attn", "--version")
    if (PACKAGE / "bin" / "attn").exists():
        assert result.stdout == f"attn {attn.__version__}\n" and result.returncode == 0
        assert json.loads(run("-m", "attn", "info", "--json").stdout)
        assert run("-m", "attn", "nonsense").returncode == 2
    else:
        assert result.returncode == 3 and "without the command" in result.stderr


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs it with one cache for all. It takes a minute to read PyTorch, and so does that at night alone."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("mypy")
    unread = "" if os.environ.get("ATTN_NIGHTLY") else "[mypy-torch.*,transformers.*]\nfollow_imports = skip\n"
    (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n" + unread)
    return lambda *given: run("-m", "mypy", "--config-file", folder / "mypy.ini", "--cache-dir", folder / "cache", *given)


@pytest.mark.no_sanitizer
def test_the_package_itself_is_well_typed(mypy):
    result = mypy("-p", "attn")
    assert result.returncode == 0, result.stdout


@pytest.mark.no_sanitizer
def test_types(mypy, tmp_path):
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_attn.pyi").exists()
    use = tmp_path / "use.py"
    use.write_text(
        "import attn, numpy as np\n"
        "x = np.ones((2, 3), np.float32)\n"
        "m = attn.MultiHeadAttention(3, 4, 6, 0.0, num_heads=2)\n"
        "m(x)\n"
        "attn.scaled_dot_product_attention(x, x, x, is_causal=True, window=(3, 0))\n"
        "attn.manual_seed(1).rand(2, 3)\n"
    )
    good = mypy(str(use))
    assert good.returncode == 0, good.stdout
    use.write_text("import attn\nattn.MultiHeadAttention('three', 4, 6, 0.0, 2)\nattn.nothing\n")
    bad = mypy(str(use))
    assert bad.stdout.count("error:") == 2, bad.stdout
