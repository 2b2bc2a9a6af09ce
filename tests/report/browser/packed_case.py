"""Layers that are compressed: they open, one that is damaged says so, and an encoder's page is like a model's."""

import base64
import json
import math
import pathlib
import zlib

import library
from report_case import ReportTest

LAYERS, HEADS, TOKENS = 6, 4, 110  # 1.2 MB of float32
OPENED = "new Promise((done) => { const look = () => (blocks.some((b) => b.packed) ? setTimeout(look, 20) : done(true)); look(); })"


class Packed(ReportTest):
    def weights(self):
        values = []
        for plane in range(LAYERS * HEADS):
            for i in range(TOKENS):
                e = [math.exp(2 * math.sin(plane + 3 * i + 7 * j)) if j <= i else 0 for j in range(TOKENS)]
                values.extend(x / sum(e) for x in e)
        library.save_npy(self.folder / "layers.npy", values, (LAYERS, HEADS, TOKENS, TOKENS))
        return values

    def written(self):
        path = self.folder / "packed.html"
        library.attn(self.folder, "report", "layers.npy", "--layer", 2, "--output", path)
        text = path.read_text()
        start = text.index('id="data">') + len('id="data">')
        return path, text, start, text.index("</script>", start)

    def test_a_compressed_layer_opens_and_has_the_librarys_numbers(self):
        values = self.weights()
        _, text, start, end = self.written()
        stored = json.loads(text[start:end])["blocks"]
        self.assertEqual(["packed" in block for block in stored], [True, False, True, True, True, True])
        raw = zlib.decompress(base64.b64decode(stored[3]["packed"]), -15)
        rest = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
        self.assertEqual([step["name"] for step in rest["steps"]], ["weights"])
        page = self.open("layers.npy", "--layer", 2, fragment="#layer=4&head=3&query=100")
        self.assertTrue(page.run(OPENED))
        self.assertEqual(page.run("[state.block, state.head]"), [3, 2])
        for i, j in [(99, 0), (99, 57), (4, 3)]:
            self.assertEqual(page.run(f"currentBlock().step('weights').at(2, {i}, {j})"),
                             library.float32(values[((3 * HEADS + 2) * TOKENS + i) * TOKENS + j]))
        page.run("new Promise((done) => setTimeout(done, 100))")
        self.assertEqual(page.run("document.querySelectorAll('#heads .head canvas').length"), LAYERS * HEADS)

    def test_a_layer_that_is_damaged_says_so(self):
        self.weights()
        path, text, start, end = self.written()
        data = json.loads(text[start:end])
        data["blocks"][3]["packed"] = base64.b64encode(b"\xff" + base64.b64decode(data["blocks"][3]["packed"])[1:]).decode()
        broken = path.with_name("broken.html")
        broken.write_text(text[:start] + json.dumps(data) + text[end:])
        page = self.browser.page(f"file://{broken}")
        self.pages.append(page)
        page.run("new Promise((done) => { const look = () => (blocks.filter((b) => b.packed).length > 1 || !document.querySelector('.closed[role=alert]') ? setTimeout(look, 20) : done(true)); look(); })")
        self.assertIn("Layer 4 cannot be opened", page.text(".closed[role=alert]"))
        page.run("select({ block: 3 })")
        self.assertEqual(page.run("state.block"), 1)
        page.run("select({ block: 4 })")
        self.assertEqual(page.run("state.block"), 4)

    def test_an_encoders_page(self):
        model = pathlib.Path(__file__).resolve().parents[3] / "build/others/all-minilm-l6-v2"
        if not model.exists():
            self.skipTest("no build/others/all-minilm-l6-v2: make others")
        page = self.open("--model", model, "--text", "A cat sits on the mat.", "--layers", "2-3,6", fragment="#layer=3")
        self.assertTrue(page.run(OPENED))
        self.assertIn("layer 3", page.text("#stage-title"))
        self.assertEqual(page.run("blocks.map((_, b) => layerNumber(b))"), [2, 3, 6])
        self.assertEqual(page.run("document.querySelectorAll('.health .fails').length"), 0)
        self.assertEqual(page.run("[document.querySelectorAll('#overview td button').length, document.querySelectorAll('#overview [data-kind], .kinds').length]"), [3 * 12, 0])
        self.assertFalse(page.run("Boolean(currentBlock().masked(0)?.some((x) => x))"))  # every token sees every other
