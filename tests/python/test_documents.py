"""Every Python snippet of the documents, in their order, each document in one namespace."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "documents"))

from blocks import blocks, documents  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = {"attn.torch": "torch", "attn.score_function(": "numba"}  # what a snippet that says this needs


def snippets(document):
    return [block for block in blocks(document) if block.language == "python" and not block.reason_not_run]


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("document", [d for d in documents(ROOT) if snippets(d)], ids=lambda d: d.name)
def test_snippets_run(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    for shared in ("examples", "build/smollm2"):  # as the documents' commands have them
        (tmp_path / shared).symlink_to(ROOT / shared)
    for block in snippets(document):
        for text, module in NEEDS.items():
            if text in block.text:
                pytest.importorskip(module)
    namespace = {}
    for block in snippets(document):
        exec(compile(block.text, block.place, "exec"), namespace)
