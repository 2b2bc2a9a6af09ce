"""Where reports come from, and what they must bear: steps files, bare weights, hostile tokens, NaN, long inputs."""

import math
import pathlib
import subprocess
import time

import library
from report_case import ReportTest, WORDS

HOSTILE = ["</script><script>document.title='broken'</script>", "<img src=x onerror=\"document.title='broken'\">", "\"quoted' & <b>", "שלום \u202eevil",
           "👩‍👩‍👧‍👦", "long" * 2500, "", "{{data}}", "__proto__", "]]>-->"]


def softmax_rows(queries, keys, seed=1.0, causal=True):
    rows = []
    for i in range(queries):
        e = [math.exp(2 * math.sin(seed * (3 * i + 7 * j))) if j <= i or not causal else 0 for j in range(keys)]
        rows.extend(x / sum(e) for x in e)
    return rows


class Sources(ReportTest):
    def refused(self, *arguments):
        ran = subprocess.run([library.os.path.abspath(library.ATTN), "report", *map(str, arguments)], cwd=self.folder, capture_output=True, check=False)
        self.assertIn(ran.returncode, (2, 3))
        self.assertFalse((self.folder / "attn-report.html").exists())
        return ran.stderr.decode()

    def test_a_steps_file(self):
        steps = self.six("causal", "--d-out", 2, "--dropout", 0.5, "--train")
        (self.folder / "words.txt").write_text("\n".join(WORDS) + "\n")
        page = self.open("steps.safetensors", "--tokens", "words.txt", fragment="#step=dropped&query=5&key=2")
        self.assertEqual(page.text("h1"), " ".join(WORDS))
        self.assertIn("attn run causal", page.text(".facts"))
        for (i, j), (value, _) in self.cells(page).items():
            self.assertEqual(library.float32(value), steps["dropped"][i, j])
        self.assertIn("same number", page.text(".arithmetic"))
        for step in ("masked", "scaled", "context"):
            page.click(f"[data-step={step}]")
            self.assertIn("same number", page.text(".arithmetic"))
        page.click("[data-step=queries]")
        self.assertIn("not in this report", page.text(".arithmetic"))

    def test_scores_that_are_changed_on_their_way(self):
        size, pairs = 4, [(i, j) for i in range(4) for j in range(4)]
        scaled = [2 * math.sin(3 * i + 7 * j) for i, j in pairs]
        capped = [math.tanh(s) for s in scaled]
        biased = [s + 0.25 * i for s, (i, _) in zip(capped, pairs)]
        relative = [s + 0.125 * (j - i) ** 2 for s, (i, j) in zip(biased, pairs)]
        alibi = [s - 0.5 * abs(i - j) for s, (i, j) in zip(relative, pairs)]
        masked = [s if j <= i else -math.inf for s, (i, j) in zip(alibi, pairs)]
        weights = []
        for i in range(size):
            e = [math.exp(s) for s in masked[size * i:size * (i + 1)]]
            weights.extend(x / sum(e) for x in e)
        names = {"scaled": scaled, "capped": capped, "biased": biased, "relative": relative, "alibi": alibi, "masked": masked, "weights": weights}
        library.save_safetensors(self.folder / "steps.safetensors", {name: (values, (1, size, size)) for name, values in names.items()})
        page = self.open("steps.safetensors", fragment="#query=3&key=2")
        self.assertEqual(page.run("document.querySelectorAll('.health .fails').length"), 0)
        for name, values in names.items():
            page.click(f"[data-step={name}]")
            for (i, j), (value, _) in self.cells(page).items():
                self.assertEqual(library.float32(value) if math.isfinite(value) else value, library.float32(values[size * i + j]))
        page.click("[data-step=capped]")
        self.assertIn("softcap", page.text(".arithmetic"))
        for name, change in (("biased", 0.5), ("relative", 0.125), ("alibi", -0.5)):
            page.click(f"[data-step={name}]")
            self.assertIn(f"{abs(change):.4f}", page.text(".arithmetic .written"), name)
        for name in ("masked", "weights"):
            page.click(f"[data-step={name}]")
            self.assertIn("same number", page.text(".arithmetic"), name)

    def test_bare_weights_with_heads_and_layers(self):
        values = [x for layer in range(2) for head in range(3) for x in softmax_rows(5, 5, 1 + layer + 0.1 * head)]
        library.save_npy(self.folder / "w.npy", values, (2, 3, 5, 5))
        page = self.open("w.npy", fragment="#layer=2&head=3&query=4")
        for (i, j), (value, _) in self.cells(page).items():
            self.assertEqual(library.float32(value), library.float32(values[(5 * 25) + 5 * i + j]))
        self.assertEqual(page.run("document.querySelectorAll('#heads .head').length"), 6)
        page.set("[name=block]", "0")
        for (i, j), (value, _) in self.cells(page).items():
            self.assertEqual(library.float32(value), library.float32(values[(2 * 25) + 5 * i + j]))

    def test_every_module_opens(self):
        for module, flags in (("simple", []), ("average", []), ("self-v1", ["--d-out", 2]), ("self-v2", ["--d-out", 2]), ("head", ["--d-out", 2]), ("cross", ["--d-out", 2])):
            page = self.open(module, *flags)
            for step in page.run("[...document.querySelectorAll('.card')].map((c) => c.dataset.step)"):
                page.click(f"[data-step={step}]")
                self.assertIn("same number", page.text(".arithmetic"), f"{module} {step}")

    def test_shape_mistakes_say_what_to_pass(self):
        library.save_npy(self.folder / "flat.npy", [1.0, 2.0], (2,))
        self.assertIn("(heads, queries, keys) or (layers, heads, queries, keys)", self.refused("flat.npy"))
        library.save_npy(self.folder / "w.npy", softmax_rows(3, 3), (3, 3))
        (self.folder / "two.txt").write_text("a\nb\n")
        self.assertIn("3 lines, one for each query; found 2", self.refused("w.npy", "--tokens", "two.txt"))
        self.assertIn("found both", self.refused("simple", "--model", "m.safetensors"))
        self.assertIn("--model FILE with --tokenizer", self.refused("simple", "--text", "words", "--tokenizer", "."))
        for shape in ((0, 3, 3), (0, 2, 3, 3), (2, 0, 3, 3)):
            library.save_npy(self.folder / "none.npy", [], shape)
            self.assertIn("(heads, queries, keys)", self.refused("none.npy"))
        self.assertIn("a number from 1 to 1; found 2", self.refused("simple", "--item", 2))
        self.assertIn(".html", self.refused("simple", "--output", "x.txt"))

    def test_hostile_tokens_are_text(self):
        count = len(HOSTILE)
        library.save_npy(self.folder / "w.npy", softmax_rows(count, count), (1, count, count))
        (self.folder / "hostile.txt").write_bytes(("\n".join(HOSTILE) + "\n").encode())
        page = self.open("w.npy", "--tokens", "hostile.txt")
        self.assertNotEqual(page.run("document.title"), "broken")
        # A mark that turns the direction of writing is shown as its number.
        self.assertEqual(page.run("report.tokens"), [token.replace("\u202e", "\\u202e") for token in HOSTILE])
        self.assertEqual(page.run("document.images.length + document.scripts.length"), 2)
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 1200)
        self.assertIn("</script>", page.text("[name=query]"))
        self.assertNotIn("\u202e", page.text("h1"))
        self.assertLess(len(page.text("h1")), 300)
        self.assertEqual(page.run("[...document.querySelectorAll('.matrix tbody th bdi')].filter((e) => e.innerText === '').length"), 0)
        (self.folder / "bytes.txt").write_bytes(b"\xff\xfe\n" + b"\n".join([b"a\x00b"] * (count - 1)) + b"\n")
        page = self.open("w.npy", "--tokens", "bytes.txt")
        self.assertEqual(page.run("report.tokens[0]"), "\\xff\\xfe")

    def test_nan_and_infinity_are_drawn_as_such(self):
        library.save_npy(self.folder / "w.npy", [1.0, 0.0, math.nan, 0.5, -math.inf, math.inf, 0.2, 0.3, 0.5], (1, 3, 3))
        page = self.open("w.npy")
        cells = self.cells(page)
        self.assertEqual([cells[0, 2][1], cells[1, 1][1], cells[1, 2][1]], ["NaN", "−∞", "∞"])
        self.assertEqual((float(page.attribute("#steps .legend", "data-low")), float(page.attribute("#steps .legend", "data-high"))), (0, 1))
        self.assertIn("NaN", page.text("#steps .legend"))
        self.assertEqual(page.run("[...document.querySelectorAll('.health .sign')].map((s) => s.innerText)")[:2], ["✗", "✗"])

    def test_nothing_at_all(self):
        library.save_npy(self.folder / "w.npy", [], (1, 0, 0))
        self.assertIn("no tokens", self.open("w.npy").text("#steps"))
        library.save_npy(self.folder / "one.npy", [1.0], (1, 1))
        self.assertEqual(self.cells(self.open("one.npy"))[0, 0], (1.0, "1.0000"))

    def test_scripts_off_shows_the_weights(self):
        page = self.open("causal", "--d-out", 2, scripts=False)
        page.send("Emulation.setScriptExecutionDisabled", {"value": False})
        self.assertGreaterEqual(page.run("document.querySelectorAll('noscript svg rect').length"), 36)
        self.assertIn("journey", page.run("document.querySelector('noscript').textContent"))
        self.assertTrue(page.run("document.getElementById('panels').hidden"))

    def test_long_figures_fit_the_screen_with_as_many_labels_as_there_is_room_for(self):
        for tokens, all_labels in ((12, True), (25, True), (40, True), (120, False), (300, False), (1024, False)):
            library.save_npy(self.folder / "w.npy", softmax_rows(tokens, tokens), (1, tokens, tokens))
            (self.folder / "words.txt").write_text("\n".join(f"token-{i}" for i in range(tokens)) + "\n")
            for width, height in ((1400, 900), (1400, 600), (390, 844)):
                page = self.open("w.npy", "--tokens", "words.txt", width=width, height=height)
                place = (tokens, width)
                self.assertLessEqual(page.run("document.documentElement.scrollWidth"), width, place)
                if tokens == 12 and width == 1400:
                    self.assertEqual(len(self.cells(page)), 144)
                    continue
                view = page.run("(() => { const b = document.querySelector('#steps .canvas-view').getBoundingClientRect(); return [b.width, b.height]; })()")
                self.assertLessEqual(view[0], width, place)
                self.assertLessEqual(view[1], height, place)
                labels = page.run("[...document.querySelectorAll('#steps .axis-left > span, #steps .axis-top > span')].map((s) => { const b = s.getBoundingClientRect(), a = s.parentNode.getBoundingClientRect(); return [s.innerText, b.left - a.left, a.right - b.right, b.top - a.top, a.bottom - b.bottom, s.parentNode.className]; })")
                for text, left, right, top, bottom, side in labels:
                    along = (left, right) if side == "axis-left" else (top, bottom)
                    self.assertGreaterEqual(min(along), -1, (place, text, side))  # nothing is cut off
                if all_labels and width == 1400:
                    self.assertEqual(len(labels), 2 * tokens, place)
                self.assertGreaterEqual(len(labels), 20, place)

    def test_a_causal_head_can_be_read_without_a_click(self):
        for tokens in (12, 40, 300, 1024):
            library.save_npy(self.folder / "w.npy", softmax_rows(tokens, tokens), (1, tokens, tokens))
            page = self.open("w.npy")
            self.assertEqual(page.attribute("#steps .legend", "data-scale"), "row")
            self.assertIn("scale by row", page.text("#steps .legend"))
            self.assertIn("automatic: by row", page.text("#scale"))
            # Every row has the brightest colour somewhere, and only the future is hatched.
            rows = page.run("(() => { const m = currentStep().matrix(0), s = scaleOf(m, 'row'); return Array.from({ length: m.rows }, (_, i) => Math.max(...Array.from(m.values.subarray(i * m.columns, (i + 1) * m.columns), (x) => s.share(x, i)))); })()")
            self.assertTrue(all(share == 1 for share in rows))
            wrong = page.run("(() => { const m = currentStep().matrix(0); return m.masked.reduce((n, yes, at) => n + (Boolean(yes) !== at % m.columns > Math.floor(at / m.columns)), 0); })()")
            self.assertEqual(wrong, 0, tokens)

    def test_the_head_that_is_shown_first(self):
        values = [x for layer in range(2) for head in range(3) for x in softmax_rows(5, 5, 1 + layer + 0.1 * head)]
        library.save_npy(self.folder / "w.npy", values, (2, 3, 5, 5))
        self.assertIn("head=3", self.open("w.npy", "--layer", 2, "--head", 3).run("location.hash"))
        self.assertIn("--head", self.refused("w.npy", "--head", 4))
        self.assertIn("--layer", self.refused("w.npy", "--layer", 3))

    def test_narrow_and_dark(self):
        page = self.open("multihead", "--d-out", 4, width=400, dark=True)
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 400)
        self.assertEqual(page.run("getComputedStyle(document.body).backgroundColor"), "rgb(20, 23, 27)")

    def test_a_narrow_page_begins_at_the_beginning_in_letters_that_can_be_read(self):
        page = self.open("multihead", "--d-out", 4, width=390)
        self.assertEqual(page.run("document.querySelector('.strip').scrollLeft"), 0)
        page.click("#back")
        self.assertGreater(page.run("document.querySelector('.strip').scrollLeft"), 0)
        chosen = self.open("multihead", "--d-out", 4, width=390, fragment="#step=context&query=2&key=1&head=1")
        self.assertGreater(chosen.run("document.querySelector('.strip').scrollLeft"), 0)
        scales = page.run("[...document.querySelectorAll('#space svg')].map((s) => s.getBoundingClientRect().width / s.viewBox.baseVal.width)")
        self.assertTrue(scales and all(scale > 0.9 for scale in scales), scales)

    def test_captions_of_long_steps_stay_in_their_boxes(self):
        library.save_npy(self.folder / "w.npy", softmax_rows(200, 200), (1, 200, 200))
        page = self.open("w.npy")
        self.assertIn("(1, 200, 200)", page.text(".card code"))
        inside = "(() => { const code = document.querySelector('.card code').getBoundingClientRect(), card = document.querySelector('.card').getBoundingClientRect(); return [code.height < 20, code.left >= card.left, code.right <= card.right, code.bottom <= card.bottom]; })()"
        self.assertEqual(page.run(inside), [True] * 4)
        self.assertNotIn("arithmetic", page.text("#steps .lead"))
        library.save_npy(self.folder / "w.npy", 2 * 9 * softmax_rows(150, 150), (2, 9, 150, 150))
        self.assertEqual(self.open("w.npy").run(inside), [True] * 4)

    def test_print_is_dark_on_white(self):
        page = self.open("multihead", "--d-out", 4, dark=True)
        page.send("Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        colours = page.run("[document.body, document.querySelector('.stage-side'), document.querySelector('.health li')].map((e) => getComputedStyle(e).backgroundColor)")
        self.assertEqual(colours, ["rgb(255, 255, 255)"] * 3)
        self.assertEqual(page.run("getComputedStyle(document.querySelector('.terms td')).color"), "rgb(0, 0, 0)")
        self.assertEqual(page.run("getComputedStyle(document.querySelector('#selection')).display"), "none")

    def test_a_trained_model(self):
        (self.folder / "book.txt").write_text("Attention is all you need. " * 12)
        library.attn(self.folder, "train", "--text", "book.txt", "--out", "m.safetensors", "--layers", 2, "--heads", 2, "--width", 8, "--context", 8, "--steps", 2)
        page = self.open("--model", "m.safetensors", "--text", "a\ncafé", fragment="#layer=2&head=2&query=7&key=6")
        self.assertEqual(page.run("report.tokens"), ["a", "\n", "c", "a", "f", "\\xC3", "\\xA9"])
        self.assertIn("weight(byte A9, byte C3)", page.text(".arithmetic"))
        self.assertIn("same number", page.text(".arithmetic"))
        self.assertEqual(page.run("[...document.querySelectorAll('#steps tbody th bdi')].map((e) => e.innerText)")[1], "␊")
        told = library.json.loads(library.attn(self.folder, "show", "--model", "m.safetensors", "--text", "a\ncafé", "--layer", 2, "--head", 2, "--json"))
        for (i, j), (value, _) in self.cells(page).items():
            self.near(value, told["values"][i][j], 1e-7)

    def test_the_model_that_comes_with_the_project_has_a_head_that_looks_back(self):
        model = pathlib.Path(__file__).resolve().parents[3] / "examples/data/licences.safetensors"
        self.assertLess(model.stat().st_size, 2e6)
        page = self.open("--model", model, "--text", "You may copy the Program.", "--layer", 1, "--head", 2)
        told = library.json.loads(library.attn(self.folder, "show", "--model", model, "--text", "You may copy the Program.", "--layer", 1, "--head", 2, "--json"))
        previous = [told["values"][i][i - 1] for i in range(1, 25)]
        self.assertGreater(sum(previous) / 24, 0.95)
        narrow = self.open("--model", model, "--text", "You may copy the Program.", width=390)  # short labels
        self.assertEqual(narrow.run("[...document.querySelectorAll('#steps .axis-top, #steps .axis-left')].map((axis) => axis.children.length)"), [25, 25])
        self.assertGreater(narrow.run("document.querySelector('#steps .frame').getBoundingClientRect().width"), 280)
        for shown in (page, narrow):
            self.assertLessEqual(*shown.run("(() => { const v = document.querySelector('#steps .canvas-view'); return [v.scrollWidth, v.clientWidth]; })()"))
        shown = float(page.attribute("#heads .head.on [data-score=previous]", "title"))
        self.near(shown, sum(previous) / 24, 0.02)  # of the text that is read twice
        others = page.run("[...document.querySelectorAll('#heads [data-score=previous]')].map((e) => Number(e.title))")
        self.assertEqual(shown, max(others))
        self.assertFalse(page.run("Boolean(document.querySelector('#random'))"))

    def test_long_inputs_are_pooled_and_say_so(self):
        tokens, keep = 300, 16
        values = softmax_rows(tokens, tokens)
        library.save_npy(self.folder / "long.npy", values, (1, tokens, tokens))
        page = self.open("long.npy", fragment="#query=250&key=3")
        self.assertIn("Too much to hold exactly", page.text(".note"))
        row = values[249 * tokens : 250 * tokens]
        best = sorted(range(tokens), key=lambda j: (-library.float32(row[j]), j))[:keep]
        shown = page.run("topKeys(currentBlock().step('weights'), 0, 249)")
        self.assertEqual([top["key"] for top in shown], best)
        self.assertEqual([top["weight"] for top in shown], [library.float32(row[j]) for j in best])
        most = lambda i: max(values[i * tokens : (i + 1) * tokens])
        for i, j in [(0, 0), (7, 3), (250, 200), (299, 299), (3, 200)]:
            shown = page.run(f"currentStep().matrix(0).values[{i * tokens + j}]")
            self.assertLessEqual(abs(math.sqrt(shown / most(i)) - math.sqrt(values[i * tokens + j] / most(i))), 0.51 / 252)

    def test_nan_and_infinity_in_long_inputs(self):
        values = softmax_rows(600, 600)
        values[3 * 600 + 100], values[200 * 600 + 301] = math.nan, math.inf
        for i in (400, 401):
            for j in (500, 501):
                values[i * 600 + j] = -math.inf
        library.save_npy(self.folder / "wrong.npy", values, (1, 600, 600))
        page = self.open("wrong.npy")
        self.assertEqual(page.run("[[3, 100], [200, 301], [400, 500], [0, 1]].map(([i, j]) => String(currentStep().matrix(0).values[(i >> 1) * 300 + (j >> 1)]))")[:3], ["NaN", "Infinity", "-Infinity"])
        self.assertIn("NaN (1)", page.text("#steps .legend"))
        self.assertIn("✗", page.text(".health"))

    def test_a_layer_of_1024_tokens_is_small_and_quick(self):
        size, heads, width = 1024, 12, 96
        library.save_npy(self.folder / "x.npy", [math.sin(0.37 * i * (1 + i % 11)) for i in range(size * width)], (size, width))
        page = self.open("multihead", "--input", "x.npy", "--d-out", width, "--heads", heads)
        written = next(self.folder.glob("*1024*.html")).stat().st_size
        self.assertLess(written, 12e6)
        page.run("select({ query: 500 })")
        page.box("#steps .frame")
        took = []
        for part in (0.2, 0.5, 0.8):
            took.append(page.run(f"""new Promise((done) => {{ const b = document.querySelector('#steps .frame canvas').getBoundingClientRect(), from = performance.now();
                document.querySelector('#steps .frame').dispatchEvent(new MouseEvent('click', {{ clientX: b.left + b.width * {part}, clientY: b.top + b.height * {part} }}));
                requestAnimationFrame(() => setTimeout(() => done(performance.now() - from))); }})"""))
        self.near(page.run("state.key"), 0.8 * size, 4 / 819)  # a pixel is two tokens
        print(f"click to drawn: {min(took):.0f} ms of {[round(t) for t in took]}", flush=True)
