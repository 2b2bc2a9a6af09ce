"""Steps, arithmetic, selection, legend: every number against attn run --save-steps."""

import math

import library
from report_case import ROWS, WORDS, ReportTest

STEPS = ["inputs", "queries", "keys", "values", "scores", "scaled", "masked", "weights", "context", "merged", "output"]

TOO_FULL = "[...document.querySelectorAll('.card')].filter((card) => card.scrollHeight > card.clientHeight).map((card) => card.innerText)"


class Steps(ReportTest):
    ARGUMENTS = ("multihead", "--d-out", 4)

    def test_every_number_of_every_step_is_the_librarys(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS)
        for name in STEPS:
            page.click(f"[data-step={name}]")
            for head in range(2 if len(steps[name].shape) == 3 else 1):
                page.set("[name=head]", str(head))
                cells = self.cells(page)
                self.assertEqual(len(cells), math.prod(steps[name].shape[-2:]))
                for (row, column), (value, text) in cells.items():
                    wanted = steps[name][(head, row, column) if len(steps[name].shape) == 3 else (row, column)]
                    self.assertEqual(value if math.isinf(value) else library.float32(value), wanted, (name, head, row, column))
                    self.near(library.number(text), wanted, 5.1e-5)

    def test_the_arithmetic_of_every_step_gives_the_librarys_number(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS)
        page.set("[name=head]", "1")
        for name in STEPS:
            page.click(f"[data-step={name}]")
            shape = steps[name].shape
            for row, column in [(0, 0), (4, 1), (shape[-2] - 1, shape[-1] - 1)]:
                page.click(f"#steps .cell[data-row='{row}'][data-column='{column}']")
                wanted = steps[name][(1, row, column) if len(shape) == 3 else (row, column)]
                self.near(library.number(page.attribute(".arithmetic", "data-total").replace("Infinity", "inf")), wanted, 1e-6, name)
                self.near(library.number(page.text(".arithmetic .result")), wanted, 5.1e-5, name)
                self.assertIn("same number", page.text(".arithmetic"))

    def compare_arithmetic(self, page, steps, tolerance, message):
        """Three cells of every step, of the head that is selected: the second."""
        for name, step in steps.items():
            page.click(f"[data-step='{name}']")
            shape = step.shape
            for row, column in [(0, 0), (4, min(1, shape[-1] - 1)), (shape[-2] - 1, shape[-1] - 1)]:
                page.click(f"#steps .cell[data-row='{row}'][data-column='{column}']")
                wanted = step[(1, row, column) if len(shape) == 3 else (row, column)]
                self.near(library.number(page.attribute(".arithmetic", "data-total").replace("Infinity", "inf")), wanted, tolerance, (message, name))
                self.assertIn("same number", page.text(".arithmetic"))
                self.assertNotIn("not in this report", page.text(".arithmetic"))

    def test_the_steps_of_a_state(self):
        for module in ("linear", "delta", "gated-delta"):
            steps = self.six(module, "--d-out", 4)
            page = self.open(module, "--d-out", 4)
            page.set("[name=head]", "1")
            self.assertIn("2 × 2 numbers", page.text(".intro"))
            self.compare_arithmetic(page, steps, 1e-6, module)

    def test_the_steps_of_a_latent(self):
        for more in (("--rope", "--query-latent", 3, "--qkv-bias"), ()):
            arguments = ("latent", "--d-out", 8, *more)
            steps = self.six(*arguments)
            page = self.open(*arguments)
            self.assertEqual(page.run(TOO_FULL), [])
            self.assertIn(f"a cache keeps {6 if more else 4} numbers of a word", page.text(".intro"))
            page.set("[name=head]", "1")
            self.assertLess({"compressed", "latents"}, set(steps))
            self.compare_arithmetic(page, steps, 2e-6, more)
            self.assertIn(".out_bias = false" if not more else ".query = 3, .latent = 4, .plain = 4, .rotary = 2, .value = 4}, rng);", page.text("#snippet-cpp"))
            self.assertIn("kv_a_proj_with_mqa = torch.nn.Linear(3, ", page.text("#snippet-torch"))

    def test_the_numbers_of_a_pair_turn_by_their_position(self):
        arguments = ("multihead", "--d-out", 8, "--rope")
        steps = self.six(*arguments)
        page = self.open(*arguments)
        self.assertEqual(page.run(TOO_FULL), [])
        page.set("[name=head]", "1")
        for name in ("rotated queries", "rotated keys", "scores"):
            page.click(f"[data-step='{name}']")
            for row, column in [(0, 0), (4, 1), (5, 3)]:
                page.click(f"#steps .cell[data-row='{row}'][data-column='{column}']")
                self.near(library.number(page.attribute(".arithmetic", "data-total")), steps[name][1, row, column], 1e-6, name)
                self.assertIn("same number", page.text(".arithmetic"))
        page.click("[data-step='rotated keys']")
        page.click("#steps .cell[data-row='5'][data-column='3']")
        self.assertIn("Numbers 2 and 4 are a pair. At position 5 it turns by 5 · 0.0100 = 0.0500 rad, 2.9°.", page.text(".arithmetic"))
        self.assertIn("queries, keys = turned(queries), turned(keys)", page.text("#snippet-torch"))
        self.assertIn(".rope = attn::RotaryFrequencies{.inv_freq = {1.0f, ", page.text("#snippet-cpp"))

    def test_the_terms_written_out_are_the_librarys(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS, fragment="#query=5&key=3&head=2&step=scores")
        found = page.run("[...document.querySelectorAll('.terms tbody tr')].slice(0, 2).map((r) => [...r.cells].slice(1).map((c) => c.title))")
        for dimension, (q, k, product) in enumerate(found):
            self.near(float(q), steps["queries"][1, 4, dimension])
            self.near(float(k), steps["keys"][1, 2, dimension])
            self.near(float(product), steps["queries"][1, 4, dimension] * steps["keys"][1, 2, dimension])

    def test_the_legend_goes_from_0_or_the_least_to_the_largest_that_is_not_masked(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS)
        for name in STEPS:
            page.click(f"[data-step={name}]")
            pairs = steps[name].shape == [2, 6, 6]
            values = [x for at, x in enumerate(steps[name].values[: math.prod(steps[name].shape[-2:])]) if not pairs or at % 6 <= at // 6]
            self.near(float(page.attribute("#steps .legend", "data-low")), min(0, *values), 0)
            self.near(float(page.attribute("#steps .legend", "data-high")), max(0, *values), 0)
            self.assertEqual("masked" in page.text("#steps .legend"), pairs, name)

    def test_masked_cells_are_masked_in_every_step(self):
        page = self.open(*self.ARGUMENTS, "--dropout", 0.25, "--train")
        future = [[i, j] for i in range(6) for j in range(i + 1, 6)]
        for name in ("scores", "scaled", "masked", "weights", "dropped"):
            page.click(f"[data-step={name}]")
            found = page.run("[...document.querySelectorAll('#steps .stage-matrix .cell.masked')].map((c) => [Number(c.dataset.row), Number(c.dataset.column)])")
            self.assertEqual(found, future, name)
        for name in ("scores", "dropped"):  # in the small pictures too: where nothing is painted the hatch shows
            alpha = page.run(f"[...document.querySelector('[data-step={name}] canvas').getContext('2d').getImageData(0, 0, 6, 6).data].filter((_, i) => i % 4 === 3)")
            self.assertEqual(alpha, [255 if j <= i else 0 for i in range(6) for j in range(6)], name)

    def test_queries_keys_and_values_stand_beside_one_another(self):
        page = self.open(*self.ARGUMENTS)
        places = page.run("Object.fromEntries([...document.querySelectorAll('.flow .card')].map((c) => { const b = c.getBoundingClientRect(); return [c.dataset.step, [b.left, b.top, b.right, b.bottom]]; }))")
        three = [places[name] for name in ("queries", "keys", "values")]
        self.assertEqual(len({box[0] for box in three}), 1)
        for above, below in zip(three, three[1:]):
            self.assertLess(above[3], below[1])
        boxes = list(places.items())
        for i, (name, a) in enumerate(boxes):
            for other, b in boxes[i + 1:]:
                self.assertFalse(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3], (name, other))
        wires = page.run("[...document.querySelectorAll('.flow .wire')].map((w) => `${w.dataset.from} ${w.dataset.to}`).sort()")
        self.assertEqual(wires, sorted(["inputs queries", "inputs keys", "inputs values", "queries scores", "keys scores", "scores scaled", "scaled masked",
                                        "masked weights", "weights context", "values context", "context merged", "merged output"]))
        wires = self.open("cross").run("[...document.querySelectorAll('.flow .wire')].map((w) => `${w.dataset.from} ${w.dataset.to}`)")
        self.assertIn("source keys", wires)
        self.assertIn("source values", wires)
        self.assertNotIn("inputs keys", wires)
        self.assertIn("inputs context", self.open("simple").run("[...document.querySelectorAll('.flow .wire')].map((w) => `${w.dataset.from} ${w.dataset.to}`)"))

    def test_the_selection_is_one_and_lives_in_the_address(self):
        page = self.open(*self.ARGUMENTS)
        page.click("#steps .cell[data-row='3'][data-column='1']")
        self.assertIn("query=4&key=2", page.run("location.hash"))
        page.key("ArrowDown"), page.key("ArrowRight"), page.key("]")
        self.assertIn("query=5&key=3&head=2", page.run("location.hash"))
        self.assertEqual(page.run("[...document.querySelectorAll('#selection select')].map((s) => s.value)"), ["1", "4", "2"])
        page.run("location.hash = '#query=999&key=-7&head=zebra&step=%3Cscript%3E'")
        page.run("new Promise((done) => setTimeout(done, 50))")
        self.assertIn("query=6&key=1&head=1&step=weights", page.run("location.hash"))

    def test_play_step_and_back(self):
        page = self.open(*self.ARGUMENTS, fragment="#step=scores")
        page.click("#next")
        self.assertIn("step=scaled", page.run("location.hash"))
        page.click("#back"), page.click("#back")
        self.assertIn("step=values", page.run("location.hash"))
        # It begins at the inputs, and after a pause it goes on. Stopped in the page itself, at once: however busy the machine, it has moved by one step.
        for step in ("queries", "keys"):
            seen = page.run("""new Promise((done) => {
              const play = document.querySelector('#play');
              play.click();
              const from = location.hash, watch = setInterval(() => { if (location.hash !== from) { clearInterval(watch); play.click(); done(from); } }, 20);
            })""")
            self.assertIn("step=inputs" if step == "queries" else "step=queries", seen)
            self.assertIn(f"step={step}", page.run("location.hash"))

    def colours(self, page):
        found = page.run("[...document.querySelectorAll('#steps .stage-matrix .cell')].map((c) => [Number(c.dataset.row), Number(c.dataset.column), c.style.backgroundColor])")
        return {(i, j): colour for i, j, colour in found}

    def test_the_scale_by_row(self):
        w = self.six(*self.ARGUMENTS)["weights"]
        page = self.open(*self.ARGUMENTS)
        self.assertIn("automatic: linear", page.text("#scale"))
        page.set("#scale", "row")
        self.assertIn("scale=row", page.run("location.hash"))
        self.assertIn("scale by row", page.text("#steps .legend"))
        self.assertIn("row’s largest", page.text("#steps .legend"))
        for (i, j), colour in self.colours(page).items():
            if j <= i:
                red, green, blue = page.run(f"between(cividis, {w[0, i, j] / max(w[0, i, k] for k in range(6))!r})")
                self.assertEqual(colour, f"rgb({red}, {green}, {blue})", (i, j))
        # One choice for all panels.
        self.assertEqual(page.run("document.querySelector('#heads-scale').value"), "row")

    def test_the_log_scale(self):
        w = self.six(*self.ARGUMENTS)["weights"]
        page = self.open(*self.ARGUMENTS)
        page.set("#scale", "log")
        shown = {(i, j): w[0, i, j] for i in range(6) for j in range(6) if w[0, i, j] > 0}
        low, high = min(shown.values()), max(shown.values())
        self.near(float(page.attribute("#steps .legend", "data-low")), low, 0)
        self.assertIn("scale logarithmic", page.text("#steps .legend"))
        for (i, j), colour in self.colours(page).items():
            if j > i:
                continue
            share = math.log(w[0, i, j] / low) / math.log(high / low)
            red, green, blue = page.run(f"between(cividis, {share!r})")
            self.assertEqual(colour, f"rgb({red}, {green}, {blue})", (i, j))

    def test_the_heads_taken_together(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS)
        w = steps["weights"]
        ways = {"average": lambda i, j: (w[0, i, j] + w[1, i, j]) / 2, "maximum": lambda i, j: max(w[0, i, j], w[1, i, j]),
                "difference": lambda i, j: w[0, i, j] - w[1, i, j]}
        for way, wanted in ways.items():
            page.set("#view", way)
            if way == "difference":
                page.set("#other", "1")
            for (i, j), (value, _) in self.cells(page).items():
                self.near(value, wanted(i, j), 1e-7, way)

    def test_the_head_of_the_page(self):
        page = self.open(*self.ARGUMENTS)
        self.assertEqual(page.text("h1"), " ".join(WORDS))
        self.assertEqual(page.run("[...document.querySelectorAll('.health li')].map((e) => e.className + ' ' + e.dataset.check)"),
                         ["holds each row of weights sums to 1", "holds every value is a number", "holds masked keys have no weight",
                          "holds float64 gives the same scores", "holds float64 gives the same weights", "holds float64 gives the same contexts"])
        self.assertIn("6 of 6 checks", page.text("header .verdict"))
        self.assertRegex(page.text(".health"), r"of 72 weights the worst is \S+ off, where rounding to float32 allows \S+")
        self.assertIn("attn report multihead --d-out 4", page.text(".facts"))
        self.assertRegex(page.text(".flow"), r"(?s)inputs\s*\(6, 3\).*queries\s*\(2, 6, 2\).*weights\s*\(2, 6, 6\).*output\s*\(6, 4\)")

    def test_attention_is_explained_before_the_checks(self):
        page = self.open(*self.ARGUMENTS)
        for word in ("query", "key", "value", "score", "Softmax", "context", "mask", "2 heads"):
            self.assertIn(word, page.text(".intro"))
        order = page.run("['.intro', '#steps', '#checks'].map((s) => document.querySelector(s).getBoundingClientRect().top)")
        self.assertEqual(order, sorted(order))
        self.assertNotIn("mask", self.open("self-v2", "--d-out", 2).text(".intro"))
        self.assertIn("mean", self.open("average").text(".intro"))

    def test_random_weights_are_called_random(self):
        page = self.open(*self.ARGUMENTS, "--seed", 7)
        self.assertRegex(page.text("#random"), "random.*seed 7.*chance")
        library.attn(self.folder, "run", *self.ARGUMENTS[:1], "--input", "x.csv", *self.ARGUMENTS[1:], "--save-weights", "w.safetensors", "--output", "z.npy")
        page = self.open(*self.ARGUMENTS, "--weights", "w.safetensors")
        self.assertFalse(page.run("Boolean(document.querySelector('#random'))"))
        self.assertFalse(self.open("simple").run("Boolean(document.querySelector('#random'))"))

    def test_what_is_left_out_of_the_terms_is_named(self):
        library.save_npy(self.folder / "x.npy", [math.sin(1.3 * i * i) for i in range(20 * 4)], (20, 4))
        page = self.open("causal", "--input", "x.npy", "--d-out", 4, fragment="#query=6&key=2")
        self.assertEqual(page.text(".arithmetic .more"), "14 more, masked")
        page.set("[name=query]", "15")
        self.assertEqual(page.text(".arithmetic .more"), "5 more, smaller; 4 more, masked")
        page.click("[data-step=context]")
        self.assertEqual(page.text(".arithmetic .more"), "5 more, smaller; 4 more, masked")

    def test_dropout_of_a_text_in_a_batch(self):
        library.save_npy(self.folder / "batch.npy", [float(x) for row in ROWS * 2 for x in row.split(",")], (2, 6, 3))
        flags = ["multihead", "--input", "batch.npy", "--d-out", 4, "--dropout", 0.5, "--train", "--rng", "native"]
        library.attn(self.folder, "run", *flags, "--save-steps", "batch.safetensors")
        dropped = library.steps(self.folder / "batch.safetensors")["dropped"]
        page = self.open(*flags, "--item", 2, fragment="#head=2&step=dropped")
        for (i, j), (value, _) in self.cells(page).items():
            self.near(value, dropped[1, 1, i, j], 1e-7)
        self.assertIn("2 of 2", page.text(".facts"))
