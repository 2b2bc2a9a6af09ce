"""Vectors of sentences by an encoder that others trained: all-MiniLM-L6-v2, beside transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

TEXTS = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stocks fell sharply on Monday.", "x", "",
         "  Ünïcödé, 北京, and\ttabs ", "word " * 400]  # fmt: skip


def embedded(attn, model, *arguments):
    answer = attn("embed", "--model", model, "--json", *arguments)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["texts"]


@pytest.fixture(scope="module")
def bert(minilm):
    return transformers.AutoModel.from_pretrained(minilm).eval(), transformers.AutoTokenizer.from_pretrained(minilm)


def test_vectors_are_transformers(attn, minilm, bert):
    model, tokenizer = bert
    for answer, text in zip(embedded(attn, minilm, *TEXTS), TEXTS, strict=True):
        ids = tokenizer(text, return_tensors="pt", truncation=False, padding=False).input_ids
        assert answer["ids"] == ids[0].tolist(), text
        with torch.no_grad():
            states = model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        for pooling, wanted in (("mean", states.mean(0)), ("first", states[0])):
            (found,) = embedded(attn, minilm, text, "--pooling", pooling)
            wanted = torch.nn.functional.normalize(wanted, dim=0).numpy()
            assert np.abs(np.array(found["vector"]) - wanted).max() < 1e-5, (text, pooling)
        assert embedded(attn, minilm, text)[0]["vector"] == answer["vector"], "neighbours change it"
