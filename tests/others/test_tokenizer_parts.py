"""Files of the tokenizers package's own parts, drawn and put together: as the package has them, or refused.

The classes of its patterns are asked for every character of the first planes.
"""

import copy
import json
import multiprocessing
import random
import resource
import sys

import packages
import pytest

tokenizers = pytest.importorskip("tokenizers")
sys.path.insert(0, str(packages.ROOT / "tests" / "text"))
from hostile import Texts, drawn_seed  # noqa: E402

DATA = packages.ROOT / "tests" / "text" / "data" / "tokenizers"
NAMES = "gpt2 llama2 llama3 qwen gemma mistral bert words smollm granite unknown".split()
FILES = 250  # of each run; about a half are followed
PLAIN_DECODERS = [{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "ByteLevel"}]
STEP = {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
CLASSES = [r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", r"\p{L}", r"\p{N}", r"\p{P}", r"\p{M}", r"\p{Lu}", r"\p{Han}"]
PATTERNS = [*CLASSES, *(made.replace("?", c) for c in CLASSES for made in ("[?]", "[^?]", "[a?]", "[^\\n?]+", "[^?&&[^b]]")),
            r"[^\w\s]+", r"[^\S\n]", r"\b.", r"\B.", r"\s+(?!\S)",
            r"\x41", r"\x{e9}", r"\u00e9", r"[\u4e00-\u9fff]", r"[\x{1F300}-\x{1F5FF}]+", r"[\x00-\x7f]"]  # fmt: skip
TEXTS = ["Hello world", "  a  b ", "x1234567 8", "", "e\u0301 \u00dcn\u00ef", "a</s> b", "\ufb01 \u00bd \u2460 \uff71", "ab c\r\n\tx"]


class Drawn:
    """Parts of a tokenizer.json, with values of each kind."""

    def __init__(self, rng):
        self.one, self.yes, self.number = rng.choice, lambda: rng.random() < 0.5, rng.randint

    def pattern(self, *empty):  # of which some find a text of no character, at which the package may replace for ever
        regex = self.one([r"\s+", r"\d{1,3}", r"\w+|[^\w\s]+", r"[A-Z]", "a|ab", r"(?i:h)", *empty])
        return self.one([{"Regex": regex}, {"String": self.one(["a", " ", "\u2581", "ab", "the", ".", "\u00e9", "\n"])}])

    def normalizer(self):
        bert = {"clean_text": self.yes(), "handle_chinese_chars": self.yes(), "strip_accents": self.one([None, True, False])}
        return self.one([
            {"type": self.one(["NFC", "NFD", "NFKC", "Lowercase", "StripAccents", "Nmt"])},
            {"type": "Strip", "strip_left": self.yes(), "strip_right": self.yes()},
            {"type": "Replace", "pattern": self.pattern(), "content": self.one(["", "a", "\u2581", " ", "$1", "\\1"])},
            {"type": "Prepend", "prepend": self.one(["\u2581", "a"])},
            {"type": "BertNormalizer", **bert, "lowercase": self.yes()},
        ])  # fmt: skip

    def pre_tokenizer(self):
        behavior = self.one(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
        return self.one([
            {"type": self.one(["WhitespaceSplit", "Whitespace", "BertPreTokenizer", "UnicodeScripts"])},
            {"type": "Digits", "individual_digits": self.yes()},
            {"type": "Punctuation", "behavior": behavior},
            {"type": "Split", "pattern": self.pattern(r"\b", "x*", r"(?=(\d{3})+(?!\d))"), "behavior": behavior, "invert": self.yes()},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": self.one(["always", "never", "first"]),
             "split": self.yes()},
        ])  # fmt: skip

    def decoder(self):
        return self.one([
            {**self.one(PLAIN_DECODERS), **STEP},
            {"type": "Replace", "pattern": self.pattern(), "content": self.one(["", " ", "a", "\u2581"])},
            {"type": "Strip", "content": " ", "start": self.number(0, 2), "stop": self.number(0, 1)},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": self.one(["always", "never"]), "split": True},
            {"type": "WordPiece", "prefix": self.one(["##", "a"]), "cleanup": self.yes()},
        ])  # fmt: skip

    def post_processor(self, added):
        a, b = ((t["content"], t["id"]) for t in (self.one(added), self.one(added)))
        marks = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in (a, b)}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        single = [{"SpecialToken": {"id": a[0], "type_id": 0}}, text, {"SpecialToken": {"id": b[0], "type_id": 0}}]
        return self.one([
            {"type": "BertProcessing", "sep": a, "cls": b}, {"type": "ByteLevel", **STEP},
            {"type": "TemplateProcessing", "single": single[self.number(0, 1):], "pair": [text, text], "special_tokens": marks},
        ])  # fmt: skip

    def changed(self, whole):
        """The file with one or two of its parts drawn anew."""
        whole, added = copy.deepcopy(whole), whole["added_tokens"]
        bytes_last = [{"type": "ByteLevel", **STEP}] if "ByteLevel" in json.dumps(whole["pre_tokenizer"]) else []
        several = lambda draw, most: [draw() for _ in range(self.number(1, most))]  # noqa: E731
        for _ in range(self.number(1, 2)):
            part, members, steps = self.one([
                ("normalizer", "normalizers", several(self.normalizer, 3)),
                ("pre_tokenizer", "pretokenizers", several(self.pre_tokenizer, 3) + bytes_last),
                ("decoder", "decoders", several(self.decoder, 4)),
                ("post_processor", "processors", several(lambda: self.post_processor(added), 2) if added else []),
            ])  # fmt: skip
            if steps:
                whole[part] = {"type": "Sequence", members: steps}
        return whole


def of_package(connection, file, texts, pieces):
    """In a process of its own, as the package ends it for some files, and ends never for others."""
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    package = tokenizers.Tokenizer.from_file(str(file))
    ids = [package.encode(text).ids for text in texts]
    connection.send((ids, [package.decode(row, skip_special_tokens=False) for row in ids + pieces]))


def apart(*asked):
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=of_package, args=(theirs, *asked))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return None
    finally:
        process.join()


@pytest.fixture
def ask(attn, tmp_path):
    """The ids of texts, or the texts of ids; None where the file is refused."""

    def run(whole, lines):
        (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
        (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
        ran = attn("tokens", "--tokenizer", tmp_path / "tokenizer.json", "--lines", tmp_path / "lines")
        assert ran.returncode in (0, 3), ran.stderr
        return [json.loads(line) for line in ran.stdout.split("\n")[:-1]] if ran.returncode == 0 else None

    return run


def test_parts_that_are_drawn(ask, tmp_path):
    rng = random.Random(drawn_seed())
    files = {name: json.loads((DATA / f"{name}.json").read_text()) for name in NAMES}
    source = Texts(rng, sorted({token["content"] for whole in files.values() for token in whole["added_tokens"]}))
    followed, wrong = 0, []
    for _ in range(FILES):
        name = rng.choice(NAMES)
        whole = Drawn(rng).changed(files[name])
        texts = [*TEXTS, *(source.text() for _ in range(10))]
        blank = [id for token, id in whole["model"]["vocab"].items() if "\u2581" in token and "\ufffd" not in token] or [65]
        pieces = [rng.choices(blank, k=rng.randint(1, 3)) for _ in range(20)]
        mine = ask(whole, texts)
        there = mine and apart(tmp_path / "tokenizer.json", texts, pieces)
        if not there:
            continue
        followed += 1
        back = ask(whole, there[0] + pieces)
        if mine != there[0] or (back and back != there[1]):
            parts = {key: whole[key] for key in ("normalizer", "pre_tokenizer", "decoder", "post_processor")}
            rows = [*zip(texts, mine, there[0]), *zip(there[0] + pieces, back or [], there[1])]
            wrong += [f"{name}: {json.dumps(parts)}", *(row for row in rows if row[1] != row[2])][:2]
    print(f"{followed} of {FILES} followed, the others refused")
    assert not wrong, "\n".join(map(str, wrong))
    assert followed > FILES // 4


def test_classes_hold_the_same_characters(ask, tmp_path):
    """A pattern's finds are taken away, and the ids of the rest tell which characters are left."""
    whole = json.loads((DATA / "gpt2.json").read_text()) | {"added_tokens": [], "post_processor": None}
    characters = [chr(code) for code in range(1, 0x20000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(characters[i : i + 64]) for i in range(0, len(characters), 64)]
    bytes_too = {"type": "ByteLevel", **STEP, "add_prefix_space": False, "use_regex": False}
    for pattern in PATTERNS:
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
        whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, bytes_too]}
        mine = ask(whole, texts)
        package = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        there = [encoding.ids for encoding in package.encode_batch(texts)]
        wrong = [f"{ord(text[0]):x} to {ord(text[-1]):x}" for text, a, b in zip(texts, mine, there) if a != b]
        assert not wrong, pattern
