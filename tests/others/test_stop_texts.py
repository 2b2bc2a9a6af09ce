"""What ends a text by its words, on a model that others trained."""

import json

import pytest


@pytest.fixture(scope="module")
def generated(attn, smollm2):
    """The JSON of 16 greedy tokens, with further flags."""

    def generate(*flags):
        prompt = ("--prompt", "The capital of France is", "--temperature", "0", "--tokens", "16")
        ran = attn("generate", "--model", smollm2, *prompt, "--json", *flags)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return generate


def test_a_text_ends_before_what_stops_it(generated, attn, smollm2):
    whole = generated()
    assert whole["finish"] == "length"
    ids, text = whole["prompt_ids"] + whole["ids"], whole["prompt"] + whole["text"]
    assert attn("tokens", "--tokenizer", smollm2, "--decode", ",".join(map(str, ids))).stdout == text + "\n"
    stop = whole["text"][3:12]  # of several tokens
    cut = generated("--stop-text", "not there", stop)
    assert cut["finish"] == "stop-text"
    assert cut["text"] == whole["text"].split(stop)[0]
    assert cut["ids"] == whole["ids"][: len(cut["ids"])]
    assert len(cut["ids"]) < len(whole["ids"])
    begun = generated("--stop-text", whole["text"] + "and more")  # only its beginning comes
    assert begun["text"] == whole["text"]


def test_it_is_not_printed(attn, smollm2):
    prompt = ("--prompt", "The capital of France is", "--temperature", "0", "--tokens", "16")
    ran = attn("generate", "--model", smollm2, *prompt, "--stop-text", "Paris")
    assert ran.stdout == "The capital of France is \n"


def test_without_a_text_there_is_nothing_to_find(attn, smollm2):
    for flags in (("--ids", "1", "--stop-text", "a"), ("--prompt", "a", "--stop-text", "")):
        ran = attn("generate", "--model", smollm2, *flags)
        assert ran.returncode == 2
        assert "--stop-text" in ran.stderr
