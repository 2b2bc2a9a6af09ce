"""The page of a model: the map with the heatmap beside it, one name for one thing, and how tall and wide it is."""

import pathlib
import subprocess

import library
from overview_case import CELLS, MODEL, NAMES
from report_case import ReportTest, WORDS

TEXT = "You may copy the Program."
DATA = pathlib.Path(__file__).resolve().parents[2] / "lm/data"
SMOLLM2 = pathlib.Path(__file__).resolve().parents[3] / "build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
RANKS = ["induction", "previous", "same", "first"]  # which heads come first
HEAD = "((b) => [b.left, b.top + scrollY, b.right, b.bottom + scrollY])(document.querySelector('{}').getBoundingClientRect())"


def attention(tokens, seed):
    """Causal weights of one head as rows of float."""
    values = []
    for i in range(tokens):
        scores = [2.0 ** ((seed * (3 * i + 5 * j)) % 7) if j <= i else 0 for j in range(tokens)]
        values.extend(x / sum(scores) for x in scores)
    return values


class ModelPage(ReportTest):
    def licences(self, *more, **options):
        return self.open("--model", MODEL, "--text", TEXT, *more, **options)

    def layers(self, layers, heads, tokens, **options):
        values = [x for plane in range(layers * heads) for x in attention(tokens, plane + 1)]
        library.save_npy(self.folder / "layers.npy", values, (layers, heads, tokens, tokens))
        return self.open("layers.npy", **options)

    def box(self, page, selector):
        return page.run(HEAD.format(selector))

    def test_the_heatmap_stands_beside_the_map_and_follows_it(self):
        page = self.licences(width=1400, height=1600)  # the bar with the selection lies below
        table, heatmap = self.box(page, "#overview [role=grid]"), self.box(page, "#stage-matrix .frame")
        self.assertLess(table[2], heatmap[0])
        self.assertTrue(table[1] < heatmap[3] and heatmap[1] < table[3], "not beside one another")
        shown = []
        for block, head in page.run(f"{CELLS}.map((b) => [Number(b.dataset.block), Number(b.dataset.head)])")[1::7]:
            page.click(f"#overview button[data-block='{block}'][data-head='{head}']")
            self.assertTrue(page.text("#stage-title").startswith(f"weights, layer {block + 1}, head {head + 1}"))
            told = library.json.loads(library.attn(self.folder, "show", "--model", MODEL, "--text", TEXT, "--layer", block + 1, "--head", head + 1, "--json"))
            left, top, right, bottom = self.box(page, "#stage-matrix canvas")
            count = len(told["values"])
            cell = (right - left) / count
            rows = page.pixels((left, top, right - left, bottom - top))
            for i, j in [(0, 0), (9, 8), (24, 23), (24, 3), (17, 5)]:
                wanted = page.run(f"between(cividis, {told['values'][i][j] / max(told['values'][i])!r})")
                found = rows[int((i + 0.5) * cell)][int((j + 0.5) * cell)]
                for a, b in zip(found, wanted):
                    self.assertLessEqual(abs(a - b), 3, (block, head, i, j, found, wanted))
            shown.append(rows)
        self.assertNotEqual(shown[0], shown[1])

    def test_layers_of_both_kinds_with_heads_of_their_own(self):
        """Qwen3.5's: six states, four heads with a gate behind them, six states."""
        letters = "abcdefgh"
        (self.folder / "tokenizer.json").write_text(library.json.dumps({"model": {"vocab": {c: i for i, c in enumerate(letters)}, "merges": []}, "decoder": {"type": "Fuse"}}))
        page = self.open("--model", DATA / "qwen3_5_text", "--tokenizer", self.folder, "--text", "abacadaegb")
        rows = [len(row) for row in page.run("[...document.querySelectorAll('#overview tbody tr')].map((row) => [...row.querySelectorAll('button')].map((b) => b.title))")]
        self.assertEqual(rows, [6, 4, 6])
        for layer, heads, last in ((1, 6, "normed"), (2, 4, "gated"), (3, 6, "normed")):
            page.click(f"#overview button[data-block='{layer - 1}'][data-head='{heads - 1}']")
            for name in ("gated", "merged") if last == "gated" else ("merged",):
                page.click(f"[data-step='{name}']")
                for row, column in ((0, 0), (4, 1), (9, 3)):
                    page.run(f"select({{ query: {row}, column: {column} }})")
                    total, result = (library.number(page.attribute(".arithmetic", "data-total")), library.number(page.text(".arithmetic .result")))
                    self.near(total, result, 5.1e-5, (layer, name))
                    self.assertIn("same number", page.text(".arithmetic"))
            self.assertEqual(page.run(f"blocks[{layer - 1}].steps.some(({{ name }}) => name === '{last}')"), True)
        page.run("select({ block: 1 })")
        order = page.run("['context', 'gates', 'gated', 'merged', 'output'].map((name) => document.querySelector(`[data-step='${name}']`).getBoundingClientRect().left)")
        self.assertEqual(order, sorted(order))
        page.run("select({ step: 'gates' })")
        self.assertRegex(page.text(".arithmetic"), r"(?s)^gates\(.*made of the same inputs")
        self.assertIn("checks of these numbers hold", page.run("document.querySelector('.verdict').textContent"))

    def strongest(self, kinds, layers):
        """(layer, head) of the strongest induction head, else of the next kind."""
        for kind in RANKS:
            named = [(k[kind], layer, head) for layer in layers for head, k in enumerate(kinds[layer]) if max(k, key=k.get) == kind and k[kind] >= 0.4]
            if named:
                return list(max(named)[1:])
        return [layers[0], 0]

    def test_it_opens_on_the_strongest_head_that_has_a_name(self):
        page = self.licences()
        kinds = page.run("blocks.map((block) => block.kinds)")
        first = self.strongest(kinds, range(len(kinds)))
        self.assertGreater(kinds[first[0]][first[1]]["induction"] + kinds[first[0]][first[1]]["previous"], 0.4)
        self.assertEqual(page.run("[state.block, state.head]"), first)
        self.assertEqual(page.run(f"{CELLS}.filter((b) => b.classList.contains('on')).map((b) => [Number(b.dataset.block), Number(b.dataset.head)])"), [first])
        self.assertEqual(self.licences("--layer", 2).run("[state.block, state.head]"), self.strongest(kinds, [1]))
        self.assertEqual(self.licences("--layer", 2, "--head", 3).run("[state.block, state.head]"), [1, 2])
        self.assertEqual(self.open("multihead", "--d-out", 4).run("[state.block, state.head]"), [0, 0])

    def test_it_is_at_most_4000_pixels_tall_until_something_is_opened(self):
        pages = [self.licences(width=1400), self.layers(30, 9, 15, width=1400)]
        if SMOLLM2.exists():
            pages.append(self.open("--model", SMOLLM2, "--text", "The capital of France is Paris, and the capital of Italy is Rome.", width=1400))
            pages[-1].run("openAll()")
            pages[-1].click("header summary")
            self.assertIn("each token take what it needs", pages[-1].text(".intro"))
            pages[-1].click("header summary")
        for page in pages:
            self.assertLessEqual(page.run("document.documentElement.scrollHeight"), 4000)
            self.assertEqual(page.run("document.querySelectorAll('details[open]:not(.layers *)').length"), 0)
        page = pages[1]  # of many heads each layer folds, and that of the selected head is open
        opened = "[...document.querySelectorAll('.layers details')].map((one, b) => one.open ? [b, one.querySelectorAll('button').length] : []).flat()"
        self.assertEqual(page.run(opened), [page.run("state.block"), 9])
        page.run("select({ block: 3 })")
        page.run("document.querySelectorAll('.layers summary')[7].click()")
        page.run("new Promise((done) => setTimeout(done, 50))")
        self.assertEqual(page.run(opened), [3, 9, 7, 9])
        page.run("document.querySelector('.layers details:nth-child(8) button').click()")
        self.assertEqual(page.run("[state.block, state.head]"), [7, 0])
        self.assertEqual(page.run(opened), [7, 9])
        page = pages[0]
        before = page.run("document.documentElement.scrollHeight")
        order = page.run("[...document.querySelectorAll('.panel')].map((p) => p.id)")
        self.assertEqual(order[:3], ["overview", "steps", "names"])
        self.assertEqual(order[-1], "checks")
        page.click("#checks summary")
        page.run("new Promise((done) => setTimeout(() => setTimeout(done)))")
        self.assertGreater(page.run("document.documentElement.scrollHeight"), before)

    def test_nothing_is_wider_than_a_telephone(self):
        pages = [self.licences(width=390), self.layers(30, 32, 5, width=390), self.open("multihead", "--d-out", 4, width=390)]
        for page in pages:
            page.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
            page.run("new Promise((done) => setTimeout(() => setTimeout(done)))")
            wide = page.run("[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 391 && !e.closest('.scroll, .strip, .canvas-view, .unseen, pre')).map((e) => e.outerHTML.slice(0, 200))")
            self.assertEqual(wide, [])
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390)

    def test_one_name_and_number_for_one_thing(self):
        page = self.licences("--layers", "2-3,4")
        page.run("openAll()")
        kinds = page.run("blocks.map((block) => block.kinds)")
        self.assertEqual(page.run("[...document.querySelectorAll('#overview tbody th')].map((th) => th.innerText)"), ["2", "3", "4"])
        self.assertEqual(page.run("[...document.querySelectorAll('[name=block] option')].map((o) => o.innerText)"), ["2", "3", "4"])
        page.click("#heads .numbers summary"), page.click("#names .numbers summary")
        page.run("new Promise((done) => setTimeout(() => setTimeout(done)))")
        table = page.run("[...document.querySelectorAll('#heads .numbers tr')].map((r) => [...r.cells].map((c) => c.innerText))")
        for name in NAMES.values():
            self.assertIn(name, table[0])
        for block in range(3):
            for head in range(len(kinds[block])):
                name, scores = f"layer {block + 2}, head {head + 1}", kinds[block][head]
                page.click(f"#overview button[data-block='{block}'][data-head='{head}']")
                self.assertIn(f"layer={block + 2}", page.run("location.hash"))
                self.assertTrue(page.attribute("#overview button.on", "aria-label").startswith(f"{name}: "))
                self.assertEqual(page.run("document.querySelector('[name=block]').selectedOptions[0].innerText"), str(block + 2))
                self.assertIn(f"weights, {name}", page.text("#stage-title"))
                self.assertEqual(page.text("#stage-title small"), page.attribute("#overview button.on", "aria-label").split(": ", 1)[1])
                self.assertEqual(page.text("#heads .head.on .head-name"), name)
                self.assertTrue(page.text("#overview .told").startswith(name.capitalize()))
                self.assertEqual(page.run("fileName(state.step)"), f"weights-layer-{block + 2}-head-{head + 1}")
                row = next(row for row in table if row[0] == name)
                for kind, label in NAMES.items():
                    self.near(float(row[table[0].index(label)]), scores[kind], 1e-6)
                    self.near(float(page.attribute(f"#heads .head.on [data-score={kind}]", "title")), scores[kind], 1e-9)
        chosen = self.licences("--layers", "2-3,4", fragment="#layer=3&head=2")
        self.assertEqual(chosen.run("[state.block, state.head]"), [1, 1])

    def test_steps_have_the_traces_names(self):
        steps = [name for name in self.six("multihead", "--d-out", 4) if name != "tokens"]
        page = self.open("multihead", "--d-out", 4)
        self.assertEqual(sorted(page.run("[...document.querySelectorAll('.card-title')].map((t) => t.innerText)")), sorted(steps))
        for name in steps:
            page.click(f"[data-step={name}]")
            self.assertRegex(page.text("#stage-title"), f"^{name}(, head 1)?$")
            self.assertTrue(page.text("#steps .legend").startswith(name))

    def test_bytes_are_called_bytes_and_tokens_tokens(self):
        page = self.open("--model", MODEL, "--text", "café")
        page.click("header summary")
        self.assertIn("each byte take what it needs", page.text(".intro"))
        for place in (".intro", "#steps", "#space"):
            self.assertNotRegex(page.text(place), r"\bwords?\b")
        self.assertIn("5 · byte A9", page.text("[name=query]"))
        page.set("[name=query]", "4")
        self.assertIn("byte A9", page.text(".arithmetic h3"))
        self.assertIn("byte A9", page.attribute("#stage-matrix [tabindex='0']", "title"))
        self.assertIn("each word take", self.open("multihead", "--d-out", 4).text(".intro"))

    def test_the_title_is_the_text_as_given(self):
        text = "  You  may <b>it</b>, “all”."
        self.assertEqual(self.open("--model", MODEL, "--text", text).run("document.querySelector('h1').innerText"), text)
        (self.folder / "text.txt").write_text(text)
        self.assertEqual(self.open("--model", MODEL, "--text-file", "text.txt").run("document.querySelector('h1').innerText"), text)
        self.assertEqual(self.open("--model", MODEL, "--text", text, "--tokens", "3-9").run("document.querySelector('h1').innerText"), text[2:9])
        self.assertEqual(self.open("--model", MODEL, "--text", text, "--title", "Mine").text("h1"), "Mine")
        self.assertEqual(self.open("multihead", "--d-out", 4).text("h1"), " ".join(WORDS))

    def test_a_second_text_is_refused(self):
        ran = subprocess.run([library.os.path.abspath(library.ATTN), "report", "--model", MODEL, "--text", "Aaa", "--text", "Bbb", "--output", "two.html"],
                             cwd=self.folder, capture_output=True, check=False)
        self.assertEqual(ran.returncode, 2)
        self.assertRegex(ran.stderr.decode(), r"\[--text\] expected one value; found Bbb; it is given twice")
        self.assertFalse((self.folder / "two.html").exists())
