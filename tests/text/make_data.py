#!/usr/bin/env python3
"""Makes data/: a small byte-level BPE in GPT-2's files, and texts with the ids that others give them.

    pip install tokenizers transformers tiktoken regex numpy safetensors
    tests/text/make_data.py

Ids are of transformers' GPT2Tokenizer, and tiktoken must say the same; pieces are of GPT-2's own pattern, by the regex
package. The packages know different versions of Unicode: characters whose class they do not agree on are left out.
"""

import json
import os
import random
import sys
import unicodedata

import numpy
import regex
import tiktoken
from safetensors.numpy import save_file
from tokenizers import ByteLevelBPETokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GPT2Tokenizer

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
END = "<|endoftext|>"
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")

SENTENCES = """Your journey starts with one step, and she'll tell you what we've seen: it's 1024 tokens long, isn't it?
Attention is a weighted sum of values; the weights are a softmax of scores, they're positive and their sum is 1.
Die Gewichte sind positiv, ihre Summe ist 1; größer als 0,5 wird hier keines. Où est l'élève? À 12 h 30, déjà.
Внимание — это взвешенная сумма значений. 注意力是數值的加權和。注意は値の重み付き和です。 주의는 값의 가중합이다.
الانتباه هو مجموع موزون للقيم. תשומת לב היא סכום משוקלל. ध्यान मानों का भारित योग है। ความใส่ใจ 👩‍👩‍👧 🇫🇷 ½ Ⅷ ² ①
if (x[i] != y[i]) { return f(x, y) + 0x1f; }  // the   rest	is	blank"""


def agreed_characters():
    """Code points whose class regex, unicodedata and tokenizers agree on."""
    split = ByteLevel(add_prefix_space=False).pre_tokenize_str
    found = []
    for code in range(0x110000):
        c = chr(code)
        kind = unicodedata.category(c)
        if kind in ("Cs", "Cn"):
            continue
        letter, number, space = (bool(regex.match(p, c)) for p in (r"\p{L}", r"\p{N}", r"\s"))
        if (letter, number) != (kind[0] == "L", kind[0] == "N"):
            continue
        probe = f"a{c}a1{c}1"
        if len(split(probe)) == len(regex.findall(PATTERN, probe)):
            found.append(c)
    return found


def random_text(rng, characters, words):
    """Draws a text such as a person would write, spoiled by anything."""
    parts = []
    while len(parts) < rng.randint(1, 40):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice(words))
        elif kind < 0.6:
            parts.append("".join(rng.choice(characters) for _ in range(rng.randint(1, 6))))
        elif kind < 0.75:
            parts.append("".join(rng.choice(" \n\t\r\v\u00a0\u2003\u3000\x85\x1c") for _ in range(rng.randint(1, 5))))
        elif kind < 0.85:
            parts.append(rng.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'", "''", "'S", " '", "'x", "'l"]))
        elif kind < 0.95:
            parts.append("".join(chr(rng.randint(0, 127)) for _ in range(rng.randint(1, 8))))
        else:
            parts.append(rng.choice(["<|endoftext|>", "<|endoftext", "aaaaaaaaaaaaaaaaaaaaaaa", "0123456789", "\0"]))
    return "".join(parts)


def train(rng, characters):
    """Saves vocab.json and merges.txt in GPT-2's order: bytes, merges, end of text."""
    letters = [c for c in characters if c.isalpha()]
    lexicon = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 6))) for _ in range(200)]
    text = [" ".join(rng.choices(lexicon, [1 / (i + 1) for i in range(len(lexicon))], k=2000))]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(SENTENCES.splitlines() * 20 + text, vocab_size=512, min_frequency=2)
    trained.save_model(DATA)
    with open(os.path.join(DATA, "merges.txt"), encoding="utf-8") as file:
        merges = [line.split() for line in file.read().splitlines()[1:]]
    tokens = sorted(ByteLevel.alphabet()) + ["".join(pair) for pair in merges] + [END]
    tokens = list(dict.fromkeys(tokens))
    with open(os.path.join(DATA, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump({token: i for i, token in enumerate(tokens)}, file, ensure_ascii=False)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    rng = random.Random(seed)
    characters = agreed_characters()
    train(rng, characters)
    hugging_face = GPT2Tokenizer(os.path.join(DATA, "vocab.json"), os.path.join(DATA, "merges.txt"))
    with open(os.path.join(DATA, "vocab.json"), encoding="utf-8") as file:
        vocab = json.load(file)
    letters = sorted(ByteLevel.alphabet())
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}
    assert set(byte_of) == set(letters)
    ranks = {bytes(byte_of[c] for c in token): i for token, i in vocab.items() if token != END}
    tik = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={END: vocab[END]})

    words = SENTENCES.split()
    texts = ["", " ", "  ", " a", "  a", "a ", "a  ", "\n\na", " \n", "'", "''s", "it's", "IT'S", "a'b", " 's", END, END * 2]
    texts += SENTENCES.splitlines() + [random_text(rng, characters, words) for _ in range(100)]
    columns = {"text": [], "ids": [], "pieces": []}
    ends = {name: [] for name in columns}
    for text in texts:
        ids = hugging_face.encode(text)
        assert tik.encode(text, allowed_special="all") == ids, text
        assert hugging_face.decode(ids, clean_up_tokenization_spaces=False) == text
        columns["text"].extend(text.encode())
        columns["ids"].extend(ids)
        columns["pieces"].extend(len(piece.encode()) for piece in regex.findall(PATTERN, text))
        for name, values in columns.items():
            ends[name].append(len(values))
    types = {"text": numpy.uint8, "ids": numpy.int32, "pieces": numpy.int32}
    tensors = {name: numpy.array(values, types[name]) for name, values in columns.items()}
    tensors |= {f"{name}_ends": numpy.array(values, numpy.int32) for name, values in ends.items()}
    save_file(tensors, os.path.join(DATA, "cases.safetensors"))
    print(f"{len(vocab)} tokens, {len(texts)} texts of {len(columns['text'])} bytes, {len(columns['ids'])} ids")


main()
