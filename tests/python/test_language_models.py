"""attn.load: logits, losses and steps beside transformers, on the small models of the C++ tests."""

import base64
import json
import pathlib
import re
import shutil
import threading

import numpy as np
import pytest
from conftest import ROOT
from pages import data_of

import attn

DATA = ROOT / "tests" / "lm" / "data"
SHIPPED = ROOT / "examples" / "data" / "licences.safetensors"
FAMILIES = ["gpt2/tied-tanh-f32", "gpt2/untied-bf16", "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3", "olmo2", "olmo3", "phi3",
            "granite"]  # fmt: skip
GGUF = sorted((DATA / "gguf").glob("*.gguf"))
MADE = {"model": {"vocab": {"a": 1, "b": 2, "c": 3, "ab": 4, "d": 5}, "merges": ["a b"]}, "decoder": {"type": "Fuse"}}


@pytest.fixture(scope="module")
def shipped():
    return attn.load(SHIPPED)


@pytest.fixture(scope="module")
def llama():
    return attn.load(DATA / "llama")


def golden(folder):
    load_file = pytest.importorskip("safetensors.numpy").load_file
    return load_file(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_transformers(family):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = attn.load(DATA / family)
    other = transformers.AutoModelForCausalLM.from_pretrained(DATA / family, dtype=torch.float32).eval()
    seed = 20
    ids = np.random.default_rng(seed).integers(0, model.config.vocab_size, (2, 9))
    with torch.no_grad():
        wanted = other(torch.tensor(ids)).logits.numpy()
    most = 1e-5 * max(1, np.abs(wanted).max())
    found = model(ids)
    assert found.dtype == np.float32 and np.abs(found - wanted).max() <= most, seed
    assert np.abs(model(ids[0].tolist()) - wanted[0]).max() <= most
    given = model(torch.tensor(ids))
    assert isinstance(given, torch.Tensor) and np.array_equal(given.numpy(), found)
    assert torch.equal(model(torch.tensor(ids, dtype=torch.int32)), given)
    loss = torch.nn.functional.cross_entropy(torch.tensor(wanted[1, :-1]), torch.tensor(ids[1, 1:])).item()
    assert model.loss(ids[1]) == pytest.approx(loss, abs=1e-5)
    prompt = torch.tensor(ids[:1, :5])
    with torch.no_grad():
        greedy = other.generate(prompt, max_new_tokens=8, do_sample=False, eos_token_id=None, attention_mask=prompt >= 0)
    ends = model.config.end_ids
    written = model.generate(ids[0, :5], new_tokens=8, temperature=0)
    wanted_ids = greedy[0, 5:].tolist()
    stop = next((i for i, id in enumerate(wanted_ids) if id in ends), None)
    assert written.ids == wanted_ids[:stop] and written.finish == ("length" if stop is None else "stop")
    assert written.text == "" and written.prompt_ids == ids[0, :5].tolist()


@pytest.mark.parametrize("path", GGUF, ids=lambda path: path.stem)
@pytest.mark.parametrize("weights", [None, "float32"])
def test_a_gguf_file_is_the_model_it_was_made_of(path, weights):
    wanted = golden(path.with_suffix(".safetensors"))
    model = attn.load(path, weights=weights)
    assert model.weights == (weights or "file")
    most = 2e-5 * max(1, model.config.layers / 8) * np.abs(wanted["logits"]).max()  # each layer rounds
    assert np.abs(model(wanted["ids"]) - wanted["logits"]).max() <= most


def test_what_attn_train_wrote(shipped):
    """The bytes' model that ships: a token is a byte."""
    assert shipped.tokenizer.encode("of") == [111, 102] and shipped.tokenizer.decode([111, 102]) == "of"
    assert shipped.tokenizer.decode(111) == "o" and shipped.tokenizer.vocab_size == 256
    text = "This program is free software"
    logits = shipped(text)
    assert logits.shape == (len(text), 256) and np.array_equal(logits, shipped(np.frombuffer(text.encode(), np.uint8)))
    last = logits[:-1].astype(np.float64)
    last -= last.max(-1, keepdims=True)
    chances = last - np.log(np.exp(last).sum(-1, keepdims=True))
    by_hand = -chances[np.arange(len(text) - 1), list(text.encode()[1:])].mean()
    assert shipped.loss(text) == pytest.approx(by_hand, abs=1e-5)
    assert shipped.loss(text) == pytest.approx(attn.experiment(shipped, text).loss(), abs=1e-5)
    config = shipped.config
    assert (config.family, config.vocab_size, config.head_dim * config.heads) == ("gpt2", 256, config.width)
    assert len(config.windows) == config.layers and set(config.windows) == {0}
    assert json.loads(config.json)["n_layer"] == config.layers
    with pytest.raises(AttributeError):
        config.width = 3
    assert len(repr(shipped)) < 300 and "gpt2" in repr(shipped) and len(repr(config)) < 200
    assert repr(shipped.tokenizer) == "<attn.Tokenizer of 256 tokens>"


def test_steps_report_and_plot(shipped):
    text = "This program is free"
    steps = shipped.steps(text)
    weights = steps["h.0.attn.weights"]
    assert weights.shape == (shipped.config.heads, len(text), len(text))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    page = str(attn.report(shipped, text))
    assert page.startswith("<!doctype html>") and text in page
    assert str(attn.report(shipped, text, layer=1, head=2)) != page
    assert str(attn.plot(shipped, text, layer=0, head=1)).startswith("<svg")
    for draw in (attn.report, attn.plot):
        with pytest.raises(ValueError, match=r"a text or its ids beside the model; found none; attn.\w+\(model, text\)"):
            draw(shipped)
        with pytest.raises(ValueError, match="item 0"):
            draw(shipped, text, item=1)
        with pytest.raises(ValueError, match="layer"):
            draw(shipped, text, layer=99)


def test_a_tokenizer_of_its_own(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(MADE))
    model = attn.load(DATA / "llama", tokenizer=tmp_path)
    assert model.tokenizer.encode("abcd") == [4, 3, 5] and model.tokenizer.decode(np.array([4, 3, 5])) == "abcd"
    assert model.tokenizer.special_tokens == {}
    assert np.array_equal(model("abcd"), model([4, 3, 5]))
    assert model.loss("abcd") == model.loss([4, 3, 5])
    with pytest.raises(ValueError, match="vocab_size|id"):
        model.tokenizer.decode([10**6])
    with pytest.raises(ValueError, match="chat template"):
        model.generate([{"role": "user", "content": "a"}])
    for take in (model.tokenizer.encode, model.loss, model.generate, lambda text: model.generate("a", stop_text=text)):
        with pytest.raises(UnicodeEncodeError, match=r"\[(encode|generate)\] expected text of whole characters"):
            take("\ud800")


@pytest.mark.parametrize("name, call", {"load": attn.load, "Encoder": attn.Encoder, "kept_models": attn.kept_models}.items())
def test_what_is_no_path(name, call):
    for wrong in (None, 3, ["model.gguf"]):
        found = type(wrong).__name__
        with pytest.raises(TypeError, match=rf"\[{name}\] expected a path as a string or os.PathLike; found {found}"):
            call(wrong)


def test_what_is_not_there(tmp_path):
    for missing in ("missing", "missing.gguf", ""):
        with pytest.raises(FileNotFoundError, match=rf"\[load\] expected a model at '{missing}'; found nothing there"):
            attn.load(missing)
    with pytest.raises(FileNotFoundError, match="expected the folder of a tokenizer at .*; found nothing there"):
        attn.load(DATA / "llama", tokenizer=tmp_path / "missing")


def test_what_no_call_can_mean(llama):
    size = llama.config.vocab_size
    for ids in ([1, 5, -100], [1, 5, size], [-1, 5], [size, 5]):
        with pytest.raises(ValueError, match=rf"token ids in \[0, {size}\)"):
            llama.loss(ids)
    for flag in ({"new_tokens": True}, {"temperature": True}, {"seed": False}):
        with pytest.raises(TypeError, match="found bool"):
            llama.generate([1], **flag)
    for large in (llama, llama.loss, lambda ids: llama.generate([1], stop=ids)):
        with pytest.raises(TypeError, match="ids as integers; found an int of more than 64 bits"):
            large([1, 2**70])
    with pytest.raises(TypeError, match="temperature as a number; found an int past the range of numbers"):
        llama.generate([1], temperature=10**400)
    with pytest.raises(TypeError, match="new_tokens as an integer; found an int of more than 64 bits"):
        llama.generate([1], new_tokens=2**70)
    with pytest.raises(ValueError, match="repetition_penalty that leaves logits finite"):
        llama.generate([1, 2, 3, 4, 5, 6], new_tokens=20, repetition_penalty=1e-320)
    for stop in (3, b"ab", ["a", 3], [None]):
        with pytest.raises(TypeError, match="stop_text as a text or a list of texts"):
            llama.generate([1], stop_text=stop)


def test_an_adapter_beside_a_model_is_refused(tmp_path):
    folder = shutil.copytree(DATA / "llama", tmp_path / "model")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="without an adapter in .*; found adapter_config.json; merge the adapter"):
        attn.load(folder)


def test_a_path_of_bytes():
    path = str(DATA / "llama")
    assert attn.load(path.encode()).path == path


@pytest.mark.parametrize("weights", ["bfloat16", "int8", np.float32])
def test_weights(weights, llama):
    model = attn.load(DATA / "llama", weights=weights)
    assert model.weights == getattr(weights, "__name__", weights)
    ids = [3, 1, 4, 1, 5]
    assert len(model.generate(ids, new_tokens=4, temperature=0, stop=[]).ids) <= 4
    if weights is np.float32:
        assert np.array_equal(model(ids), llama(ids))
    else:
        with pytest.raises((TypeError, ValueError), match="float32"):
            attn.experiment(model, ids)


def test_threads_share_a_model(shipped):
    texts = ["This program", "is free software", "you can redistribute it", "and modify it"]
    wanted = [shipped(text) for text in texts]
    words = shipped.generate("The", new_tokens=12, seed=5).text
    wrong = []

    def work(i):
        for _ in range(5):
            if not np.array_equal(shipped(texts[i]), wanted[i]):
                wrong.append(i)
            if shipped.generate("The", new_tokens=12, seed=5).text != words:
                wrong.append("words")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


@pytest.mark.parametrize("ids, kind, says", [
    ([], ValueError, "expected"),
    ("", ValueError, "at least one token"),
    ([-1], ValueError, "-1"),
    ([256], ValueError, "256"),
    ([0] * 10_000, ValueError, "of 1 to 32 tokens"),
    ([1.5], TypeError, "ids as integers"),
    ([[1, 2], [3]], TypeError, "ids as integers"),
    (["a", "b"], TypeError, "ids"),
    (None, TypeError, "a text, or ids .* found NoneType"),
    (3, TypeError, "found int"),
    (np.zeros((2, 2, 2), np.int64), ValueError, "2, 2, 2"),
])  # fmt: skip
def test_bad_ids(shipped, ids, kind, says):
    with pytest.raises(kind, match=says):
        shipped(ids)
    assert shipped("as before").shape == (9, 256)


@pytest.mark.parametrize("text, kind, says", [
    ("", ValueError, "at least one token"),
    ("a", ValueError, "at least two tokens"),
    ([1, 300], ValueError, "300"),
    ("a" * 10_000, ValueError, "of 1 to 32 tokens"),
    (3, TypeError, "a text, or a list of ids"),
    (["a", "b"], TypeError, "one text"),
    (np.zeros((2, 2), np.int64), ValueError, "ids of one text"),
    (b"bytes", TypeError, "ids"),
])  # fmt: skip
def test_bad_texts(shipped, text, kind, says):
    with pytest.raises(kind, match=says):
        shipped.loss(text)


def test_bad_files(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        attn.load("nowhere")
    with pytest.raises(TypeError):
        attn.load(3)
    with pytest.raises(ValueError, match='weights "file", "float32", "bfloat16" or "int8"; found "float8"'):
        attn.load(SHIPPED, weights="float8")
    with pytest.raises(ValueError, match="highest, high or medium"):
        attn.load(SHIPPED, precision="low")
    with pytest.raises(TypeError, match="unexpected keyword"):
        attn.load(SHIPPED, dtype="float32")
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\x00")
    with pytest.raises(ValueError, match="model.gguf"):
        attn.load(tmp_path / "model.gguf")
    with pytest.raises(ValueError, match="bert"):
        attn.load(DATA / "bert")
    model = attn.load(DATA / "llama")
    with pytest.raises(ValueError, match="a tokenizer.json, or vocab.json and merges.txt"):
        model("a text")
    with pytest.raises(OSError, match="nowhere"):
        attn.load(DATA / "llama", tokenizer="nowhere").tokenizer  # noqa: B018
    assert pathlib.Path(model.path) == DATA / "llama"


def held_by(page):
    """The model that a page holds to compute by."""
    return json.loads(re.search(r'<script type="application/json" id="model">(.*?)</script>', str(page), re.DOTALL).group(1))


def test_a_page_that_computes(tmp_path, shipped):
    text = "You may copy it."
    page = attn.report(shipped, text, live=True)
    held = held_by(page)
    assert base64.b64decode(held["weights"]) == SHIPPED.read_bytes() and held["kept"] == []
    assert data_of(page)["title"] == text
    assert 'id="engine"' in str(page) and 'id="model"' not in str(attn.report(shipped, text))
    with pytest.raises(ValueError, match=r"\[checkpoints=True\] expected models that a run has kept"):
        attn.report(shipped, text, live=True, checkpoints=True)
    for name in ("run", "run.step-20", "run.step-40"):
        (tmp_path / f"{name}.safetensors").write_bytes(SHIPPED.read_bytes())
    run = attn.load(tmp_path / "run.safetensors")
    assert [one["step"] for one in held_by(attn.report(run, text, live=True, checkpoints=True))["kept"]] == [20, 40]
    for more in ({"tokens": list(text)}, {"key_tokens": list(text)}):
        with pytest.raises(ValueError, match="a text alone beside live=True; found tokens"):
            attn.report(shipped, text, live=True, **more)
    with pytest.raises(ValueError, match="a text alone beside live=True; found list"):
        attn.report(shipped, list(text.encode()), live=True)
    with pytest.raises(ValueError, match="checkpoints=True beside live=True of an attn.LanguageModel; found live=False"):
        attn.report(shipped, text, checkpoints=True)
