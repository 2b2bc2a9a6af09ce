"""Every value of a tokenizer.json, one at a time: what it changes in the tokenizers package it changes here, or it is refused.

Where the package refuses a file for want of a field, attn may have a default.
"""

import copy
import json
import random
import sys

import packages
import pytest

tokenizers = pytest.importorskip("tokenizers")
sys.path.insert(0, str(packages.ROOT / "tests" / "text"))
from hostile import Texts, drawn_seed  # noqa: E402

DATA = packages.ROOT / "tests" / "text" / "data" / "tokenizers"
NAMES = "gpt2 llama2 llama3 qwen gemma mistral bert words smollm granite unknown".split()
DELETED = object()
OTHERS = {
    "Isolated": ["Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"], "Removed": ["Isolated", "Contiguous"],
    "always": ["first", "never"], "first": ["always", "never"], "never": ["first", "always"], "NFC": ["NFD", "NFKC"],
}  # fmt: skip
STEPS = [{"type": "NFC"}, {"type": "Lowercase"}, {"type": "Digits", "individual_digits": True},
         {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}]  # fmt: skip


def others(value):
    """What could stand in place of a value."""
    kinds = {
        bool: lambda: [not value],
        int: lambda: [value + 1, 0, value - 1],
        str: lambda: ["", "x", value + "x", " ", "\u2581", *OTHERS.get(value, [])],
        list: lambda: [value + value, value[::-1], [*value[1:], *value[:1]], []],
        dict: lambda: [{}],
        type(None): lambda: [True, 1, "x", {}, [], *STEPS],
    }
    return [None, DELETED, *kinds[type(value)]()]


def places(value, path=()):
    """Paths to all values but those of the vocabulary and the merges; of long lists of added tokens, of the first four."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, inner in entries:
        if (*path, key) not in (("model", "vocab"), ("model", "merges")):
            yield (*path, key)
            yield from places(inner, (*path, key))


def changes(whole):
    """(what is changed, the file with it)"""
    for path in places(whole):
        value = whole
        for step in path:
            value = value[step]
        for new in others(value):
            changed = copy.deepcopy(whole)
            at = changed
            for step in path[:-1]:
                at = at[step]
            if new is DELETED:
                del at[path[-1]]
            else:
                at[path[-1]] = new
            yield f"{path}: {'nothing' if new is DELETED else json.dumps(new)[:200]}", changed


@pytest.mark.parametrize("name", NAMES)
def test_each_value_of_a_tokenizer_json(name, attn, tmp_path):
    whole = json.loads((DATA / f"{name}.json").read_text())
    source = Texts(random.Random(drawn_seed()), [*(token["content"] for token in whole["added_tokens"][:6]), "##ing"])
    texts = [*(source.text() for _ in range(40)), "Hello world", "  a  b ", "x1234567 8", "", "e\u0301 \u00dcn\u00ef", "a</s> b"]
    file, questions = tmp_path / "tokenizer.json", tmp_path / "lines"

    def ask(lines):
        questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
        ran = attn("tokens", "--tokenizer", file, "--lines", questions)
        assert ran.returncode in (0, 3), ran.stderr
        return [json.loads(line) for line in ran.stdout.split("\n")[:-1]] if ran.returncode == 0 else None

    wrong, followed = [], 0
    for what, changed in [("as it is", whole), *changes(whole)]:
        file.write_text(json.dumps(changed))
        mine = ask(texts)
        assert mine or what != "as it is"
        if not mine:
            continue
        try:
            package = tokenizers.Tokenizer.from_file(str(file))
            package.no_padding()
            package.no_truncation()
            ids = [package.encode(text).ids for text in texts]
            there = [package.decode(row, skip_special_tokens=False) for row in ids]
        except BaseException as error:  # noqa: BLE001: Exception itself, and panics, which are none
            if isinstance(error, KeyboardInterrupt):
                raise
            continue
        back = ask(ids)  # no ids where a step adds some that the vocabulary lacks
        followed += 1
        if mine != ids or (back and back != there):
            wrong += [what, *((text, a, b) for text, a, b in zip(texts, mine, ids) if a != b)][:3]
    print(f"{name}: {followed} followed, the others refused")
    assert not wrong
    assert followed > 30
