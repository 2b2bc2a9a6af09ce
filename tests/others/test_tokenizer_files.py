"""What the files beside tokenizer.json say, as transformers follows it, or refused by the name of what is meant."""

import json
import shutil

import packages
import pytest

transformers = pytest.importorskip("transformers")
SOURCE = packages.ROOT / "tests" / "text" / "data" / "tokenizers" / "qwen.json"
START = {"content": "<|im_start|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}  # fmt: skip
ID, WORD = 561, 347  # of <|im_start|>, an added token, and of "jour", which is none
TEXT = "a jourxjour <|im_start|>  b <|im_start|>b"

FOLLOWED = [
    ({}, None),
    ({"extra_special_tokens": ["jour"]}, None),
    ({"additional_special_tokens": ["jour"]}, None),
    ({"additional_special_tokens": ["jour"], "extra_special_tokens": ["<|im_end|>"]}, None),
    ({"additional_special_tokens": ["jour"], "extra_special_tokens": []}, None),
    ({"pad_token": "jour"}, None),
    ({"image_token": "jour"}, None),
    ({"unk_token": {"content": "jour", "lstrip": True, "rstrip": True, "__type": "AddedToken"}}, None),
    ({"added_tokens_decoder": {f"{ID}": {**START, "lstrip": True, "rstrip": True}}}, None),
    ({"added_tokens_decoder": {f"{ID}": {**START, "special": False}}}, None),
    ({"added_tokens_decoder": {f"{WORD}": {**START, "content": "jour"}}}, None),
    ({}, {"jour": WORD}),
    ({"eos_token": "jour"}, {"jour": WORD}),
    ({"auto_map": {"AutoModel": "code.Model"}}, None),
    ({"add_prefix_space": False, "legacy": True, "model_max_length": 7, "padding_side": "left", "chat": None}, None),
]
REFUSED = [
    ({"added_tokens_decoder": {"7": START}}, None, "<|im_start|>"),
    ({"added_tokens_decoder": {"900": {**START, "content": "zz"}}}, None, "zz"),
    ({"added_tokens_decoder": {"x": START}}, None, "id"),
    ({"added_tokens_decoder": {"7": 3}}, None, "added_tokens_decoder"),
    ({"added_tokens_decoder": {f"{ID}": {**START, "of": 1}}}, None, "of"),
    ({}, {"jour": WORD + 1}, "jour"),
    ({}, {"zz": 900}, "zz"),
    ({"add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"}, None, "add_prefix_space"),
    ({"fix_mistral_regex": True}, None, "fix_mistral_regex"),
    ({"key_of_tomorrow": 1}, None, "key_of_tomorrow"),
    ({"auto_map": {"AutoTokenizer": [None, "code.Tokenizer"]}}, None, "code.Tokenizer"),
    ({"auto_map": {"AutoTokenizer": "code.Tokenizer"}}, None, "code.Tokenizer"),
    ({"auto_map": ["code.Tokenizer", None]}, None, "code.Tokenizer"),
]


@pytest.fixture
def ids(attn, tmp_path):
    """What the command says of the text with a folder's files, as subprocess.run() gives it."""

    def run(config, added):
        shutil.copy(SOURCE, tmp_path / "tokenizer.json")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        if added is not None:
            (tmp_path / "added_tokens.json").write_text(json.dumps(added))
        return attn("tokens", "--tokenizer", tmp_path, "--json", TEXT)

    return run


@pytest.mark.parametrize("config, added", FOLLOWED)
def test_what_is_followed_gives_transformers_ids(config, added, ids, tmp_path):
    ran = ids(config, added)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["ids"] == transformers.AutoTokenizer.from_pretrained(tmp_path)(TEXT).input_ids


@pytest.mark.parametrize("config, added, named", REFUSED)
def test_what_is_not_followed_is_refused_by_name(config, added, named, ids):
    ran = ids(config, added)
    assert ran.returncode == 3 and f"{named}" in ran.stderr, ran.stderr


def test_code_for_a_tokenizer_is_refused(cute_tokenizer, attn):
    """Its class puts letters of its own in place of words, so that tokenizer.json alone gives other ids."""
    ran = attn("tokens", "--tokenizer", cute_tokenizer, "def hello(): return 42")
    assert ran.returncode == 3 and "CUTETokenizerFast" in ran.stderr, ran.stderr


@pytest.mark.parametrize("kind, name, text", [("granite", "GPT2Tokenizer", "2023 650841823"), ("llama2", "LlamaTokenizer", "<s>G")])
def test_ids_are_those_of_tokenizer_json(kind, name, text, attn, tmp_path):
    """transformers 5.24 builds these anew from the class; docs/tokenizers.md tells so."""
    shutil.copy(SOURCE.with_name(f"{kind}.json"), tmp_path / "tokenizer.json")

    def theirs(name):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        return transformers.AutoTokenizer.from_pretrained(tmp_path)(text).input_ids

    package, anew = theirs("PreTrainedTokenizerFast"), theirs(name)
    ran = attn("tokens", "--tokenizer", tmp_path, "--json", text)
    assert json.loads(ran.stdout)["ids"] == package != anew
