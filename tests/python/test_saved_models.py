"""A released model that the command has read and written is the same model to transformers."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from safetensors.torch import load_file  # noqa: E402

pytestmark = pytest.mark.no_sanitizer  # the command alone

DATA = ROOT / "tests" / "lm" / "data"
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3", "olmo2", "olmo3",
            "phi3", "granite", "minicpm3", "olmo_hybrid", "qwen3_5_text"]
GGUF = sorted(path.stem for path in (DATA / "gguf").glob("*.gguf"))
TOKENIZER = {"model": {"vocab": {"a": 1, "b": 2, "c": 3, "ab": 4, "d": 5}, "merges": ["a b"]}, "decoder": {"type": "Fuse"}}


def saved(model, folder):
    """Trained for a step whose rate is too small to change any weight."""
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "text.txt").write_text("abcd" * 60)
    command = [sys.executable, "-m", "attn", "train", "--from", model, "--tokenizer", tokenizer, "--text", "text.txt",
               "--context", "8", "--batch", "1", "--steps", "1", "--lr", "1e-30", "--min-lr", "0", "--weight-decay", "0",
               "--out", "saved"]  # fmt: skip
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return folder / "saved"


def logits(folder, ids):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype="auto")
    assert not any(info.values()), info  # missing, unexpected or misshapen
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    with torch.no_grad():
        return model.eval()(ids).logits


def beside(found, wanted, most=2e-5):
    assert (found - wanted).abs().max() <= most * wanted.abs().max()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_what_it_was(family, tmp_path):
    ids = load_file(DATA / family / "golden.safetensors")["ids"]
    wanted = logits(DATA / family, ids)
    shutil.copytree(DATA / family, tmp_path / "model")
    folder = saved(tmp_path / "model", tmp_path)
    beside(logits(folder, ids), wanted)
    config = {key: value for key, value in json.loads((DATA / family / "config.json").read_text()).items() if key != "dtype"}
    assert json.loads((folder / "config.json").read_text()) == {**config, "dtype": "float32"}


@pytest.mark.parametrize("family", ["smollm3", "phi3", "olmo_hybrid"])
def test_a_new_model_has_no_padding_token(family, tmp_path):
    """transformers' own one of these families lies beyond the 256 bytes, and it would read no such folder."""
    (tmp_path / "text.txt").write_text("abcd" * 60)
    command = [sys.executable, "-m", "attn", "train", "--text", "text.txt", "--context", "8", "--batch", "1", "--steps", "1"]
    for more in (["--family", family, "--layers", "2", "--heads", "2", "--width", "16", "--out", "new.safetensors"],
                 ["--from", "new.safetensors", "--out", "saved"]):  # fmt: skip
        ran = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    assert logits(tmp_path / "saved", torch.arange(8)[None]).shape == (1, 8, 256)


@pytest.mark.parametrize("name", GGUF)
def test_a_gguf_file_becomes_a_folder(name, tmp_path):
    """Its logits are those of the model that the file was written from."""
    golden = load_file(DATA / "gguf" / f"{name}.safetensors")
    # The deepest model's golden logits are 2.6e-5 of the largest from float64's, and those of another processor 1.2e-5.
    most = 4e-5 if name == "largest" else 2e-5
    beside(logits(saved(DATA / "gguf" / f"{name}.gguf", tmp_path), golden["ids"]), golden["logits"], most)


def test_the_text_part_of_a_model_that_reads_pictures(tmp_path):
    """Qwen3.5's whole folder, as transformers writes it: the part that reads text has Qwen3_5ForCausalLM's logits."""
    part = json.loads((DATA / "qwen3_5_text" / "config.json").read_text())
    vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": part["hidden_size"],
              "num_position_embeddings": 16}  # fmt: skip
    torch.manual_seed(3)
    model = transformers.Qwen3_5ForConditionalGeneration(transformers.Qwen3_5Config(text_config=part, vision_config=vision))
    model.save_pretrained(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "qwen3_5"
    ids = load_file(DATA / "qwen3_5_text" / "golden.safetensors")["ids"]
    with torch.no_grad():
        wanted = transformers.Qwen3_5ForCausalLM.from_pretrained(tmp_path / "model").eval()(ids).logits
    folder = saved(tmp_path / "model", tmp_path)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3_5_text"
    beside(logits(folder, ids), wanted)
