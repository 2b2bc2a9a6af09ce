"""Token ids of tokenizer.json and of GGUF vocabularies beside the tokenizers package's, on texts drawn on the spot."""

import json
import random
import subprocess
import sys

import pytest
from conftest import ROOT

tokenizers = pytest.importorskip("tokenizers")

sys.path.insert(0, str(ROOT / "tests" / "text"))
from hostile import Texts, drawn_seed  # noqa: E402

FOLDER = ROOT / "tests" / "text" / "data" / "tokenizers"
KINDS = sorted(path.stem for path in FOLDER.glob("*.json"))
COUNT = 10_000


@pytest.fixture(scope="module")
def texts():
    seed = drawn_seed()
    packages = [tokenizers.Tokenizer.from_file(str(FOLDER / f"{kind}.json")) for kind in KINDS]
    added = {token.content for package in packages for token in package.get_added_tokens_decoder().values()}
    source = Texts(random.Random(seed), sorted(added))
    return [source.text() for _ in range(COUNT)]


def answers(tokenizer, questions, folder):
    lines = folder / "lines"
    lines.write_text("".join(json.dumps(question) + "\n" for question in questions))
    command = [sys.executable, "-m", "attn", "tokens", "--tokenizer", tokenizer, "--lines", lines]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.split("\n")[:-1]]


def beside_the_package(tokenizer, package, texts, folder):
    ids = [package.encode(text).ids for text in texts]
    for text, mine, theirs in zip(texts, answers(tokenizer, texts, folder), ids, strict=True):
        assert mine == theirs, ascii(text)
    decoded = [package.decode(row, skip_special_tokens=False) for row in ids]
    for row, mine, theirs in zip(ids, answers(tokenizer, ids, folder), decoded, strict=True):
        assert mine == theirs, row


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_the_packages(kind, texts, tmp_path):
    path = FOLDER / f"{kind}.json"
    beside_the_package(path, tokenizers.Tokenizer.from_file(str(path)), texts, tmp_path)


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("kind", ["gpt2", "smollm", "llama3", "qwen", "granite"])
def test_any_ids_of_bytes_are_the_packages_text(kind, tmp_path):
    """Ids that no text has; what is no UTF-8 is U+FFFD."""
    package = tokenizers.Tokenizer.from_file(str(FOLDER / f"{kind}.json"))
    seed = drawn_seed()
    rng = random.Random(seed)
    ids = [[rng.randrange(package.get_vocab_size()) for _ in range(rng.randrange(20))] for _ in range(2000)]
    for row, mine in zip(ids, answers(FOLDER / f"{kind}.json", ids, tmp_path), strict=True):
        assert mine == package.decode(row, skip_special_tokens=False), row


# ---- vocabularies in GGUF files ----------------------------------------------------------------

BYTE_LEVEL = {"gpt2": ["gpt-2"], "smollm": ["smollm", "starcoder", "refact"],
              "llama3": ["llama-bpe", "llama3", "smaug-bpe"], "qwen": ["qwen2"]}  # fmt: skip


def description(kind):
    """A tokenizer.json whose added tokens say no more than a GGUF file can say of them."""
    whole = json.loads((FOLDER / f"{kind}.json").read_text())
    for token in whole["added_tokens"]:
        token.update(lstrip=False, rstrip=False, normalized=False)
    return whole


def package_of(whole):
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


def write_gguf(path, whole, model, **more):
    """`more` are further keys: tokenizer_pre="gpt-2" is add_tokenizer_pre("gpt-2")."""
    gguf = pytest.importorskip("gguf")
    package = package_of(whole)
    special = {token["id"]: token["special"] for token in whole["added_tokens"]}
    kinds = {True: gguf.TokenType.CONTROL, False: gguf.TokenType.USER_DEFINED}
    tokens = [package.id_to_token(i) for i in range(package.get_vocab_size())]
    types = [kinds[special[i]] if i in special else gguf.TokenType.NORMAL for i in range(len(tokens))]
    for i, token in enumerate(tokens):
        if model == "llama" and token.startswith("<0x"):
            types[i] = gguf.TokenType.BYTE
    if "<unk>" in tokens:
        types[tokens.index("<unk>")] = gguf.TokenType.UNKNOWN
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for key, value in more.items():
        getattr(writer, f"add_{key}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("kind, pre", [(kind, pre) for kind, names in BYTE_LEVEL.items() for pre in names])
def test_byte_level_vocabularies_in_gguf(kind, pre, texts, tmp_path):
    whole = description(kind)
    package = package_of(whole)
    more = {"token_merges": [" ".join(pair) for pair in whole["model"]["merges"]], "tokenizer_pre": pre}
    if kind == "llama3":
        more |= {"bos_token_id": package.token_to_id("<|begin_of_text|>"), "add_bos_token": True}
    few = texts if pre == BYTE_LEVEL[kind][0] else texts[:500]
    beside_the_package(write_gguf(tmp_path / "x.gguf", whole, "gpt2", **more), package, few, tmp_path)


def scored(whole, scores):
    """With the merges that SentencePiece's scores say: every way to make a token of two, the highest score first."""
    convert = pytest.importorskip("transformers.convert_slow_tokenizer")
    whole["model"]["merges"] = convert.generate_merges(whole["model"]["vocab"], scores)
    return whole


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("kind, begin", [("llama2", "<s>"), ("gemma", "<bos>")])
def test_scored_vocabularies_in_gguf(kind, begin, texts, tmp_path):
    whole = description(kind)
    vocabulary = whole["model"]["vocab"]  # any token of a GGUF file may come of merges: in released models they do
    vocabulary |= {token["content"]: token["id"] for token in whole["added_tokens"]}
    whole = scored(whole, {token: -float(i) for token, i in vocabulary.items()})
    package = package_of(whole)
    more = {"token_scores": [-float(i) for i in range(package.get_vocab_size())], "unk_token_id": 0,
            "bos_token_id": package.token_to_id(begin), "add_space_prefix": kind == "llama2"}  # fmt: skip
    beside_the_package(write_gguf(tmp_path / "x.gguf", whole, "llama", **more), package, texts, tmp_path)


@pytest.mark.no_sanitizer
def test_sentencepieces_vocabulary_in_gguf(texts, tmp_path):
    """Scores of SentencePiece's own training, many of them equal."""
    path = FOLDER / "sentencepiece.gguf"
    fields = pytest.importorskip("gguf").GGUFReader(path).fields
    tokens, scores = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "scores"))
    whole = description("llama2")
    whole["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
    whole["added_tokens"] = [token for token in whole["added_tokens"] if token["special"]]
    beside_the_package(path, package_of(scored(whole, dict(zip(tokens, scores)))), texts, tmp_path)
