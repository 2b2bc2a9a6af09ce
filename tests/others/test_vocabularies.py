"""Vocabularies of released models beside the ids that the models' own tokenizers give."""

import json
import random
import re
import resource
import sys

import pytest
from packages import ROOT

sys.path.insert(0, str(ROOT / "tests" / "text"))
from hostile import Texts, drawn_seed  # noqa: E402

MARK = "\n__ggml_vocab_test__\n"
NAMES = """bert-bge command-r deepseek-coder deepseek-llm falcon gemma-4 gpt-2 llama-bpe llama-spm mpt phi-3 qwen2 qwen35
refact starcoder""".split()
REFUSED = {"aquila": "tokenizer.ggml.pre", "gpt-neox": "tokenizer.ggml.pre", "nomic-bert-moe": '"t5"'}


@pytest.fixture
def answers(attn, tmp_path):
    """What `attn tokens --lines` says to each question, a text or a list of ids."""

    def ask(tokenizer, questions, *flags):
        lines = tmp_path / "lines"
        lines.write_text("".join(json.dumps(question) + "\n" for question in questions))
        ran = attn("tokens", "--tokenizer", tokenizer, "--lines", lines, *flags)
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.split("\n")[:-1]]

    return ask


def test_all_vocabularies_are_named_here(llama_cpp_models):
    found = {re.sub("^ggml-vocab-", "", path.name.split(".gguf")[0]) for path in llama_cpp_models.glob("*.gguf")}
    assert found == {*NAMES, *REFUSED, "baichuan"}


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_the_expected_ones(name, llama_cpp_models, answers):
    vocabulary = llama_cpp_models / f"ggml-vocab-{name}.gguf"
    texts = (llama_cpp_models / f"{vocabulary.name}.inp").read_bytes().decode().split(MARK)
    lines = (llama_cpp_models / f"{vocabulary.name}.out").read_text().split("\n")
    expected = [[int(id) for id in line.split()] for line in lines[: len(texts)]]
    ids = answers(vocabulary, texts, "--plain")
    assert ids == expected
    if name != "bert-bge":  # which lowers letters and takes accents off
        same = [text for text in texts if name not in ("qwen2", "command-r", "mpt") or text.isascii()]
        back = dict(zip(texts, answers(vocabulary, ids)))
        assert {text: back[text] for text in same} == {text: text.lstrip(" ") if back[text] != text else text for text in same}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_by_name(name, llama_cpp_models, attn):
    ran = attn("tokens", "--tokenizer", llama_cpp_models / f"ggml-vocab-{name}.gguf", "a text")
    assert ran.returncode == 3
    assert REFUSED[name] in ran.stderr


def test_special_tokens_of_phi3_take_the_white_space_after_them(llama_cpp_models, answers):
    """Ids of microsoft/Phi-3's own tokenizer.json, whose special tokens have `rstrip`."""
    ids = answers(llama_cpp_models / "ggml-vocab-phi-3.gguf", ["<|user|>\nHi<|end|>\n<|assistant|>\n"], "--plain")
    assert ids == [[32010, 6324, 32007, 32001]]


def test_llama3_begins_a_text_without_a_key_that_says_so(llama_cpp_models, answers):
    assert answers(llama_cpp_models / "ggml-vocab-llama-bpe.gguf", ["Hello"]) == [[128000, 9906]]


@pytest.fixture(scope="module")
def words(minilm):
    """MiniLM's tokenizer, by the tokenizers package, and texts; the BERT-BGE of the GGUF files has its vocabulary."""
    tokenizers = pytest.importorskip("tokenizers")
    path = next(minilm.rglob("tokenizer.json"))
    package = tokenizers.Tokenizer.from_file(str(path))
    package.no_padding()
    package.no_truncation()
    seed = drawn_seed()
    source = Texts(random.Random(seed), ["[CLS]", "[SEP]", "[UNK]", "##ing"])
    return path, package, [source.text() for _ in range(5000)]


def test_minilm_is_the_tokenizers_package(words, answers, llama_cpp_models):
    path, package, texts = words
    ids = [package.encode(text).ids for text in texts]
    for tokenizer in (path, llama_cpp_models / "ggml-vocab-bert-bge.gguf"):
        for text, mine, theirs in zip(texts, answers(tokenizer, texts), ids, strict=True):
            assert mine == theirs, ascii(text)
    for row, mine in zip(ids, answers(path, ids), strict=True):
        assert mine == package.decode(row, skip_special_tokens=False), row


# ---- what reports of others say (reports.md) ---------------------------------------------------


def test_a_blank_after_a_special_token_is_a_token_of_its_own(llama_cpp_models, answers):
    assert answers(llama_cpp_models / "ggml-vocab-llama-spm.gguf", ["a</s> Hello"], "--plain") == [[263, 2, 29871, 15043]]


def test_many_added_tokens_take_time_by_their_number(attn, tmp_path):
    """Seconds of the process, which do not depend on what else the machine does."""
    whole = json.loads((ROOT / "tests" / "text" / "data" / "tokenizers" / "gpt2.json").read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}

    def seconds(count):
        more = [{"id": 561 + i, "content": f"[{i}]", **flags} for i in range(count)]
        (tmp_path / "tokenizer.json").write_text(json.dumps(whole | {"added_tokens": whole["added_tokens"] + more}))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        ran = attn("tokens", "--tokenizer", tmp_path / "tokenizer.json", f"a [{count - 1}]")
        assert ran.returncode == 0 and str(560 + count) in ran.stdout, ran.stderr
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    assert seconds(200_000) < 24 * seconds(25_000) + 0.1


def test_bad_lines_are_told_by_their_number(llama_cpp_models, attn, tmp_path):
    for line, found in (("{", "no JSON"), ("7", "number"), ("[1, 99999999]", "99999999"), ("[-1]", "-1")):
        (tmp_path / "lines").write_text(f'"a"\n[5]\n{line}\n')
        ran = attn("tokens", "--tokenizer", llama_cpp_models / "ggml-vocab-gpt-2.gguf", "--lines", tmp_path / "lines")
        assert ran.returncode == 3
        assert "line 3 of" in ran.stderr and found in ran.stderr
        assert ran.stdout == ""
