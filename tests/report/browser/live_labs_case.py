"""The labs of pages that compute: what they show must be what the command computes, and recorded pages have none."""

import math

import library
from live_case import TEXT, LivePage
from overview_case import MODEL
from report_case import ROWS


LABS = "['softmax', 'masks', 'leak', 'dropout', 'split'].filter((id) => document.getElementById(id))"


class LiveLabs(LivePage):
    module = LivePage.with_labs

    def test_a_recorded_page_has_none_and_says_where_they_are(self):
        live = self.module("multihead", "--d-out", 4)
        self.assertEqual(live.run(LABS), ["softmax", "masks", "leak", "dropout", "split"])
        self.assertNotIn("--live", live.text("#made"))
        for arguments in (["multihead", "--d-out", 4], ["--model", MODEL, "--text", TEXT], ["latent", "--d-out", 4]):
            page = self.open(*arguments)
            self.assertEqual(page.run(LABS), [])
            self.assertIn("attn report --live", page.text("#made"), arguments)

    def test_a_model_has_the_two_labs_of_its_scores(self):
        page = self.live()
        self.wait(page, "live.code !== undefined")
        self.assertEqual(page.run(LABS), ["softmax", "masks"])
        page.run("select({ block: 1, head: 2, query: 5, key: 0 })")
        self.assertEqual(page.run("live.lab"), None)  # what is folded asks for nothing
        page.click("#softmax summary")
        page.click("#masks summary")
        self.wait(page, "Boolean(document.querySelector('#route-direct .cell, #route-direct canvas') && document.querySelector('#softmax tbody tr'))")
        for key, weight in self.column(page, "#softmax", 4).items():
            self.near(weight, page.run(f"currentBlock().step('weights').at(2, 5, {key})"), 1e-7)
        self.assertEqual(page.run("maskRoutes(unmasked(currentBlock()).matrix(2).values, report.tokens.length).direct.every((x, i) => Math.abs(x - currentBlock().step('weights').matrix(2).values[i]) < 1e-7)"), True)

    def column(self, page, host, index):
        rows = page.run(f"[...document.querySelectorAll('{host} tbody tr')].map((r) => [Number(r.dataset.key ?? r.dataset.word), r.cells[{index}].dataset.value])")
        return {int(key): library.number(value.replace("Infinity", "inf")) for key, value in rows}

    def test_softmax_in_three_ways(self):
        steps = self.six("self-v1", "--d-out", 2)
        page = self.module("self-v1", "--d-out", 2, fragment="#query=2")
        scaled = [steps["scaled"][1, j] for j in range(6)]
        for j, weight in self.column(page, "#softmax", 4).items():
            self.near(weight, steps["weights"][1, j], 1e-7)
        for j, weight in self.column(page, "#softmax", 3).items():
            self.near(weight, steps["weights"][1, j], 1e-6)
        for j, weight in self.column(page, "#softmax", 2).items():
            self.near(weight, scaled[j] / sum(scaled), 1e-6)
        page.set("#softmax-scale", "3")
        self.assertTrue(all(math.isnan(x) for x in self.column(page, "#softmax", 3).values()))
        self.near(sum(self.column(page, "#softmax", 4).values()), 1, 1e-6)
        self.assertIn("naive softmax fails", page.text("#softmax-said"))
        self.assertIn("step", page.text("#softmax-said"))
        page.set("#softmax-scale", "-2")
        self.assertIn("uniform", page.text("#softmax-said"))
        page.click("#softmax-reset")
        self.near(self.column(page, "#softmax", 4)[0], steps["weights"][1, 0], 1e-7)

    def test_two_routes_to_the_mask(self):
        causal = self.six("causal", "--d-out", 2)
        open_steps = self.six("causal", "--d-out", 2, "--no-mask")
        page = self.module("causal", "--d-out", 2, "--no-mask")
        for (i, j), (value, _) in self.cells(page, "#route-all").items():
            self.near(value, open_steps["weights"][i, j], 1e-7)
        for route in ("#route-direct", "#route-divided"):
            for (i, j), (value, _) in self.cells(page, route).items():
                self.near(value, causal["weights"][i, j], 2e-7, route)
        for (i, j), (value, _) in self.cells(page, "#route-masked").items():
            self.near(value, causal["masked"][i, j], 1e-7)
        self.assertLess(float(page.attribute("#routes-said", "data-apart")), 1e-6)

    def test_the_two_routes_stand_side_by_side(self):
        page = self.live(width=1400)
        self.wait(page, "live.code !== undefined")
        self.assertFalse(page.run("Boolean(document.querySelector('#route-all'))"))  # what is folded is not drawn
        page.click("#masks summary")
        self.wait(page, "Boolean(document.querySelector('#route-direct'))")
        lefts = page.run("['all', 'divided', 'masked', 'direct'].map((name) => document.querySelector(`#route-${name}`).getBoundingClientRect().left)")
        self.assertEqual([lefts[0], lefts[1]], [lefts[2], lefts[3]])
        self.assertEqual(page.run("[...document.querySelectorAll('#masks .canvas-view')].filter((v) => v.scrollWidth > v.clientWidth).length"), 0)

    def test_none_is_wider_than_a_telephone(self):
        for page in (self.with_labs("multihead", "--d-out", 4, width=390), self.with_labs("--model", MODEL, "--text", TEXT, width=390)):
            page.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
            page.run("new Promise((done) => setTimeout(() => setTimeout(done)))")
            self.assertEqual(page.run("[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > 391 && !e.closest('.scroll, .strip, .canvas-view, .unseen, pre')).map((e) => e.outerHTML.slice(0, 200))"), [])
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390)

    def leaked(self, module, arguments, causal, changed, amount):
        """The page's outputs with a changed word, and the library's."""
        self.six(module, *arguments)
        rows = [[float(x) for x in row.split(",")] for row in ROWS]
        rows[changed] = [x + amount for x in rows[changed]]
        (self.folder / "changed.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
        flags = [] if causal else ["--no-mask"]
        library.attn(self.folder, "run", module, "--input", "changed.csv", *arguments, *flags, "--save-steps", "changed.safetensors", "--output", "z.npy")
        return library.steps(self.folder / "changed.safetensors")

    def test_a_changed_word_moves_what_the_library_moves(self):
        for module, arguments, last in (("multihead", ["--d-out", 4], "output"), ("heads", ["--d-out", 2], "merged"), ("causal", ["--d-out", 2], "context")):
            page = self.module(module, *arguments)
            for causal in (True, False):
                page.set("#leak-mask", causal)
                page.set("#leak-word", "4")
                page.set("#leak-amount", "1")
                wanted = self.leaked(module, arguments, causal, 4, 1)[last]
                shown = page.run("[...document.querySelectorAll('#leak tbody tr')].map((r) => r.dataset.output.split(' ').map(Number))")
                for i, row in enumerate(shown):
                    for c, x in enumerate(row):
                        self.near(x, wanted[i, c], 1e-6, f"{module} {causal}")
                moved = self.column(page, "#leak", 2)
                self.assertEqual([moved[i] == 0 for i in range(4)], [causal] * 4)
                self.assertEqual(page.attribute("#leak-said", "data-leaks"), "0" if causal else "4")
                self.assertIn("No leak" if causal else "Leak: 4 of 4", page.text("#leak-said"))

    def test_a_module_without_mask_leaks(self):
        page = self.module("self-v2", "--d-out", 2)
        self.assertEqual(page.attribute("#leak-said", "data-leaks"), "5")

    def test_dropout_draws_what_the_library_draws(self):
        for module, flags in (("causal", ["--d-out", 2]), ("multihead", ["--d-out", 4]), ("heads", ["--d-out", 2]), ("multihead", ["--d-out", 6, "--heads", 3, "--seed", 7, "--qkv-bias"])):
            page = self.module(module, *flags)
            for flavour in ("mkl", "native"):
                for p in (0.5, 0.25):
                    steps = self.six(module, *flags, "--dropout", p, "--train", "--rng", flavour)
                    page.set("#dropout-flavour", flavour)
                    page.set("#dropout-p", str(p))
                    for head in range(1 if module == "causal" else 2):
                        if module != "causal":
                            page.set("[name=head]", str(head))
                        dropped = steps["dropped"] if module != "heads" else steps[f"heads.{head}.dropped"]
                        for (i, j), (value, _) in self.cells(page, "#dropout").items():
                            wanted = dropped[(i, j) if len(dropped.shape) == 2 else (head, i, j)]
                            self.near(value, wanted, 1e-7, f"{module} {flavour} {p} head {head}")
                        sums = [float(x) for x in page.attribute("#dropout-sums", "data-sums").split()]
                        self.near(sums[5], sum(dropped[(5, j) if len(dropped.shape) == 2 else (head, 5, j)] for j in range(6)), 1e-6)

    def test_many_draws_of_dropout_mean_the_weights(self):
        steps = self.six("causal", "--d-out", 2)
        page = self.module("causal", "--d-out", 2)
        first = self.cells(page, "#dropout")
        page.click("#dropout-again")
        self.assertNotEqual(first, self.cells(page, "#dropout"))
        page.click("#dropout-mean")
        for (i, j), (value, _) in self.cells(page, "#dropout").items():
            self.near(value, steps["weights"][i, j], 0.15)  # five standard deviations of 1000 draws, of the largest weight
        self.assertIn("mean of 1000 draws", page.text("#dropout-said"))
        page.click("#dropout-first")
        self.assertEqual(first, self.cells(page, "#dropout"))

    def test_one_product_and_a_product_for_each_head_are_the_same(self):
        for module, arguments in (("multihead", ["--d-out", 4]), ("heads", ["--d-out", 2])):
            steps = self.six(module, *arguments)
            page = self.module(module, *arguments)
            self.assertEqual(float(page.attribute("#split-said", "data-apart")), 0)
            for host in ("#split-joined", "#split-separate"):
                for (i, c), (value, _) in self.cells(page, host).items():
                    wanted = steps["queries"][c // 2, i, c % 2] if module == "multihead" else steps[f"heads.{c // 2}.queries"][i, c % 2]
                    self.near(value, wanted, 1e-6, module)
