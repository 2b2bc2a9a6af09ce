"""Text that a model writes: the words of `attn generate`, in pieces, with the reason why it ended."""

import json
import signal
import subprocess
import sys
import threading

import pytest
from conftest import ROOT

import attn

SHIPPED = ROOT / "examples" / "data" / "licences.safetensors"
PROMPT = "This program is "
CHAT = ("{% for message in messages %}<{{ message.role }}>{{ message.content }}|{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}")  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return attn.load(SHIPPED)


def by_command(*flags):
    """What `attn generate --json` says."""
    command = [sys.executable, "-m", "attn", "generate", "--model", SHIPPED, "--json", *map(str, flags)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.no_sanitizer  # the command
@pytest.mark.parametrize("options, flags", [
    ({}, []),
    ({"temperature": 0}, ["--temperature", 0]),
    ({"seed": 7, "temperature": 0.8, "top_k": 20, "top_p": 0.9}, ["--seed", 7, "--temperature", 0.8, "--top-k", 20, "--top-p", 0.9]),
    ({"min_p": 0.1, "repetition_penalty": 1.2}, ["--min-p", 0.1, "--repetition-penalty", 1.2]),
    ({"stop": [ord("e")]}, ["--stop", ord("e")]),
    ({"stop_text": "the", "seed": 3}, ["--stop-text", "the", "--seed", 3]),
    ({"cache": "bfloat16"}, ["--cache", "bfloat16"]),
])  # fmt: skip
def test_the_commands_words(model, options, flags):
    wanted = by_command("--prompt", PROMPT, "--tokens", 40, *flags)
    found = model.generate(PROMPT, new_tokens=40, **options)
    assert (found.text, found.ids, found.prompt_ids) == (wanted["text"], wanted["ids"], wanted["prompt_ids"])
    assert found.finish == wanted["finish"] and str(found) == found.text and len(repr(found)) < 80
    pieces = list(model.stream(PROMPT, new_tokens=40, **options))
    assert "".join(pieces) == found.text and (len(pieces) > 1 or len(found.ids) < 2)


@pytest.mark.no_sanitizer
def test_an_empty_prompt_and_ids(model):
    wanted = by_command("--prompt", "", "--tokens", 9)
    found = model.generate("", new_tokens=9)
    assert (found.text, found.prompt_ids) == (wanted["text"], wanted["prompt_ids"])
    ids = list(PROMPT.encode())
    found = model.generate(ids, new_tokens=9)
    assert found.text == "" and found.ids == model.generate(PROMPT, new_tokens=9).ids
    assert list(model.stream(ids, new_tokens=9)) == found.ids


def test_past_the_context(model):
    """GPT-2 goes on with its latest half."""
    longest = model.config.context_length
    written = model.generate("a" * (longest - 3), new_tokens=9, temperature=0)
    assert len(written.ids) == 9 and written.finish == "length"


def test_several_are_written_in_turns(model):
    wanted = model.generate(PROMPT, new_tokens=20).text
    one, two = model.stream(PROMPT, new_tokens=20), model.stream(PROMPT, new_tokens=20)
    for _ in zip(one, two, strict=False):
        model("between")
        model.loss("between")
    for last in (one, two):
        list(last)
        assert last.text == wanted and last.finish == "length" and list(last) == []
    begun = model.stream(PROMPT, new_tokens=20)
    first = next(begun)
    assert begun.finish is None and wanted.startswith(begun.text) and begun.text.startswith(first)


def test_conversations(tmp_path):
    for name, content in (("tokenizer.json", TOKENIZER), ("tokenizer_config.json", {"chat_template": CHAT})):
        (tmp_path / name).write_text(json.dumps(content))
    model = attn.load(SHIPPED, tokenizer=tmp_path)
    messages = [{"role": "user", "content": "aé"}]
    assert model.tokenizer.chat(messages) == "<user>aé|<assistant>"
    told = {"messages": messages, "add_generation_prompt": False}
    assert model.tokenizer.chat(told) == "<user>aé|"
    misspelt = [{"role": "user", "content": "aé", "nam": "b"}]
    with pytest.warns(UserWarning, match="does not name nam of message 1"):
        assert model.generate(misspelt, new_tokens=1).prompt_ids == model.generate(messages, new_tokens=1).prompt_ids
    for given in (messages, tuple(messages), {"messages": messages}):
        written = model.generate(given, new_tokens=5, temperature=0)
        assert written.prompt_ids == model.tokenizer.encode("<user>aé|<assistant>", add_special_tokens=False)
    with pytest.raises(TypeError, match="messages that JSON can hold"):
        model.generate([{"role": "user", "content": {1, 2}}])
    with pytest.raises(ValueError, match="messages"):
        model.generate({"role": "user"})


def byte_alphabet():
    """GPT-2's printable alphabet of bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}


TOKENIZER = {
    "model": {"type": "BPE", "vocab": {byte_alphabet()[b]: b for b in range(256)}, "merges": []},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "decoder": {"type": "ByteLevel"},
}


@pytest.mark.parametrize("options, kind, says", [
    ({"new_tokens": -1}, ValueError, "tokens of at least 0"),
    ({"new_tokens": 2.5}, TypeError, "new_tokens as an integer; found float"),
    ({"temperature": -1}, ValueError, "temperature"),
    ({"temperature": float("nan")}, ValueError, "temperature"),
    ({"temperature": "hot"}, TypeError, "temperature as a number"),
    ({"temperature": 0, "top_k": 3}, ValueError, "temperature above 0, at which tokens are drawn; found 0 beside top_k"),
    ({"temperature": 0, "seed": 3}, ValueError, "0 beside seed"),
    ({"top_k": -1}, ValueError, "top_k"),
    ({"top_p": 0}, ValueError, "top_p"),
    ({"min_p": 2}, ValueError, "min_p"),
    ({"repetition_penalty": 0}, ValueError, "repetition_penalty"),
    ({"seed": -1}, ValueError, "seed from 0"),
    ({"seed": 2**64}, ValueError, "seed from 0"),
    ({"seed": 1.5}, TypeError, "seed as an integer"),
    ({"stop": [256]}, ValueError, "stop ids from 0 to 255; found 256"),
    ({"stop": ["e"]}, TypeError, "ids"),
    ({"stop_text": ""}, ValueError, "an empty text"),
    ({"stop_text": [1]}, TypeError, "stop_text"),
    ({"cache": "float8"}, ValueError, "cache"),
    ({"cache": "float64"}, Exception, "float64"),
    ({"max_tokens": 3}, TypeError, "unexpected keyword"),
])  # fmt: skip
def test_what_is_refused(model, options, kind, says):
    for write in (model.generate, model.stream):
        with pytest.raises(kind, match=says):
            write(PROMPT, **options)


@pytest.mark.parametrize("prompt, kind, says", [
    ([], ValueError, "at least one token"),
    ([256], ValueError, "256"),
    ([1.0], TypeError, "ids"),
    (["one", "two"], TypeError, "one text"),
    (None, TypeError, "ids"),
    (3, TypeError, "a text, or a list of ids"),
    ([{"role": "user", "content": "a"}], ValueError, "chat template"),
])  # fmt: skip
def test_prompts_that_are_none(model, prompt, kind, says):
    with pytest.raises(kind, match=says):
        model.generate(prompt)
    with pytest.raises(ValueError, match="stop_text beside a prompt that is text"):
        model.generate([1, 2], stop_text="a")


def test_no_room_in_the_context():
    llama = attn.load(ROOT / "tests" / "lm" / "data" / "llama")
    longest = llama.config.context_length
    with pytest.raises(ValueError, match="context_length"):
        llama.generate([1] * longest, new_tokens=1)


@pytest.fixture
def ctrl_c():
    """As in a terminal: what is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.no_sanitizer
def test_ctrl_c_ends_it(model, ctrl_c):
    """The text that is written so far stays, and the model works on."""
    writing = model.stream(PROMPT, new_tokens=2000)
    main = threading.main_thread().ident
    after = [3]

    def run():
        for _ in writing:
            after[0] -= 1
            if after[0] == 0:
                signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert 3 <= len(writing.ids) < 1000 and writing.finish is None
    assert model.generate(PROMPT, new_tokens=5).text == model.generate(PROMPT, new_tokens=5).text
