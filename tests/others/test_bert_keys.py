"""Every key of an encoder's config.json and GGUF file, one at a time: as in transformers, or refused."""

import json
import shutil

import numpy as np
import packages
import pytest

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
import transformers  # noqa: E402
from test_gguf_keys import others, rewritten  # noqa: E402
from test_keys import REFUSED, changes, quiet  # noqa: E402

DATA = packages.ROOT / "tests" / "lm" / "data" / "bert"
TEXTS = ["a b c d e f", "z", "m n m n q w e r t y"]
TOKENIZER = {"model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100, "vocab": {"?": 0, **{chr(97 + i): i + 1 for i in range(26)}}},
             "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}  # fmt: skip
DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # both are one number here
# Keys that other encoders' files have, or older ones.
MORE = {"position_embedding_type": "relative_key", "embedding_size": 8, "gradient_checkpointing": True, "pooler_type": "x",
        "classifier_dropout": 0.5, "is_decoder": True, "add_cross_attention": True, "rotary_emb_base": 100,
        "num_hidden_groups": 2, "key_of_tomorrow": 1, "output_hidden_states": True}  # fmt: skip
# The field of transformers' config that a GGUF key changes. Another key that is followed changes nothing.
MEANING = {"bert.context_length": "max_position_embeddings", "bert.attention.layer_norm_epsilon": "layer_norm_eps",
           "bert.embedding_length": "hidden_size", "bert.feed_forward_length": "intermediate_size",
           "bert.block_count": "num_hidden_layers", "bert.attention.head_count": "num_attention_heads"}  # fmt: skip
GGUF_MORE = {"bert.attention.head_count_kv": 2, "bert.attention.causal": True, "bert.rope.freq_base": 100.0,
             "bert.attention.key_length": 3, "bert.vocab_size": 62, "bert.expert_count": 2, "bert.key_of_tomorrow": 1,
             "bert.attention.max_alibi_bias": 8.0, "bert.attention.layer_norm_rms_epsilon": 0.1,
             "tokenizer.ggml.token_type_count": 3, "general.type": "adapter", "general.name": "x",
             "bert.pooling_type": 3}  # fmt: skip


def ours(attn, model, folder):
    """(ids, vector) of each text, or what says that the files are refused."""
    ran = attn("embed", "--model", model, "--tokenizer", folder, "--pooling", "mean", "--raw", "--json", *TEXTS)
    if ran.returncode != 0:
        assert ran.returncode == 3, ran.stderr  # bad data, and never wrong usage or a crash
        assert str(folder)[:30] in ran.stderr, ran.stderr
        return REFUSED
    return [(text["ids"], np.array(text["vector"])) for text in json.loads(ran.stdout)["texts"]]


def near(model, found):
    with torch.no_grad():
        wanted = [model(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy() for ids, _ in found]
    return all(np.abs(vector - of).max() <= 1e-5 * np.abs(of).max() for of, (_, vector) in zip(wanted, found))


def loaded(**keys):
    """transformers' model of these weights, or None where they do not fit such a config."""
    try:
        with quiet():
            model, info = transformers.BertModel.from_pretrained(DATA, output_loading_info=True, add_pooling_layer=False, **keys)
    except Exception:  # noqa: BLE001: it raises errors of all kinds
        return None
    return None if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")) else model.eval()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    shutil.copy(DATA / "model.safetensors", tmp_path)
    shutil.copy(DATA / "model.gguf", tmp_path)
    return tmp_path


def test_each_key_of_a_folder(attn, folder):
    config = json.loads((DATA / "config.json").read_text())
    both = {**config, **dict.fromkeys(DROPOUT, 0.3)}
    cases = [("nothing", config), ("dropout", both), *changes(config), *((f"{k} = {v}", {**config, k: v}) for k, v in MORE.items())]
    wrong, followed = [], 0
    for what, changed in cases:
        (folder / "config.json").write_text(json.dumps(changed))
        found = ours(attn, folder, folder)
        assert what not in ("nothing", "dropout") or found != REFUSED
        if found == REFUSED:
            continue
        followed += 1
        model = None
        try:
            with quiet():
                model = loaded(config=transformers.BertConfig(**changed))
        except Exception:  # noqa: BLE001
            if what.endswith((" = 7", "token_id = x")) or what.startswith(("classifier_dropout", "dtype")):
                continue  # its classes check types, of keys that the encoder does not read, too
        if model is None or not near(model, found):
            wrong.append(what + (", which transformers refuses" if model is None else ""))
    print(f"{followed} of {len(cases)} followed, the others refused")
    assert not wrong
    assert followed > 20


def test_each_key_of_a_gguf_file(attn, folder):
    own = {k: f.contents() for k, f in gguf.GGUFReader(DATA / "model.gguf").fields.items() if k.startswith(("bert.", "tokenizer."))}
    wrong, followed, path = [], 0, folder / "x.gguf"
    cases = [*((key, new) for key, value in own.items() for new in others(key, value)), *GGUF_MORE.items()]
    for key, value in [("general.name", "nothing"), *cases]:
        rewritten(DATA / "model.gguf", {key: value}, path)
        found = ours(attn, path, folder)
        assert key != "general.name" or found != REFUSED
        if found == REFUSED:
            continue
        followed += 1
        model = loaded(**({MEANING[key]: value} if key in MEANING else {}))
        if model is None or not near(model, found):
            wrong.append(f"{key} = {value}" + (" does not fit the weights" if model is None else ""))
    print(f"{followed} of {1 + len(cases)} followed, the others refused")
    assert not wrong
    assert followed >= 5
