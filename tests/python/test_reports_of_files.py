"""attn report --model of released models' files: each layer's weights and the heads' names beside transformers'."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT
from pages import data_of, weights_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from test_head_names import KINDS, kinds_of  # noqa: E402
from test_saved_models import DATA, FAMILIES  # noqa: E402

pytestmark = pytest.mark.no_sanitizer
LETTERS = "abcdefgh"
TOKENIZER = {"model": {"vocab": {c: i for i, c in enumerate(LETTERS)}, "merges": []}, "decoder": {"type": "Fuse"}}


# Layers that keep a state have no weights in transformers.
@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in ("olmo_hybrid", "qwen3_5_text")])
def test_heads_and_weights(family, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    text = "abacadaegbh"
    command = [sys.executable, "-m", "attn", "report", "--model", DATA / family, "--tokenizer", tmp_path, "--text", text,
               "--output", tmp_path / "page.html"]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    html = (tmp_path / "page.html").read_text()
    page = data_of(html)
    ids = [LETTERS.index(c) for c in text]
    model = transformers.AutoModelForCausalLM.from_pretrained(DATA / family, attn_implementation="eager").eval()
    with torch.no_grad():
        once, twice = (model(torch.tensor([ids * n]), output_attentions=True).attentions for n in (1, 2))
    weights = weights_of(html)
    assert weights.shape == (len(once), 4, len(ids), len(ids))
    assert page["tokens"] == list(text) and page["repeated"] == len(ids)
    for layer, block in enumerate(page["blocks"]):
        assert abs(weights[layer] - once[layer][0].numpy()).max() <= 1e-5
        for head, found in enumerate(block["kinds"]):
            expected = kinds_of(twice[layer][0, head], ids)
            assert found == pytest.approx({kind: expected[kind] for kind in KINDS}, abs=1e-5), (layer, head)
