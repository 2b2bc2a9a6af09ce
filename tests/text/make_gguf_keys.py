#!/usr/bin/env python3
"""Makes data/gguf_keys.json: what llama.cpp makes of small GGUF vocabularies with one key changed or added.

    pip install llama-cpp-python==0.3.36 gguf
    tests/text/make_gguf_keys.py

Each case has a file of data/tokenizers, a key without "tokenizer.ggml.", its value (null: the key is gone; of token_type
the type of all tokens that are special; of scores "equal" or "reversed"), and the number of an answer: the ids of each
text with and without special tokens, and the ids that end what a model writes. A case that llama.cpp refuses, in which it
may crash, has no answer. It also makes data/tokenizers/bert.gguf.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf

DATA = pathlib.Path(__file__).resolve().parent / "data"
FILES = ["llama3", "sentencepiece", "bert"]
TEXTS = ["Hello world", "  a  b ", "größer als\n\n注意 12345", "<s>x</s> y<|end_of_text|>z", "[CLS] a [SEP]", ""]
SPECIAL = (2, 3, 4)  # the types of tokens that are unknown, control, or the user's
IDS = "bos eos eot eom unknown seperator padding cls mask fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep prefix suffix middle"
FLAGS = """add_bos_token add_eos_token add_sep_token add_space_prefix remove_extra_whitespaces normalizer.lowercase
normalizer.strip_accents escape_whitespaces treat_whitespace_as_suffix byte_fallback ignore_merges""".split()
MORE = {"token_type_count": 2, "precompiled_charsmap": "x", "tokens.of.tomorrow": 1}


def make_bert():
    words = "hello world a b gr ##x als 注 意 12 ##345 ##o ##ß ##er x y z s".split()
    tokens = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    special = len(tokens)
    tokens += [word[2:] if word.startswith("##") else "▁" + word for word in words] + ["▁[", "▁]", "▁<", "▁>", "▁/"]
    writer = gguf.GGUFWriter(DATA / "tokenizers" / "bert.gguf", "bert")
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * special + [1] * (len(tokens) - special))
    writer.add_unk_token_id(100), writer.add_sep_token_id(102), writer.add_pad_token_id(0), writer.add_mask_token_id(103)
    write(writer)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def fields(name):
    return {key: (f.contents(), f.types[0], f.types[-1]) for key, f in gguf.GGUFReader(DATA / "tokenizers" / f"{name}.gguf").fields.items()}


def cases(own):
    """(key, value) of what is changed or added."""
    yield "pre", own["pre"][0] if "pre" in own else "x"
    for key, (value, *_) in own.items():
        if key == "tokens":
            continue
        yield key, None
        if key == "scores":
            yield from ((key, "equal"), (key, "reversed"))
        elif key == "token_type":
            yield from ((key, kind) for kind in (1, 2, 3, 4, 5, 6))
        elif isinstance(value, bool):
            yield key, not value
        elif isinstance(value, int):
            yield from ((key, other) for other in (value + 1, 0, 11))
        elif isinstance(value, str):
            yield from ((key, other) for other in ("default", "gpt-2", "qwen2", "gpt2", "x"))
    more = {**{f"{kind}_token_id": 9 for kind in IDS.split()}, **MORE}
    yield from ((key, value) for key, value in more.items() if key not in own)
    yield from ((key, value) for key in FLAGS if key not in own for value in (True, False))


def changed(name, key, value, path):
    all_fields = fields(name)
    writer = gguf.GGUFWriter(path, all_fields["general.architecture"][0])
    full = "tokenizer.ggml." + key
    for there, (content, kind, inner) in all_fields.items():
        if there.startswith("GGUF.") or there == "general.architecture" or (there == full and value is None):
            continue
        if there == full and key == "token_type":
            content = [value if kind in SPECIAL else kind for kind in content]
        elif there == full and key == "scores":
            content = [0.0] * len(content) if value == "equal" else content[::-1]
        elif there == full:
            content = value
        writer.add_key_value(there, content, kind, inner if isinstance(content, list) else None)
    if full not in all_fields and value is not None:
        kind = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, str: gguf.GGUFValueType.STRING}[type(value)]
        writer.add_key_value(full, value, kind)
    write(writer)


def answer(path):
    """Prints it. It runs in a process of its own, which llama.cpp may end."""
    import llama_cpp

    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    vocabulary = model._model.vocab

    def ids(text, special):
        data, found = text.encode(), (llama_cpp.llama_token * 512)()
        return found[: llama_cpp.llama_tokenize(vocabulary, data, len(data), found, 512, special, True)]

    ends = [i for i in range(model.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocabulary, i)]
    print(json.dumps({"ids": [ids(t, True) for t in TEXTS], "plain": [ids(t, False) for t in TEXTS], "ends": ends}))


def main():
    make_bert()
    answers, lines = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            own = {key.removeprefix("tokenizer.ggml."): f for key, f in fields(name).items() if key.startswith("tokenizer.ggml.")}
            for key, value in cases(own):
                path = os.path.join(folder, "x.gguf")
                changed(name, key, value, path)
                ran = subprocess.run([sys.executable, __file__, path], capture_output=True, text=True,
                                     env={**os.environ, "GGML_NO_BACKTRACE": "1"})  # fmt: skip
                found = json.loads(ran.stdout) if ran.returncode == 0 else None
                if found is not None and found not in answers:
                    answers.append(found)
                lines.append([name, key, value, answers.index(found) if found else None])
    rows = ",\n".join(map(json.dumps, answers)), ",\n".join(map(json.dumps, lines))
    text = f'{{"texts": {json.dumps(TEXTS)},\n"answers": [{rows[0]}],\n"cases": [{rows[1]}]}}\n'
    (DATA / "gguf_keys.json").write_text(text)


if __name__ == "__main__":
    answer(sys.argv[1]) if len(sys.argv) == 2 else main()
