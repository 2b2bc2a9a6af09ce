"""Texts that a tokenizer should see: what people write, spoiled by anything that Unicode has."""

import os
import random
import unicodedata

WORDS = """Your journey starts with one step, she'll tell you what we've SEEN: it's 1024 tokens, isn't IT'S HE'LL
größer als 0,5 Où est l'élève? déjà Внимание взвешенная сумма 注意力是數值的加權和。 注意は値の重み付き和 주의는 값의
الانتباه هو مجموع תשומת לב ध्यान मानों का योग है। ความใส่ใจ 👩‍👩‍👧 🇫🇷 ½ Ⅷ ² ① ٣٤٥ १२३ if(x[i]!=y[i]){return f(x,y)+0x1f;}""".split()
BLANKS = " \t\n\r\x0b\x0c\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u2029\u202f\u3000\u200b\u200d\ufeff\u180e"
JAMO = [chr(c) for c in (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3), 0xAC00, 0xAC01, 0xD7A3)]


def drawn_seed() -> int:
    """The seed of the inputs that a test draws, which it prints: ATTN_TEST_SEED, as CI sets it, or another one each time."""
    seed = int(os.environ.get("ATTN_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print("seed", seed)
    return seed


def _marks():
    return [chr(c) for c in range(0x110000) if unicodedata.combining(chr(c))]


def _composed():
    """Characters that NFC takes apart or puts together, as they are and in parts."""
    found = []
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if parts and not parts[0].startswith("<"):
            found += [chr(code), "".join(chr(int(p, 16)) for p in parts), unicodedata.normalize("NFD", chr(code))]
    return found


class Texts:
    """`special` are the tokenizers' own tokens, which texts then hold, whole, cut and between blanks."""

    def __init__(self, rng, special=()):
        self.rng, self.special = rng, list(special)
        self.marks, self.composed = _marks(), _composed()

    def character(self):
        while True:
            code = self.rng.choice([0x80, 0x300, 0x3000, 0x20000, 0x110000])
            code = self.rng.randrange(code)
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    def part(self):
        rng = self.rng
        kind = rng.randrange(14)
        if kind < 4:
            return rng.choice(["", " ", "  "]) + rng.choice(WORDS)
        if kind == 4:
            return "".join(rng.choice(BLANKS) for _ in range(rng.randint(1, 6)))
        if kind == 5:
            return rng.choice(" \n\r\tae0-'▁_.é") * rng.randint(1, 12)
        if kind == 6:
            return "".join(rng.choice("0123456789٣५²") for _ in range(rng.randint(1, 9)))
        if kind == 7:
            return rng.choice(["'", "’", " '"]) + rng.choice("s S ſ t T re RE rE ve ll LL lL m d D x sſ".split())
        if kind == 8:
            return rng.choice("aqoé") + "".join(rng.choice(self.marks) for _ in range(rng.randint(1, 5)))
        if kind == 9:
            return "".join(rng.choice(self.composed) for _ in range(rng.randint(1, 3)))
        if kind == 10:
            return "".join(rng.choice(JAMO) for _ in range(rng.randint(1, 5)))
        if kind == 11 and self.special:
            token = rng.choice(self.special)
            cut = token[: rng.randrange(len(token))] if rng.random() < 0.3 else token
            return rng.choice(["", " ", "\n ", "\u3000"]) + cut + rng.choice(["", " ", " \t", "\u00a0"])
        if kind == 12:
            return rng.choice(["<0x41>", "<0xE2>", "<unk>", "\0", "\x7f", "\ufffd", "\ufffe", "\u202e", "▁", "Ġ", "Ċ"])
        return "".join(self.character() for _ in range(rng.randint(1, 8)))

    def text(self):
        parts = [self.part() for _ in range(self.rng.randint(0, 12))]
        if self.rng.random() < 0.02:
            parts.append(self.character() * self.rng.randint(50, 400))
        return "".join(parts)
