#!/usr/bin/env python3
"""The library in a browser: src/web/attn.wasm.gz against the same door compiled for this machine, bit for bit.

    ATTN_FORCE_ISA=scalar ATTN_DOOR=build/default/tests/libattn_door.so ATTN_COMMAND=build/default/attn tests/web/run.py [-k NAME]
"""

import base64
import gzip
import hashlib
import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import unicodedata
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "report" / "browser"), str(ROOT / "tests" / "web")]
import chromium  # noqa: E402

if not chromium.find():
    print("skipped: no chromium here (Debian: apt-get install chromium)")
    sys.exit(77)
import door  # noqa: E402
import library  # noqa: E402
import texts  # noqa: E402

# All bits agree but where a function of this machine's C library (glibc) gives others than that of a page (musl): then
# steps may be this far from each other, as a share of the step's largest number.
BOUND = 1e-6
LONGEST = 96  # tokens; beyond, scores take most of the time
SMOLLM2 = ROOT / "build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NOT_EXACT = {"gemma2": {"logits"}, "qwen35": {"weights"}, "qwen3_5_text": {"decay", "weights"}}  # by tanh, exp and log

PAGE = """<!doctype html><meta charset="utf-8"><input type="file" id="file"><script>%s
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const textOf = (bytes) => { let text = ""; for (const b of bytes) text += String.fromCharCode(b); return btoa(text); };
const digest = async ({ name, values }) => [name, textOf(new Uint8Array(await crypto.subtle.digest("SHA-256", values)))];
const digests = async () => Object.fromEntries(await Promise.all(it.steps().map(digest)));
const steps = () => Object.fromEntries(it.steps().map(({ name, values }) => [name, textOf(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))]));
const failure = (f) => { try { f(); return "none"; } catch (error) { return error instanceof LibraryError ? error.message : `${error}`; } };
let it;
const openFile = async (config, weights) => it.openModel(new Uint8Array(await document.getElementById("file").files[0].arrayBuffer()), config, weights);
const anew = () => { it = new Library(new WebAssembly.Module(bytesOf("%s"))); };
</script>"""


def b64(data):
    return base64.b64encode(data).decode()


def ids_of(folder):
    """The ids that a model's golden file has."""
    data = (folder / "golden.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])["ids"]
    begin, end = entry["data_offsets"]
    all_ids = struct.unpack(f"<{(end - begin) // 8}q", data[8 + length + begin : 8 + length + end])
    return list(all_ids[: entry["shape"][-1]])


class Web(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        wasm = gzip.decompress((ROOT / "src/web/attn.wasm.gz").read_bytes())
        script = (ROOT / "src/web/library.js").read_text()
        path = pathlib.Path(cls.folder.name) / "page.html"
        path.write_text(PAGE % (script, b64(wasm)))
        cls.browser = chromium.Chromium(chromium.find()).__enter__()
        cls.page = cls.browser.page(path.as_uri())

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        self.page.run("anew()")

    def compare(self, native):
        theirs = native.steps()
        if self.page.run("digests()") == {name: b64(hashlib.sha256(values).digest()) for name, values in theirs.items()}:
            return {}
        mine = {name: base64.b64decode(text) for name, text in self.page.run("steps()").items()}
        self.assertEqual(list(mine), list(theirs))
        worst = {}
        for name, values in theirs.items():
            far = door.apart(values, mine[name])
            self.assertLessEqual(far, BOUND, name)
            last = name.split(".")[-1]
            worst[last] = max(worst.get(last, 0), far)
        return worst

    def read(self, name, path, all_ids, config="", weights=0):
        """Every step of each text; of those that are not alike to the last bit, how far they are from each other."""
        native = door.Door()
        size = native.open_model(path.read_bytes(), config, weights)
        self.page.choose("#file", path)
        self.assertEqual(self.page.run(f"openFile({json.dumps(config)}, {weights})"), size)
        worst = {}
        for ids in all_ids(size):
            native.run(ids)
            self.page.run(f"it.run({json.dumps(ids)})")
            for step, far in self.compare(native).items():
                worst[step] = max(worst.get(step, 0), far)
        worst = {step: far for step, far in worst.items() if far}
        print(f"\n{name}: " + (", ".join(f"{step} {far:.1g}" for step, far in worst.items()) or "all bits"), end="")
        self.assertLessEqual(set(worst), NOT_EXACT.get(name, set()))

    @staticmethod
    def of_bytes(size):
        return [texts.ids_of_bytes(text, size["vocab"], min(size["context"], LONGEST)) for text in texts.TEXTS]

    def test_models_of_the_families(self):
        data = ROOT / "tests/lm/data"
        for folder in sorted(path.parent for path in data.glob("*/config.json")):
            with self.subTest(folder.name):
                if not (folder / "model.safetensors").exists():
                    continue  # in shards, which a page does not take
                golden = ids_of(folder)
                self.read(folder.name, folder / "model.safetensors", lambda size: [golden, *self.of_bytes(size)], (folder / "config.json").read_text())  # noqa: B023

    def test_models_in_gguf(self):
        for path in sorted((ROOT / "tests/lm/data/gguf").glob("*.gguf")):
            with self.subTest(path.name):
                self.read(path.stem, path, self.of_bytes, weights=3)

    def test_an_encoder_in_gguf(self):
        path = ROOT / "tests/lm/data/bert/model.gguf"
        self.read("bert.gguf", path, lambda size: [ids_of(path.parent), *self.of_bytes(size)], weights=3)

    def test_a_model_of_ten_million_weights(self):
        folder = pathlib.Path(self.folder.name)
        (folder / "text.txt").write_text("You may copy it, and you may change it. " * 80)
        library.attn(folder, "train", "--text", "text.txt", "--out", "large.safetensors", "--context", 32, "--steps", 1, "--batch", 1, "--layers", 6, "--heads", 6, "--width", 384)
        self.read("10.8 million weights", folder / "large.safetensors", self.of_bytes)

    @unittest.skipUnless(os.environ.get("ATTN_NIGHTLY") and SMOLLM2.exists(), "by make nightly, with build/smollm2")
    def test_smollm2(self):
        """By its own tokenizer, up to 32 tokens a text."""
        tokenizer = door.Door()
        tokenizer.call("open_tokenizer", "", "", SMOLLM2.read_bytes())
        ids = [json.loads(tokenizer.call("encode", text))["ids"][:32] or [0] for text in texts.TEXTS]
        self.read("SmolLM2", SMOLLM2, lambda size: ids, weights=3)

    def test_the_shipped_model(self):
        path = ROOT / "examples/data/licences.safetensors"
        text = "You may copy the Program."
        self.read("licences", path, self.of_bytes)
        self.page.run(f"it.run({list(text.encode())})")
        self.assertEqual(self.page.run(f"it.encode({json.dumps(text)})")["ids"], list(text.encode()))
        said = self.page.run("it.next({ most: 3 })")
        self.assertEqual(len(said["tokens"]), 3)
        self.assertEqual(said["loss"], said["before"])
        self.page.run(f"it.run({list(text.encode())}, [{{ layer: 0, head: 1 }}])")
        changed = self.page.run("it.next({ most: 3 })")
        self.assertEqual(changed["before"], said["loss"])
        self.assertNotEqual(changed["loss"], said["loss"])

    def test_a_text_that_goes_on(self):
        """By a cache of keys and values: what follows is what it is behind the whole text."""
        folders = [ROOT / "tests/lm/data" / name for name in ("llama", "mistral", "gemma2", "gemma3_text", "minicpm3", "olmo_hybrid", "qwen3_5_text")]  # windows, latents and states among them
        models = [(ROOT / "examples/data/licences.safetensors", "", 0), *((f / "model.safetensors", (f / "config.json").read_text(), 0) for f in folders)]
        models.append((ROOT / "tests/lm/data/gguf/llama.gguf", "", 3))
        chances = lambda said: {one["id"]: one["chance"] for one in said["tokens"]}  # noqa: E731
        for path, config, weights in models:
            with self.subTest(path.parent.name):
                data = path.read_bytes()
                ids = [1 + 7 * i % 40 for i in range(12)]
                native = door.Door()
                native.open_model(data, config, weights)
                self.page.run(f"it.openModel(bytesOf('{b64(data)}'), {json.dumps(config)}, {weights})")
                for count in (5, 6, 9, 12, 7):  # one more, some more, and another text
                    self.page.run(f"it.read({ids[:count]})")
                    cached = self.page.run("it.next({ most: 1000 })")
                    native.of_ids("read", ids[:count])
                    self.assertEqual([one["id"] for one in json.loads(native.call("next", 1.0, 0, 1.0, 5))["tokens"]], [one["id"] for one in cached["tokens"][:5]])
                    self.page.run(f"it.run({ids[:count]})")
                    whole = chances(self.page.run("it.next({ most: 1000 })"))
                    self.assertEqual(set(whole), set(chances(cached)))
                    for token, chance in chances(cached).items():
                        self.assertAlmostEqual(chance, whole[token], delta=1e-5)
                self.assertEqual(cached["loss"], "nan")

    def test_names_of_heads(self):
        model = (ROOT / "examples/data/licences.safetensors").read_bytes()
        ids = list(b"You may copy")
        native = door.Door()
        native.open_model(model)
        self.page.run(f"it.openModel(bytesOf('{b64(model)}'))")
        expected, found = json.loads(native.of_ids("names", ids)), self.page.run(f"it.names({ids})")
        self.assertEqual(found["named"], expected["named"])
        for mine, theirs in zip(found["layers"], expected["layers"], strict=True):
            for one, other in zip(mine["kinds"], theirs["kinds"], strict=True):
                self.assertEqual(sorted(one), ["first", "induction", "previous", "same"])
                for name, value in one.items():
                    self.assertAlmostEqual(value, other[name], delta=1e-6)

    def test_modules_of_the_book(self):
        rng = random.Random(7)
        x = [rng.uniform(0, 1) for _ in range(18)]
        linear = {"d_in": 3, "d_out": 4}
        shapes = {"W_query": (3, 4), "W_key": (3, 4), "W_value": (3, 4)}
        matrices = {f"{name}.weight": (4, 3) for name in shapes}
        cases = {
            "simple": ({}, {}), "average": ({}, {}), "self-v1": (linear, shapes), "self-v2": (linear, matrices),
            "head": (linear, matrices), "causal": (linear, matrices),
            "cross": (linear, {**matrices, "out_proj.weight": (4, 4), "out_proj.bias": (4,)}),
            "heads": ({**linear, "num_heads": 2}, {f"heads.{h}.{n}": s for h in (0, 1) for n, s in matrices.items()}),
            "multihead": ({**linear, "num_heads": 2}, {**matrices, "out_proj.weight": (4, 4), "out_proj.bias": (4,)}),
            "latent": ({**linear, "num_heads": 2, "latents": {"query": 3, "latent": 4, "plain": 4, "rotary": 0, "value": 4}},
                       {"q_a_proj.weight": (3, 3), "q_a_layernorm.weight": (3,), "q_b_proj.weight": (8, 3), "kv_a_proj_with_mqa.weight": (4, 3),
                        "kv_a_layernorm.weight": (4,), "kv_b_proj.weight": (16, 4), "o_proj.weight": (4, 8)}),
        }  # fmt: skip
        for name, (config, state) in cases.items():
            with self.subTest(name):
                tensors = {}
                for key, shape in state.items():
                    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
                    tensors[key] = ([rng.uniform(-1, 1) for _ in range(count)], shape)
                path = pathlib.Path(self.folder.name) / "weights.safetensors"
                library.save_safetensors(path, tensors)
                weights = path.read_bytes() if tensors else b""
                native = door.Door()
                native.open_module({"name": name, **config}, weights)
                source = x[:12] if name == "cross" else [0.0]
                native.run_module(x, 6, 3, source, 4)
                self.page.run(f"it.openModule({json.dumps({'name': name, **config})}, bytesOf('{b64(weights)}'))")
                self.page.run(f"it.runModule(new Float32Array({x}), 6, 3, new Float32Array({source}), 4)")
                worst = self.compare(native)
                print(f"\n{name}: " + (", ".join(f"{k} {v:.1g}" for k, v in worst.items() if v) or "all bits"), end="")

    def test_mistakes_are_told_and_the_page_goes_on(self):
        good = (ROOT / "examples/data/licences.safetensors").read_bytes()
        self.page.run(f"it.openModel(bytesOf('{b64(good)}'))")
        hostile = {
            "empty": b"", "text": b"hello, world", "cut off": good[: len(good) // 2], "header": b"\xff" * 64,
            "json": struct.pack("<Q", 2) + b"{x", "gguf": b"GGUF" + b"\xff" * 40,
            "lengths": struct.pack("<Q", 61) + b'{"a":{"dtype":"F32","shape":[4294967297,4294967297],"data_of' + b" " * 20,
        }  # fmt: skip
        for name, data in hostile.items():
            with self.subTest(name):
                told = self.page.run(f"failure(() => it.openModel(bytesOf('{b64(data)}')))")
                self.assertRegex(told, r"^\[\w+\] expected .*; found ")
        path = pathlib.Path(self.folder.name) / "turning.safetensors"
        library.save_safetensors(path, {f"{name}.weight": ([1] * 16, (4, 4)) for name in ("W_query", "W_key", "W_value", "out_proj")} | {"out_proj.bias": ([0] * 4, (4,))})
        turning = {"name": "multihead", "d_in": 4, "d_out": 4, "num_heads": 1, "rope": {"invFreq": [1e9, 1]}}
        self.page.run(f"it.openModule({json.dumps(turning)}, bytesOf('{b64(path.read_bytes())}'))")
        told = self.page.run("failure(() => it.runModule(new Float32Array(12), 3, 4))")
        self.assertRegex(told, "expected angles of at most 1,647,099 radians; found a larger one")
        told = self.page.run("failure(() => it.run([1, 2, 999]))")
        self.assertRegex(told, r"expected .*; found .*999")
        told = self.page.run("failure(() => it.openModule({ name: 'multihaed' }))")
        self.assertIn("found multihaed", told)
        told = self.page.run("failure(() => it.run([89], [{ step: 'h.0.attn.scroes', value: 1 }]))")
        self.assertIn("did you mean h.0.attn.scores", told)
        self.page.run("it.run([89, 111, 117])")
        self.assertGreater(len(self.page.run("steps()")), 10)

    def test_edits(self):
        model = (ROOT / "examples/data/licences.safetensors").read_bytes()
        edits = [{"step": "h.1.attn.scores", "head": 2, "row": 5, "column": 3, "value": 4.5}, {"layer": 0, "head": 1},
                 {"step": "h.2.inputs", "row": 4, "column": 90, "value": -2}, {"step": "h.3.attn.masked", "head": 0, "row": 6, "column": 2, "value": "-inf"}]
        native = door.Door()
        native.open_model(model)
        native.run(list(b"You may copy"), edits)
        self.page.run(f"it.openModel(bytesOf('{b64(model)}'))")
        self.page.run(f"it.run({list(b'You may copy')}, {json.dumps(edits)})")
        self.compare(native)
        scores = struct.unpack("<144f", native.steps()["h.1.attn.scores"][2 * 576 : 3 * 576])
        self.assertEqual(scores[5 * 12 + 3], 4.5)
        context = native.steps()["h.0.attn.context"]
        self.assertEqual(set(context[len(context) // 3 : 2 * len(context) // 3]), {0})

    def test_tokenizers(self):
        native = door.Door()
        for path in sorted((ROOT / "tests/text/data/tokenizers").glob("*.json")):
            text = path.read_text()
            sample = "Hello, wörld! 12345 don't\n\n  tabs\tand 日本語 🙂"
            native.call("open_tokenizer", text, "", b"")
            expected = json.loads(native.call("encode", sample))
            self.page.run(f"it.openTokenizer({json.dumps(text)})")
            self.assertEqual(self.page.run(f"it.encode({json.dumps(sample)})"), expected, path)

    def test_normal_forms(self):
        """By the page's own functions, whose Unicode is newer than that of the tokenizers package."""
        native = door.Door()
        for kind in ("NFC", "NFD"):
            described = {"version": "1.0", "added_tokens": [], "normalizer": {"type": kind}, "decoder": {"type": "ByteFallback"},
                         "model": {"type": "BPE", "byte_fallback": True, "vocab": {f"<0x{b:02X}>": b for b in range(256)}, "merges": []}}  # fmt: skip
            native.call("open_tokenizer", json.dumps(described), "", b"")
            self.page.run(f"it.openTokenizer({json.dumps(json.dumps(described))})")
            encoded = lambda text: (self.page.run(f"it.encode({json.dumps(text)}).ids"), json.loads(native.call("encode", text))["ids"])  # noqa: B023, E731
            mine, theirs = encoded("\ufeffe\u0301o\u0323\u0302\u1112\u1161\u11ab\ufb01 \u1ea5\u212b")
            self.assertEqual(mine, theirs)
            self.assertEqual(bytes(mine).decode(), unicodedata.normalize(kind, "\ufeffe\u0301o\u0323\u0302\u1112\u1161\u11ab\ufb01 \u1ea5\u212b"))
            for first in range(0x80, 0x30000, 0x1000):
                text = "".join(f"a\u0323\u0307{chr(c)}\u0334{chr(c)}\u0307 " for c in range(first, first + 0x1000) if not 0xD800 <= c < 0xE000)
                mine, theirs = encoded(text)
                self.assertEqual(bytes(mine).split(b" "), bytes(theirs).split(b" "))


unittest.main(verbosity=2)
