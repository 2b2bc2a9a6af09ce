"""Vectors of sentences by an encoder that others trained: all-MiniLM-L6-v2, beside transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell sharply on Monday.", "x", "",
         "  Ünïcödé, 北京, and\ttabs ", "word " * 300]  # fmt: skip


def embedded(attn, model, *arguments):
    answer = attn("embed", "--model", model, "--json", *arguments)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["texts"]


@pytest.fixture(scope="module")
def bert(minilm):
    return transformers.AutoModel.from_pretrained(minilm).eval(), transformers.AutoTokenizer.from_pretrained(minilm)


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_vectors_are_transformers(attn, minilm, minilm_gguf, bert, form):
    model, tokenizer = bert
    minilm = minilm if form == "folder" else minilm_gguf
    texts = TEXTS if form == "folder" else TEXTS[:-1] + ["word " * 200]
    for answer, text in zip(embedded(attn, minilm, *texts), texts, strict=True):
        # sentence-transformers cuts a text as max_seq_length says; a GGUF file has no such number
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=256, padding=False).input_ids
        assert answer["ids"] == ids[0].tolist(), text
        with torch.no_grad():
            states = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        for pooling, wanted in (("mean", states.mean(0)), ("first", states[0])):
            (found,) = embedded(attn, minilm, text, "--pooling", pooling)
            wanted = torch.nn.functional.normalize(wanted, dim=0).numpy()
            assert np.abs(np.array(found["vector"]) - wanted).max() < 1e-5, (text, pooling)
        assert embedded(attn, minilm, text)[0]["vector"] == answer["vector"], "neighbours change it"


def test_a_longer_text_is_cut_or_refused(attn, minilm, minilm_gguf, tmp_path):
    long = "word " * 600
    ran = attn("embed", "--model", minilm, "a", long)
    assert ran.returncode == 0 and "text 2 has 602 tokens and is cut to 256 of them" in ran.stderr
    ran = attn("embed", "--model", minilm_gguf, long)
    assert ran.returncode == 3 and "at most 512 tokens" in ran.stderr
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (plain / name).symlink_to(minilm / name)
    assert attn("embed", "--model", plain, long).returncode == 3
    for name in ("modules.json", "1_Pooling"):
        (plain / name).symlink_to(minilm / name)
    ran = attn("embed", "--model", plain, long)  # by the tokenizer's model_max_length
    assert ran.returncode == 0 and "cut to 512 of them" in ran.stderr
    sentence, more = "sentence_bert_config.json", "config_sentence_transformers.json"
    for name, key, value, told in (
        (sentence, "do_lower_case", True, "do_lower_case"),
        (sentence, "x", 1, "x: 1"),
        (more, "default_prompt_name", "query", "expected no default_prompt_name: it names a text"),
        (more, "truncate_dim", 256, "expected no truncate_dim: attn embed gives whole vectors"),
    ):
        (plain / name).write_text(json.dumps({key: value}))
        ran = attn("embed", "--model", plain, "a")
        assert ran.returncode == 3 and told in ran.stderr
        (plain / name).unlink()


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_python_gives_the_commands_vectors(attn, minilm, minilm_gguf, form):
    package = pytest.importorskip("attn")
    model = minilm if form == "folder" else minilm_gguf
    encoder = package.Encoder(str(model))
    vectors = encoder.embed(TEXTS[:-1])
    for vector, answer in zip(vectors, embedded(attn, model, *TEXTS[:-1]), strict=True):
        assert vector.tolist() == np.array(answer["vector"], np.float32).tolist()
    if form == "folder":
        with pytest.warns(UserWarning, match="a text of 602 tokens is cut to 256 of them"):
            encoder.embed(["word " * 600])
    else:
        with pytest.raises(ValueError, match="512"):
            encoder.embed(["word " * 600])


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_its_heads_are_seen(attn, minilm, minilm_gguf, bert, form, tmp_path):
    model, tokenizer = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval(), bert[1]
    path = minilm if form == "folder" else minilm_gguf
    text = TEXTS[0]
    ran = attn("report", "--model", path, "--text", text, "--output", tmp_path / "page.html")
    assert ran.returncode == 0, ran.stderr
    ran = attn("show", "--model", path, "--text", text, "--layer", "2", "--head", "3", "--json")
    assert ran.returncode == 0, ran.stderr
    with torch.no_grad():
        out = model(tokenizer(text, return_tensors="pt").input_ids, output_attentions=True)
    assert np.abs(np.array(json.loads(ran.stdout)["values"]) - out.attentions[1][0, 2].numpy()).max() < 1e-5
    ran = attn("experiment", "--model", path, "--text", text, "--without", "2.3", "--changes")
    assert ran.returncode == 0, ran.stderr
    ran = attn("report", "--live", "--model", path, "--text", text, "--output", tmp_path / "live.html")
    assert ran.returncode == 0, ran.stderr
