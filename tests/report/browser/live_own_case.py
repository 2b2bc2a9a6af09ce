"""A live page that opens models from this computer: good ones, and files that are not."""

import pathlib
import shutil
import struct

import library
from live_case import ANSWERED, LivePage
from overview_case import MODEL

DATA = pathlib.Path(__file__).resolve().parents[2]
TOKENIZERS, MODELS = DATA / "text/data/tokenizers", DATA / "lm/data"
GGUF = MODELS / "gguf/qwen2.gguf"
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's values, by their kind


def gguf_parts(data):
    """A GGUF file's values by their names, the number of its tensors, their descriptions, and the rest."""
    tensors, count = struct.unpack_from("<QQ", data, 8)
    at, values = 24, {}

    def text():
        nonlocal at
        length = struct.unpack_from("<Q", data, at)[0]
        at += 8 + length
        return data[at - length : at]

    def value(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            of, length = struct.unpack_from("<IQ", data, at)
            at += 12
            for _ in range(length):
                value(of)
        else:
            at += SIZES[kind]

    for _ in range(count):
        begin, name = at, text()
        at += 4
        value(struct.unpack_from("<I", data, at - 4)[0])
        values[name] = data[begin:at]
    begin = at
    for _ in range(tensors):
        text()
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    return values, tensors, data[begin:at], data[at + -at % 32 :]


def joined_gguf(model, tokenizer, tokens):
    """A model with the tokenizer of another file, and with the first rows of its embedding, its first tensor, again for
    so many tokens."""
    values, tensors, descriptions, numbers = gguf_parts(model)
    values |= {name: data for name, data in gguf_parts(tokenizer)[0].items() if name.startswith(b"tokenizer.")}
    values = {key: data for key, data in values.items() if not key.endswith(b".vocab_size")}
    name = struct.pack("<Q", 17) + b"token_embd.weight"
    width, rows, kind, offset = struct.unpack_from("<QQIQ", descriptions, descriptions.index(name) + len(name) + 4)
    size = width * {0: 4, 1: 2}[kind]  # of float32 and float16
    embedding = (numbers[offset : offset + size * rows] * tokens)[: size * tokens]
    numbers += bytes(-len(numbers) % 32)
    larger = struct.pack("<QQIQ", width, tokens, kind, len(numbers))
    descriptions = descriptions.replace(struct.pack("<QQIQ", width, rows, kind, offset), larger)
    head = model[:8] + struct.pack("<QQ", tensors, len(values)) + b"".join(values.values()) + descriptions
    return head + bytes(-len(head) % 32) + numbers + embedding


class LiveOwn(LivePage):
    def choose(self, page, *files):
        """By the file picker."""
        before = page.run("live.asked")
        page.choose("#live-files", *files)
        self.wait(page, f"live.asked > {before}")

    def drop(self, page, *files):
        before = page.run("live.asked")
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            page.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": data})
        self.wait(page, f"live.asked > {before}")

    def trained(self, name, *options):
        """A model that was hardly trained, whose file holds its config."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            (folder / "text.txt").write_text("You may copy it, and you may change it. " * 20)
            library.attn(folder, "train", "--text", "text.txt", "--out", "small.safetensors", "--context", 24, "--steps", 1, "--batch", 1, *options)
        return folder / "small.safetensors"

    def compare(self, page, model, text, *options):
        """The weights of all heads with those that the command computes."""
        layers = page.run("blocks.map((block) => Array.from(block.step('weights').values))")
        heads = page.run("blocks[0].heads")
        for layer, found in enumerate(layers, 1):
            for head in range(heads):
                told = library.json.loads(library.attn(self.folder, "show", "--model", model, "--text", text, "--layer", layer, "--head", head + 1, "--json", *options))
                wanted = [x for row in told["values"] for x in row]
                for a, b in zip(found[head * len(wanted) : (head + 1) * len(wanted)], wanted, strict=True):
                    self.near(a, b, 1e-5)
        return len(layers), heads

    def test_a_file_from_this_computer_runs(self):
        model = self.trained("bytes", "--layers", 3, "--heads", 2, "--width", 16)
        page = self.live()
        self.choose(page, model)
        self.settled(page)
        self.assertIn("small.safetensors, a model from this computer: gpt2, 3 layers of 2 heads", page.text("#about"))
        self.assertEqual(page.text("#live-said"), "")
        self.assertEqual(self.compare(page, model, "You may copy"), (3, 2))
        self.compare_kinds(page, model, "You may copy")
        self.assertIn("no name (6)", page.text("#overview"))
        self.type(page, " it, too, as often")
        self.settled(page)
        self.assertEqual(len(page.run("report.tokens")), 24)  # its context
        page.set("#live-text", "You may")
        self.settled(page)
        self.compare(page, model, "You may")
        page.set("#temperature", "0")
        self.settled(page)
        page.click("#live-one")
        self.settled(page)
        page.run("select({ block: 2, head: 1 })")
        page.click("#edit-head")
        self.settled(page)
        self.assertIn("layer 3, head 2 off", page.text("#live-edits"))
        # A context of zero is no fault: what was changed is not checked.
        self.assertNotIn("fail", page.text("#about"))
        self.assertFalse(page.run("document.getElementById('checks') !== null || report.health.length > 0"))
        self.assertIn("left out", page.text("#live-edits"))
        self.assertEqual(page.run("document.querySelectorAll('#overview td button').length"), 6)
        self.assertFalse(page.run("document.getElementById('snippets') !== null"))  # they would be of the other model
        page.click("#edit-none")
        self.settled(page)
        self.wait(page, "report.health.length > 3")
        self.assertTrue(page.run("document.getElementById('checks') !== null && report.health.every(({ holds }) => holds)"))

    def test_the_files_of_a_folder_are_dropped(self):
        folder = self.folder / "tokenizer"
        folder.mkdir(exist_ok=True)
        shutil.copy(TOKENIZERS / "smollm.json", folder / "tokenizer.json")
        model = self.trained("tokens", "--layers", 1, "--heads", 2, "--width", 8, "--tokenizer", folder)
        page = self.live()
        page.set("#live-text", "You may copy it 12 times")
        self.settled(page)
        self.drop(page, folder / "tokenizer.json", model, model.parent / "text.txt")
        self.settled(page)
        self.assertIn("Not read: text.txt", page.text("#about"))
        self.assertLess(page.run("report.tokens.length"), 24)
        self.assertEqual(page.run("report.tokens.join('')"), "You may copy it 12 times")
        self.compare(page, model, "You may copy it 12 times", "--tokenizer", folder)
        # Without its tokenizer it is refused, and what is open stays.
        self.drop(page, model)
        self.wait(page, "document.getElementById('live-said').textContent.startsWith('[')")
        self.assertRegex(page.text("#live-said"), r"expected a tokenizer\.json beside a model of \d+ tokens; found none")
        self.type(page, ".")
        self.settled(page)
        self.assertTrue(page.run("report.tokens.join('').endsWith('times.')"))

    def test_a_gguf_file_and_its_own_tokenizer(self):
        path, tokenizer = self.folder / "joined.gguf", (TOKENIZERS / "llama3.gguf").read_bytes()
        page = self.live(text="Hello, 12 times")
        path.write_bytes(joined_gguf(GGUF.read_bytes(), tokenizer, 61))
        self.choose(page, path)
        self.wait(page, "document.getElementById('live-said').textContent.startsWith('[')")
        self.assertIn("expected the tokenizer of a model of 61 tokens; found one of 566", page.text("#live-said"))
        path.write_bytes(joined_gguf(GGUF.read_bytes(), tokenizer, 566))
        self.choose(page, path)
        self.settled(page)
        self.assertEqual(page.text("#live-said"), "")
        self.assertIn("joined.gguf, a model from this computer: qwen2", page.text("#about"))
        self.compare(page, path, "Hello, 12 times")

    def test_files_that_are_not_read_are_named(self):
        folder, tokenizer = self.folder / "beside", (TOKENIZERS / "llama3.gguf").read_bytes()
        folder.mkdir(exist_ok=True)
        beside = {"tokenizer_config.json": "{}", "special_tokens_map.json": "{}", "model.safetensors.index.json": "{}", "config.json": '{"model_type": "bert"}'}
        for name, text in beside.items():
            (folder / name).write_text(text)
        shutil.copy(TOKENIZERS / "smollm.json", folder / "tokenizer.json")
        gguf, own = folder / "joined.gguf", self.trained("bytes", "--layers", 3, "--heads", 2, "--width", 16)
        gguf.write_bytes(joined_gguf(GGUF.read_bytes(), tokenizer, 566))
        page = self.live()
        for model, names in {gguf: (*beside, "tokenizer.json"), own: beside}.items():
            self.choose(page, model, *(folder / name for name in names))
            self.settled(page)
            self.assertEqual(page.text("#live-said"), "")
            self.assertIn(f"{model.name}, a model from this computer", page.text("#about"))
            told = page.text("#about").split("Not read: ")[1].split(".\n")[0]
            self.assertEqual(set(told.split(", ")), set(names))

    def test_a_model_of_fewer_layers_and_heads_takes_the_place_of_one_with_more(self):
        page = self.live()
        page.run("select({ block: 3, head: 2, step: 'scaled', view: 'difference', other: 1, query: 11 })")
        model = self.trained("one", "--layers", 1, "--heads", 1, "--width", 8)
        self.choose(page, model)
        self.settled(page)
        self.assertEqual(page.text("#live-said"), "")
        self.assertEqual(page.run("[state.block, state.head, state.other, state.query]"), [0, 0, 0, 11])
        self.assertEqual(self.compare(page, model, "You may copy"), (1, 1))

    def test_a_model_in_shards(self):
        folder = self.folder / "shards"
        shutil.copytree(MODELS / "qwen3", folder, dirs_exist_ok=True)
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!?\u0027-:;"
        model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters[:61])}, "merges": []}
        (folder / "tokenizer.json").write_text(library.json.dumps({"version": "1.0", "added_tokens": [], "decoder": {"type": "ByteFallback"}, "model": model}))
        shards = sorted(folder.glob("model-*.safetensors"))
        others = [folder / name for name in ("model.safetensors.index.json", "config.json", "tokenizer.json")]
        held = self.open("--live", "--model", folder, "--text", "You may copy")
        page = self.live()
        self.choose(page, *others, *shards)
        self.settled(page)
        self.assertIn("4 shards, a model from this computer: qwen3", page.text("#about"))
        self.assertNotIn("Not read", page.text("#about"))
        self.wait(held, "live.next !== undefined")
        held.set("#live-text", "You may copy!")
        self.settled(held)
        for computed, text in ((page, "You may copy"), (held, "You may copy!")):
            self.compare(computed, folder, text)
        (folder / "cut.safetensors").write_bytes(b"\xff" * 40)
        for files, told in {(*others, *shards[1:]): "none named model-00001-of-00004.safetensors", (*others, *shards, folder / "cut.safetensors"): "found 5"}.items():
            page.run("said('')")
            self.choose(page, *files)
            self.wait(page, "document.getElementById('live-said').textContent.startsWith('[')")
            self.assertIn(told, page.text("#live-said"))
        shards[0].write_bytes(b"\xff" * 40)
        self.choose(page, *others, *shards)
        self.wait(page, "document.getElementById('live-said').textContent.startsWith('[page] expected the shards')")

    def test_layers_that_keep_a_state(self):
        model = self.trained("states", "--layers", 2, "--heads", 2, "--width", 16, "--mixer", "gated-delta")
        page = self.live()
        self.choose(page, model)
        self.settled(page)
        self.assertEqual(page.text("#live-said"), "")
        self.compare(page, model, "You may copy")
        page.set("#temperature", "0")
        self.settled(page)
        page.run("live.mostAtOnce = 0")  # as if each pass took long
        page.run("(() => { const goOn = proceed; proceed = (drawn) => live.ids.length < 16 && goOn(drawn); })()")  # the context is not far
        page.click("#live-on")
        self.wait(page, "live.ids.length === 16")
        page.click("#live-on")
        self.wait(page, f"!live.going && !live.ahead && {ANSWERED} === live.asked")
        found = page.run("live.ids")
        wanted = library.json.loads(library.attn(self.folder, "generate", "--model", model, "--prompt", "You may copy", "--tokens", len(found) - 12, "--temperature", 0, "--json"))
        self.assertEqual(found, wanted["prompt_ids"] + wanted["ids"])  # bytes of texts that are none are counted otherwise

    def test_hostile_files_leave_the_model_that_is_open(self):
        good = MODEL.read_bytes()
        gguf = GGUF.read_bytes()
        config = MODELS / "llama/config.json"
        many = b'{"a":{"dtype":"F32","shape":[4294967297,4294967297],"data_offsets":[0,4]}}'
        hostile = {
            "empty.safetensors": b"", "text.gguf": b"hello, world", "half.safetensors": good[: len(good) // 2],
            "half.gguf": gguf[: len(gguf) // 2], "head.safetensors": b"\xff" * 64, "head.gguf": b"GGUF" + b"\xff" * 60,
            "many.safetensors": struct.pack("<Q", len(many)) + many + bytes(4), "notes.txt": b"\x00" * 4096,
        }  # fmt: skip
        page = self.live()
        for name, data in hostile.items():
            with self.subTest(name):
                (self.folder / name).write_bytes(data)
                page.run("said('')")
                self.choose(page, self.folder / name)
                self.wait(page, "document.getElementById('live-said').textContent.startsWith('[')")
                self.assertRegex(page.text("#live-said"), r"^\[\w+\] expected .*; found ")
        for files, words in {
            (config,): "expected a model in one file, safetensors or GGUF; found none",
            (MODEL, self.folder / "half.gguf"): "found licences.safetensors and half.gguf|found half.gguf and licences.safetensors",
            (config, MODELS / "llama/model.safetensors"): "expected a tokenizer.json beside a model of 61 tokens; found none",
        }.items():  # fmt: skip
            page.run("said('')")
            self.choose(page, *files)
            self.wait(page, "document.getElementById('live-said').textContent.startsWith('[')")
            self.assertRegex(page.text("#live-said"), words)
        page.set("#live-text", "You may copy it.")
        self.settled(page)
        self.assertEqual(page.text("#live-said"), "")
        self.assertNotIn("from this computer", page.text("#about"))
        self.compare(page, MODEL, "You may copy it.")

    def test_an_address_waits_for_its_model(self):
        model = self.trained("bytes", "--layers", 3, "--heads", 2, "--width", 16)
        page = self.live()
        self.choose(page, model)
        self.settled(page)
        page.set("#live-text", "You change it")
        self.settled(page)
        page.run("select({ block: 2, head: 1 })")
        page.click("#edit-head")
        self.settled(page)
        page.run("new Promise((done) => setTimeout(done, 600))")
        fragment = page.run("location.hash")
        again = self.open("--live", "--model", MODEL, "--text", "You may copy", fragment=fragment)
        self.wait(again, "live.next !== undefined")
        self.assertIn("expected the model that is open, this page’s own; found small.safetensors; open that one first", again.text("#live-said"))
        self.choose(again, model)
        self.wait(again, "live.now.edits.length === 1")
        self.settled(again)
        for what in ("report.tokens", "live.next", "live.now.edits"):
            self.assertEqual(again.run(what), page.run(what), what)
        again.set("#live-text", "You may")
        self.settled(again)
        self.choose(again, model)  # the address was for the first time alone
        self.settled(again)
        self.assertEqual(again.run("[report.tokens.join(''), live.now.edits.length]"), ["You may", 0])

    def test_a_folder_is_told_to_be_one(self):
        page = self.live()
        folder = self.folder / "a-model"
        folder.mkdir(exist_ok=True)
        for kind in ("dragEnter", "dragOver", "drop"):
            page.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": {"items": [], "files": [str(folder)], "dragOperationsMask": 1}})
        self.wait(page, "document.getElementById('live-said').textContent !== ''")
        self.assertIn("found a-model, a folder; drop the files in it together", page.text("#live-said"))

    def test_a_file_that_is_too_large_is_named(self):
        page = self.live()
        with open(self.folder / "large.gguf", "wb") as file:
            file.truncate(3 * 10**9)  # a hole, which takes no room on the disk
        self.choose(page, self.folder / "large.gguf")
        self.wait(page, "document.getElementById('live-said').textContent.startsWith('[')")
        self.assertIn("expected a model of less than 2.1 GB; found large.gguf of 3.0 GB", page.text("#live-said"))
