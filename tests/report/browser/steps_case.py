"""Steps, arithmetic, selection, legend: every number against attn run --save-steps."""

import math

import library
from report_case import WORDS, ReportTest

STEPS = ["inputs", "queries", "keys", "values", "scores", "scaled", "masked", "weights", "context", "merged", "output"]


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

    def test_the_terms_written_out_are_the_librarys(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS, fragment="#query=5&key=3&head=2&step=scores")
        found = page.run("[...document.querySelectorAll('.terms tbody tr')].slice(0, 2).map((r) => [...r.cells].slice(1).map((c) => c.title))")
        for dimension, (q, k, product) in enumerate(found):
            self.near(float(q), steps["queries"][1, 4, dimension])
            self.near(float(k), steps["keys"][1, 2, dimension])
            self.near(float(product), steps["queries"][1, 4, dimension] * steps["keys"][1, 2, dimension])

    def test_the_legend_tells_the_true_range(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS)
        for name in STEPS:
            page.click(f"[data-step={name}]")
            values = [x for x in steps[name].values[: math.prod(steps[name].shape[-2:])] if math.isfinite(x)]
            self.near(float(page.attribute("#steps .legend", "data-low")), min(values), 0)
            self.near(float(page.attribute("#steps .legend", "data-high")), max(values), 0)
        page.click("[data-step=masked]")
        self.assertIn("masked", page.text("#steps .legend"))

    def test_the_selection_is_one_and_lives_in_the_address(self):
        page = self.open(*self.ARGUMENTS)
        page.click("#steps .cell[data-row='3'][data-column='1']")
        self.assertIn("query=4&key=2", page.run("location.hash"))
        page.key("ArrowDown"), page.key("ArrowRight"), page.key("]")
        self.assertIn("query=5&key=3&head=2", page.run("location.hash"))
        self.assertEqual(page.run("[...document.querySelectorAll('#selection select')].map((s) => s.value)"), ["4", "2", "1"])
        page.run("location.hash = '#query=999&key=-7&head=zebra&step=%3Cscript%3E'")
        page.run("new Promise((done) => setTimeout(done, 50))")
        self.assertIn("query=6&key=1&head=1&step=weights", page.run("location.hash"))

    def test_play_step_and_back(self):
        page = self.open(*self.ARGUMENTS, fragment="#step=scores")
        page.click("#next")
        self.assertIn("step=scaled", page.run("location.hash"))
        page.click("#back"), page.click("#back")
        self.assertIn("step=values", page.run("location.hash"))
        # Stopped in the page itself, at once: however busy the machine, it has moved by one step.
        page.run("""new Promise((done) => {
          const play = document.querySelector('#play'), from = location.hash;
          play.click();
          const watch = setInterval(() => { if (location.hash !== from) { clearInterval(watch); play.click(); done(); } }, 20);
        })""")
        self.assertIn("step=scores", page.run("location.hash"))

    def test_the_log_scale(self):
        w = self.six(*self.ARGUMENTS)["weights"]
        page = self.open(*self.ARGUMENTS)
        page.click("#log")
        shown = {(i, j): w[0, i, j] for i in range(6) for j in range(6) if w[0, i, j] > 0}
        low, high = min(shown.values()), max(shown.values())
        self.near(float(page.attribute("#steps .legend", "data-low")), low, 0)
        self.assertIn("log scale", page.text("#steps .legend"))
        colours = page.run("[...document.querySelectorAll('#steps .stage-matrix .cell')].map((c) => [Number(c.dataset.row), Number(c.dataset.column), c.style.backgroundColor])")
        for i, j, colour in colours:
            share = math.log(w[0, i, j] / low) / math.log(high / low) if w[0, i, j] > 0 else 0
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
                         ["holds rows sum to 1", "holds no NaN", "holds mask leak", "holds difference from float64"])
        self.assertIn("attn report multihead --d-out 4", page.text(".facts"))
        self.assertRegex(page.text(".chain"), r"(?s)inputs\s*\(6, 3\).*queries\s*\(2, 6, 2\).*weights\s*\(2, 6, 6\).*output\s*\(6, 4\)")
