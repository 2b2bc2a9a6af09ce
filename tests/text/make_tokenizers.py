#!/usr/bin/env python3
"""Makes data/tokenizers/: small tokenizers of each kind, and texts with the ids that the reference packages give them.

    pip install tokenizers sentencepiece gguf numpy safetensors
    tests/text/make_tokenizers.py [SEED]

The kinds are named after the model whose steps they have; their vocabularies are trained here, on a few sentences. Ids of
the tokenizer.json files are the tokenizers package's, those of sentencepiece.gguf are SentencePiece's, and llama3.gguf
has the vocabulary of llama3.json.
"""

import io
import json
import os
import random
import sys

import gguf
import numpy
import sentencepiece
from hostile import WORDS, Texts
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, WordPiece
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "tokenizers")
TEXTS = 20
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
SENTENCES = [" ".join(WORDS), " ".join(WORDS).lower(), "the weights are a weighted sum of the values, the values are weighted"]
BLANK = "▁"
ByteLevel = pre_tokenizers.ByteLevel


def byte_level(steps, normalizer=None, **options):
    """A vocabulary of the 256 bytes and what is merged of them."""
    tokenizer = Tokenizer(BPE(**options))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer.train_from_iterator(SENTENCES * 4, BpeTrainer(vocab_size=560, initial_alphabet=alphabet, show_progress=False))
    return tokenizer


def characters(steps, normalizer=None, bytes_too=True, strip=0):
    """A vocabulary of some of the sentences' characters and, for all others, the 256 bytes."""
    trained = Tokenizer(BPE())
    if normalizer:
        trained.normalizer = normalizer
    if steps:
        trained.pre_tokenizer = steps
    kept = set(sorted(set("".join(SENTENCES)))[:90])
    words = [word for s in SENTENCES * 4 for word in s.replace(" ", "\n ").split("\n")]
    words = ["".join(c for c in word if c in kept) for word in words]
    trained.train_from_iterator(words, BpeTrainer(vocab_size=420, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{b:02X}>" for b in range(256)] if bytes_too else [])
    tokens = special + sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(pair) for pair in model["merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    trained.model = BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=bytes_too)
    steps = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    trained.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", strip, 0)] if strip else []))
    trained.add_special_tokens(special[:3])
    return trained


def around(tokenizer, before=None, after=None):
    single = " ".join(filter(None, [before, "$A", after]))
    names = [(name, tokenizer.token_to_id(name)) for name in (before, after) if name]
    return processors.TemplateProcessing(single=single, special_tokens=names)


def gpt2():
    tokenizer = byte_level([ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def smollm():
    tokenizer = byte_level([pre_tokenizers.Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def llama3():
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    tokenizer = byte_level([split, ByteLevel(add_prefix_space=False, use_regex=False)], ignore_merges=True)
    model = json.loads(tokenizer.to_str())["model"]
    whole = {"Ġseen": len(model["vocab"]), "123": len(model["vocab"]) + 1}  # tokens that no merge makes
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer.model = BPE(model["vocab"] | whole, merges, ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|eot_id|>"])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), around(tokenizer, "<|begin_of_text|>")])
    return tokenizer


def qwen():
    split = pre_tokenizers.Split(Regex(QWEN), "isolated")
    tokenizer = byte_level([split, ByteLevel(add_prefix_space=False, use_regex=False)], normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(
        [
            AddedToken("<mask>", lstrip=True, normalized=False),
            AddedToken("<sep>", rstrip=True, normalized=False),
            AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
            AddedToken("<bo", normalized=False),
            AddedToken("e\u0301te\u0301", normalized=True),  # found in the normal form
            AddedToken("u\u0308ber", normalized=False),  # found as it is written
            AddedToken("  ", normalized=False),
        ]
    )
    return tokenizer


def granite():
    digits = pre_tokenizers.Digits(individual_digits=False)
    tokenizer = byte_level([digits, ByteLevel(add_prefix_space=True)])
    tokenizer.add_special_tokens(["<|end_of_text|>"])
    tokenizer.post_processor = around(tokenizer, None, "<|end_of_text|>")
    return tokenizer


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])
    tokenizer = characters(None, normalizer, strip=1)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True)])
    tokenizer.post_processor = around(tokenizer, "<s>")
    return tokenizer


def mistral():
    tokenizer = characters(pre_tokenizers.Metaspace(BLANK, "first", split=False), strip=1)
    tokenizer.post_processor = around(tokenizer, "<s>", "</s>")
    return tokenizer


def gemma():
    tokenizer = characters(pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", BLANK))
    tokenizer.add_special_tokens(["<bos>", "<start_of_turn>", "<end_of_turn>"])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    tokenizer.post_processor = around(tokenizer, "<bos>")
    return tokenizer


def bert():
    """BERT's words of pieces, with its own steps before, around and behind."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(SENTENCES * 4, WordPieceTrainer(vocab_size=420, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def words():
    """Steps and added tokens that no other kind here has, some of them against what a model would do."""
    steps = [
        pre_tokenizers.Split(Regex(r"[^\r\n\p{L}\p{N}]?+[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}&&[^\p{Han}]]+(?i:'s|'t)?"), "isolated"),
        pre_tokenizers.Split(Regex(r"\d{1,2}(?=(?:\d{2})*\b)|\w{3,4}|q+?u|(?>x+)y"), "merged_with_previous"),
        pre_tokenizers.Split("-", "merged_with_next"),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.Whitespace(),
        ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    form = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    form.append(normalizers.Replace(Regex(r"[.,]{2,}"), "\u2026"))
    tokenizer = byte_level(steps, normalizers.Sequence(form))
    added = [AddedToken("weigh", single_word=True), AddedToken("é", single_word=True, normalized=False)]
    added += [AddedToken("\n", lstrip=True, rstrip=True, normalized=False), AddedToken("<a>", lstrip=True, normalized=False)]
    tokenizer.add_tokens(added)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    end, begin = (("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    tokenizer.post_processor = processors.RobertaProcessing(end, begin, add_prefix_space=False)
    return tokenizer


def unknown():
    """Characters without bytes: what has no token is <unk>."""
    return characters(pre_tokenizers.Metaspace(BLANK, "always", split=True), bytes_too=False, strip=2)


def write_gguf(name, model, tokens, types, ids, **lists):
    writer = gguf.GGUFWriter(os.path.join(FOLDER, name), "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    for kind, id in ids.items():
        getattr(writer, f"add_{kind}_token_id")(id)
    for kind, value in lists.items():
        getattr(writer, f"add_{kind}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def llama3_gguf(tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    size = tokenizer.get_vocab_size()
    added = tokenizer.get_added_tokens_decoder()
    types = [gguf.TokenType.CONTROL if i in added else gguf.TokenType.NORMAL for i in range(size)]
    merges = [" ".join(pair) for pair in model["merges"]]
    begin, end = tokenizer.token_to_id("<|begin_of_text|>"), tokenizer.token_to_id("<|end_of_text|>")
    tokens = [tokenizer.id_to_token(i) for i in range(size)]
    ids = {"bos": begin, "eos": end}
    write_gguf("llama3.gguf", "gpt2", tokens, types, ids, token_merges=merges, tokenizer_pre="llama-bpe", add_bos_token=True)


def sentencepiece_gguf():
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_writer=written,
        model_type="bpe",
        vocab_size=480,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    size = model.get_piece_size()
    kinds = [(model.is_unknown, 2), (model.is_control, 3), (model.is_byte, 6)]
    types = [next((kind for holds, kind in kinds if holds(i)), 1) for i in range(size)]
    scores = [model.get_score(i) for i in range(size)]
    tokens = [model.id_to_piece(i) for i in range(size)]
    write_gguf("sentencepiece.gguf", "llama", tokens, types, {"unk": 0, "bos": 1, "eos": 2}, token_scores=scores)
    return model


KINDS = [gpt2, smollm, llama3, qwen, granite, llama2, mistral, gemma, unknown, bert, words]


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 18)
    os.makedirs(FOLDER, exist_ok=True)
    tokenizers = {kind.__name__: kind() for kind in KINDS}
    special = {t.content for tokenizer in tokenizers.values() for t in tokenizer.get_added_tokens_decoder().values()}
    source = Texts(rng, sorted(special))
    texts = ["", " ", "  ", "\n", "\r\n \n a", "▁", "<s>", "<s> a", " <s>", "a<s>"]
    texts += [source.text() for _ in range(TEXTS)]
    columns = {"text": [text.encode() for text in texts]}
    for name, tokenizer in tokenizers.items():
        with open(os.path.join(FOLDER, f"{name}.json"), "w") as file:
            file.write(tokenizer.to_str())
        ids = [tokenizer.encode(text).ids for text in texts]
        columns[f"{name}.ids"] = ids
        columns[f"{name}.plain"] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        columns[f"{name}.decoded"] = [tokenizer.decode(i, skip_special_tokens=False).encode() for i in ids]
        columns[f"{name}.skipped"] = [tokenizer.decode(i, skip_special_tokens=True).encode() for i in ids]
    llama3_gguf(tokenizers["llama3"])
    pieces = sentencepiece_gguf()
    without = [text for text in texts if not any(name in text for name in ("<unk>", "<s>", "</s>")) and "\0" not in text]
    columns["sentencepiece.text"] = [text.encode() for text in without]
    columns["sentencepiece.ids"] = [pieces.encode(text, add_bos=True) for text in without]
    tensors = {}
    for name, rows in columns.items():
        kind = numpy.uint8 if isinstance(rows[0], bytes) else numpy.int32
        tensors[name] = numpy.array([value for row in rows for value in row], kind)
        tensors[f"{name}_ends"] = numpy.cumsum([len(row) for row in rows]).astype(numpy.int32)
    save_file(tensors, os.path.join(FOLDER, "cases.safetensors"))


if __name__ == "__main__":
    main()
