"""The command's token ids beside the tokenizers package's, on texts drawn on the spot."""

import json
import random
import subprocess
import sys

import pytest
from conftest import ROOT

tokenizers = pytest.importorskip("tokenizers")

sys.path.insert(0, str(ROOT / "tests" / "text"))
from hostile import Texts  # noqa: E402

FOLDER = ROOT / "tests" / "text" / "data" / "tokenizers"
KINDS = sorted(path.stem for path in FOLDER.glob("*.json"))
COUNT = 10_000


@pytest.fixture(scope="module")
def texts():
    seed = random.randrange(2**32)
    print("seed", seed)
    packages = [tokenizers.Tokenizer.from_file(str(FOLDER / f"{kind}.json")) for kind in KINDS]
    added = {token.content for package in packages for token in package.get_added_tokens_decoder().values()}
    source = Texts(random.Random(seed), sorted(added))
    return [source.text() for _ in range(COUNT)]


def answers(kind, questions, folder):
    lines = folder / "lines"
    lines.write_text("".join(json.dumps(question) + "\n" for question in questions))
    command = [sys.executable, "-m", "attn", "tokens", "--tokenizer", FOLDER / f"{kind}.json", "--lines", lines]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.split("\n")[:-1]]


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_the_packages(kind, texts, tmp_path):
    package = tokenizers.Tokenizer.from_file(str(FOLDER / f"{kind}.json"))
    ids = [package.encode(text).ids for text in texts]
    for text, mine, theirs in zip(texts, answers(kind, texts, tmp_path), ids, strict=True):
        assert mine == theirs, ascii(text)
    decoded = [package.decode(row, skip_special_tokens=False) for row in ids]
    for row, mine, theirs in zip(ids, answers(kind, ids, tmp_path), decoded, strict=True):
        assert mine == theirs, row


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("kind", ["gpt2", "smollm", "llama3", "qwen", "granite"])
def test_any_ids_of_bytes_are_the_packages_text(kind, tmp_path):
    """Ids that no text has; what is no UTF-8 is U+FFFD."""
    package = tokenizers.Tokenizer.from_file(str(FOLDER / f"{kind}.json"))
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    ids = [[rng.randrange(package.get_vocab_size()) for _ in range(rng.randrange(20))] for _ in range(2000)]
    for row, mine in zip(ids, answers(kind, ids, tmp_path), strict=True):
        assert mine == package.decode(row, skip_special_tokens=False), row
