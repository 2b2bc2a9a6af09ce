#!/usr/bin/env python3
"""Makes data/words.json: words by the pattern of the book's chapter 2, and vectors by the formula that
include/attn/words.hpp documents, of the lists in src/text/words.cpp. Run it with NumPy, and again when lists change:

    tests/text/make_words.py
"""

import json
import pathlib
import re

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "src/text/words.cpp").read_text()
TABLE = SOURCE[SOURCE.index("kLists{") : SOURCE.index("};", SOURCE.index("kLists{"))]
LISTS = ["".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', entry)).split() for entry in
         re.split(r'(?<=")\s*,\n', TABLE) if '"' in entry]  # fmt: skip
ENDINGS = [("", ""), ("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("ly", "")]
MASK = 2**64 - 1


def split(text):
    return [part for part in re.split(r"([,.:;?_!\"()']|--|\s)", text) if part.strip()]


def unit(v):
    return v / np.sqrt((v * v).sum())


def lists_of(word):
    for ending, instead in ENDINGS:
        if not word.endswith(ending) or (ending and len(word.encode()) < len(ending) + 3):
            continue
        stem = word[: len(word) - len(ending)] + instead
        stems = [stem, stem[:-1]] if ending in ("ed", "ing") and stem[-1] == stem[-2] else [stem]
        for each in stems:
            found = [k for k, words in enumerate(LISTS) if each in words]
            if found:
                return found
    return []


def drawn(seed):
    z = seed * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return ((z ^ z >> 31) >> 11) / 2.0**52 - 1


def own(word, size):
    text = f"<{word}>"
    total = np.zeros(size)
    for i in range(len(text) - 2):
        h = 0xCBF29CE484222325
        for byte in text[i : i + 3].encode():
            h = (h ^ byte) * 0x100000001B3 & MASK
        total += [drawn(h + j & MASK) for j in range(size)]
    return unit(total)


def kind(k, size):
    j = np.arange(1, size + 1)
    return unit(np.where(j < len(LISTS), np.cos(np.pi * j * (k + 0.5) / len(LISTS)), 0))


def embed(word, size):
    word = word.lower()
    found = lists_of(word)
    if not found:
        return np.round(np.sqrt(3) * own(word, size), 2)
    of_lists = unit(sum(kind(k, size) for k in found))
    across = own(word, size) - of_lists * (own(word, size) @ of_lists)
    across = unit(across) if across @ across > 1e-12 else np.eye(size)[0]
    return np.round(np.sqrt(2.5) * of_lists + np.sqrt(0.5) * across, 2)


TEXTS = [("Your journey starts with one step", 24), ("The cats, running--and it's fun!", 16), ("Bank: \"river\" (money)?", 3),
         ("stopped cities LOVED quickly", 40), ("Ein Übermut; Straße\u00a0СЛОВО 猫は 走る", 16), ("one\x1ctwo\u2003three\u200bfour", 8),
         ("---'_ a.b…", 5), ("solo cat", 1), ("😀 👩‍👩‍👧 e\u0301", 7)]  # fmt: skip

if __name__ == "__main__":
    assert len(LISTS) == 21, len(LISTS)
    cases = [{"text": text, "d_in": size, "words": split(text), "vectors": [embed(w, size).tolist() for w in split(text)]}
             for text, size in TEXTS]  # fmt: skip
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (ROOT / "tests/text/data/words.json").write_text(f"[{lines}]\n")
