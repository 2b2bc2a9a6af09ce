"""A module in a page that computes: words, numbers, weights, masks and options, against the command's own numbers."""

import library
from live_case import LivePage
from report_case import ROWS


class LiveModule(LivePage):
    def module(self, *arguments, **options):
        page = self.open(*arguments, "--live", **options)
        self.wait(page, "live.ready")
        return page

    def steps_of(self, page):
        """name → numbers, of what the page shows."""
        return page.run("Object.fromEntries(blocks[0].steps.map(({ name, values }) => [name, Array.from(values, String)]))")

    def same(self, page, steps, tolerance=1e-6):
        """The page's steps are the command's, but for rounding."""
        for name, values in self.steps_of(page).items():
            heads = [step.values for key, step in sorted(steps.items()) if key.startswith("heads.") and key.endswith(f".{name}")]
            wanted = steps[name].values if name in steps else heads[-1] if name == "inputs" else sum(map(list, heads), [])
            self.assertEqual(len(values), len(wanted), name)
            for a, b in zip(values, wanted):
                self.near(library.number(a.replace("Infinity", "inf")), b, tolerance, name)

    def command(self, *arguments):
        library.attn(self.folder, "run", *arguments, "--save-steps", "wanted.safetensors", "--output", "wanted.npy")
        return library.steps(self.folder / "wanted.safetensors")

    def state(self, page):
        """The weights that the page holds, as the command reads them."""
        found = page.run("Object.fromEntries(Object.keys(report.parameters).map((name) => [name, [Array.from(parameter(name).values), parameter(name).shape]]))")
        library.save_safetensors(self.folder / "state.safetensors", found)
        return "state.safetensors"

    def end(self, page):
        page.run("{ const area = document.getElementById('live-text'); area.setSelectionRange(999, 999); }")

    def test_what_is_typed_is_computed(self):
        for module, flags in (("multihead", ["--d-out", 4, "--heads", 2]), ("self-v2", ["--d-out", 2]), ("simple", []), ("average", []), ("self-v1", ["--d-out", 2]), ("latent", ["--d-out", 4, "--heads", 2]), ("linear", ["--d-out", 4, "--heads", 2]), ("heads", ["--d-out", 2, "--heads", 2, "--rope"])):
            with self.subTest(module):
                page = self.module(module, "--text", "The cat sat", *flags)
                self.end(page)
                self.type(page, " down, again")
                self.settled(page)
                self.assertEqual(page.run("report.tokens"), ["The", "cat", "sat", "down", ",", "again"])
                self.assertEqual(page.text("h1"), "The cat sat down, again")
                self.same(page, self.command(module, "--text", "The cat sat down, again", *flags))
                for panel in ("space", "checks"):
                    self.assertTrue(page.run(f"document.getElementById('{panel}') !== null"), panel)
                self.assertTrue(page.run("report.health.every(({ holds }) => holds)"))
                self.assertIn("down", page.text("#space"))
                self.assertTrue(page.run("document.getElementById('snippets') !== null"))

    def test_both_texts_of_cross_attention(self):
        flags = ["--d-out", 4, "--text", "one two three", "--context-text", "a b"]
        page = self.module("cross", *flags)
        page.run("document.getElementById('live-source').focus(); document.getElementById('live-source').setSelectionRange(99, 99)")
        for character in " c d":
            page.type(character)
        self.settled(page)
        self.same(page, self.command("cross", *flags[:-1], "a b c d"))

    def test_a_number_moves_what_comes_later_alone(self):
        page = self.module("multihead", "--d-out", 4, "--heads", 2)
        page.run("select({ head: 1, step: 'scores', query: 3, key: 1 })")
        page.run("ask()")
        before = self.steps_of(page)
        page.run("document.getElementById('edit-value').focus()")
        page.type("2.5")
        page.click("#edit-set")
        self.settled(page)
        after = self.steps_of(page)
        self.assertEqual(page.run("currentStep().at(1, 3, 1)"), 2.5)
        for step in ("inputs", "queries", "keys", "values"):
            self.assertEqual(before[step], after[step], step)
        for step in ("scores", "scaled", "masked", "weights"):
            moved = {i // 6 for i, (a, b) in enumerate(zip(before[step], after[step])) if a != b}
            self.assertEqual(moved, {9}, step)  # the fourth row of the second head
        self.assertEqual(page.run("document.querySelectorAll('#stage-matrix [data-changed]').length"), 1)
        page.run("select({ step: 'weights' })")
        self.assertEqual(page.run("[...document.querySelectorAll('#stage-matrix [data-changed]')].every((cell) => cell.dataset.row === '3')"), True)
        self.near(sum(float(x) for x in after["weights"][54:60]), 1)
        page.click("#edit-undo")
        self.settled(page)
        self.assertEqual(self.steps_of(page), before)
        self.assertEqual(page.run("document.querySelectorAll('#stage-matrix [data-changed]').length"), 0)

    def test_an_input_and_a_weight(self):
        flags = ["--d-out", 4, "--heads", 2]
        page = self.module("multihead", *flags)
        page.run("select({ step: 'inputs', query: 1, column: 2 })")
        page.set("#edit-value", "-0.25")
        page.click("#edit-set")
        self.settled(page)
        rows = [row.split(",") for row in ROWS]
        rows[1][2] = "-0.25"
        (self.folder / "changed.csv").write_text("\n".join(map(",".join, rows)) + "\n")
        self.same(page, self.command("multihead", "--input", "changed.csv", *flags))
        page.run("document.getElementById('live-weights').open = true")
        page.set("#weight-name", "W_value.weight")
        page.set("#weight-value", "0.75")
        page.click("#weight-set")
        self.settled(page)
        self.assertEqual(page.run("parameter('W_value.weight').values[0]"), 0.75)
        self.assertIn(": 0.75, changed", page.attribute("#weights-view .cell.on", "title"))
        self.same(page, self.command("multihead", "--input", "changed.csv", *flags, "--weights", self.state(page)))
        page.click("#edit-none")
        self.settled(page)
        self.same(page, self.six("multihead", *flags))

    def test_a_click_masks_and_unmasks(self):
        page = self.module("multihead", "--d-out", 4, "--heads", 2)
        page.run("select({ head: 0, step: 'weights', query: 4, key: 0 }); ask()")
        before = self.steps_of(page)
        page.click("#edit-click")
        page.click("#stage-matrix [data-row='4'][data-column='2']")
        self.wait(page, "live.now.edits.length === 1")
        self.settled(page)
        self.assertEqual(page.run("currentStep().at(0, 4, 2)"), 0)
        self.near(page.run("[0, 1, 2, 3, 4].reduce((sum, key) => sum + currentStep().at(0, 4, key), 0)"), 1)
        page.click("#stage-matrix [data-row='4'][data-column='2']")
        self.wait(page, "live.now.edits.length === 0")
        self.assertEqual(self.steps_of(page), before)
        page.click("#stage-matrix [data-row='1'][data-column='3']")  # a later word, which the causal mask hides
        self.wait(page, "live.now.edits.length === 1")
        self.assertGreater(page.run("currentStep().at(0, 1, 3)"), 0)
        self.assertEqual(page.run("currentBlock().step('masked').at(0, 1, 3) === currentBlock().step('scaled').at(0, 1, 3)"), True)

    def test_options(self):
        flags = ["--d-out", 4, "--heads", 2]
        page = self.module("multihead", *flags)
        page.set("#live-scale", "0.1")
        self.settled(page)
        self.same(page, self.six("multihead", *flags, "--scale", "0.1"))
        page.set("#live-scale", "")
        page.set("#live-window", "2")
        self.settled(page)
        weights = self.steps_of(page)["weights"]
        self.assertEqual([i for i in range(6) if float(weights[30 + i]) > 0], [4, 5])
        page.set("#live-window", "")
        page.set("#live-softcap", "0.01")
        self.settled(page)
        self.assertLessEqual(max(abs(float(x)) for x in self.steps_of(page)["capped"]), 0.01)
        page.click("#edit-none")
        self.settled(page)
        self.same(page, self.six("multihead", *flags))
        page.click("#live-causal")
        self.settled(page)
        self.same(page, self.six("multihead", *flags, "--no-mask"))

    def test_dropout_of_another_seed(self):
        flags = ["--d-out", 4, "--heads", 2, "--dropout", 0.5, "--train"]
        page = self.module("multihead", *flags)
        page.run("ask()")
        self.same(page, self.six("multihead", *flags))
        page.set("#live-seed", "7")
        self.settled(page)
        self.same(page, self.six("multihead", *flags, "--seed", 7, "--weights", self.state(page)))

    def test_a_mistake_is_told_and_the_page_goes_on(self):
        page = self.module("multihead", "--d-out", 4)
        page.set("#live-window", "-1")
        self.assertRegex(page.text("#live-said"), "expected .*window|window")
        self.end(page)
        self.type(page, " more")
        self.settled(page)
        self.assertEqual(page.run("report.tokens.at(-1)"), "more")
        page.run("document.getElementById('live-text').value = ''; typed('')")
        self.assertIn("at least one word", page.text("#live-said"))

    def test_without_webassembly_the_recorded_pass_is_shown(self):
        path = self.folder / "refused.html"
        library.attn(self.folder, "report", "multihead", "--live", "--output", path)
        path.write_text(path.read_text().replace(" 'wasm-unsafe-eval'", ""))
        page = self.browser.page(f"file://{path}")
        self.wait(page, "document.getElementById('live-said').textContent !== ''")
        self.assertIn("This page shows the recorded pass", page.text("#live-said"))
        page.close()

    def test_what_cannot_be_computed_is_refused(self):
        library.save_npy(self.folder / "two.npy", [0.5] * 36, (2, 6, 3))
        for arguments in (["causal", "--input", "two.npy"], ["causal", "--input", "randn:6,3", "--dropout", "0.5", "--train"]):
            with self.assertRaisesRegex(AssertionError, "--live"):
                library.attn(self.folder, "report", *arguments, "--live", "--output", "x.html")
