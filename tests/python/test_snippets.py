"""The PyTorch code that a page of `attn report` holds to take away, run: its numbers are those of the page."""

import re
import subprocess
import sys

import pytest
from pages import data_of, steps_of

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.no_sanitizer  # PyTorch computes, and the command is a child process

MODULES = [
    "simple", "average", "self-v1", "self-v2", "self-v2 --qkv-bias", "head", "head --layer-order qkv", "causal",
    "causal --no-mask", "causal --layer-order kqv", "heads", "heads --heads 3 --no-mask --qkv-bias", "multihead",
    "multihead --d-out 8 --heads 4 --qkv-bias", "multihead --no-mask --no-out-proj", "multihead --scale 0.3",
    "multihead --d-out 8 --rope --seed 5", "multihead --d-out 8 --rope --rope-theta 50 --heads 1", "cross",
    "cross --d-out 6 --heads 3 --qkv-bias", "cross --no-out-proj", "latent --d-out 8", "latent --d-out 8 --rope",
    "latent --d-out 8 --query-latent 3 --no-mask", "linear", "linear --d-out 6 --heads 3", "linear --no-out-proj", "delta",
    "delta --d-out 8 --heads 2", "delta --no-out-proj", "gated-delta", "gated-delta --d-out 8 --heads 2",
]  # fmt: skip


@pytest.mark.parametrize("line", MODULES)
def test_its_numbers_are_those_of_the_page(line, tmp_path):
    file = tmp_path / "page.html"
    subprocess.run([sys.executable, "-m", "attn", "report", *line.split(), "--output", file], check=True, capture_output=True)
    page = file.read_text()
    steps = {name: torch.from_numpy(values.copy()) for name, values in steps_of(page).items()}
    (code,) = (snippet for snippet in data_of(page)["snippets"] if snippet["id"] == "snippet-torch")
    # The page puts the input's numbers where a line says @inputs, and a source's by @source.
    written = [text for text in code["lines"] if not text.startswith("@")]
    names = {"x": steps["inputs"], "source": steps.get("source")}
    exec("\n".join(written), names)
    printed = eval(re.fullmatch(r"print\((.+)\)", written[-1])[1], names)
    last = steps[next(name for name in ("output", "merged", "context") if name in steps)]
    torch.testing.assert_close(printed.reshape(last.shape), last, atol=1e-6, rtol=1e-5)
