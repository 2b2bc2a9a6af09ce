"""The experiments: what they compute anew must be what the library computes."""

import math

import library
from report_case import ROWS, ReportTest


class Labs(ReportTest):
    def column(self, page, host, index):
        rows = page.run(f"[...document.querySelectorAll('{host} tbody tr')].map((r) => [Number(r.dataset.key ?? r.dataset.word), r.cells[{index}].dataset.value])")
        return {int(key): library.number(value.replace("Infinity", "inf")) for key, value in rows}

    def test_softmax_in_three_ways(self):
        steps = self.six("self-v1", "--d-out", 2)
        page = self.open("self-v1", "--d-out", 2, fragment="#query=2")
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
        page = self.open("causal", "--d-out", 2, "--no-mask")
        for (i, j), (value, _) in self.cells(page, "#route-all").items():
            self.near(value, open_steps["weights"][i, j], 1e-7)
        for route in ("#route-direct", "#route-divided"):
            for (i, j), (value, _) in self.cells(page, route).items():
                self.near(value, causal["weights"][i, j], 2e-7, route)
        for (i, j), (value, _) in self.cells(page, "#route-masked").items():
            self.near(value, causal["masked"][i, j], 1e-7)
        self.assertLess(float(page.attribute("#routes-said", "data-apart")), 1e-6)

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
            page = self.open(module, *arguments)
            self.assertLess(float(page.attribute("#recomputed", "data-apart")), 1e-6)
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
        page = self.open("self-v2", "--d-out", 2)
        self.assertEqual(page.attribute("#leak-said", "data-leaks"), "5")

    def test_dropout_draws_what_the_library_draws(self):
        for module, flags in (("causal", ["--d-out", 2]), ("multihead", ["--d-out", 4]), ("heads", ["--d-out", 2]), ("multihead", ["--d-out", 6, "--heads", 3, "--seed", 7, "--qkv-bias"])):
            page = self.open(module, *flags)
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

    def test_dropout_of_a_text_in_a_batch(self):
        library.save_npy(self.folder / "batch.npy", [float(x) for row in ROWS * 2 for x in row.split(",")], (2, 6, 3))
        flags = ["multihead", "--input", "batch.npy", "--d-out", 4, "--dropout", 0.5, "--train", "--rng", "native"]
        library.attn(self.folder, "run", *flags, "--save-steps", "batch.safetensors")
        dropped = library.steps(self.folder / "batch.safetensors")["dropped"]
        page = self.open(*flags, "--item", 2, fragment="#head=2&step=dropped")
        for host in ("#dropout", "#steps .stage-matrix"):
            for (i, j), (value, _) in self.cells(page, host).items():
                self.near(value, dropped[1, 1, i, j], 1e-7, host)
        self.assertIn("2 of 2", page.text(".facts"))

    def test_many_draws_of_dropout_mean_the_weights(self):
        steps = self.six("causal", "--d-out", 2)
        page = self.open("causal", "--d-out", 2)
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
            page = self.open(module, *arguments)
            self.assertEqual(float(page.attribute("#split-said", "data-apart")), 0)
            for host in ("#split-joined", "#split-separate"):
                for (i, c), (value, _) in self.cells(page, host).items():
                    wanted = steps["queries"][c // 2, i, c % 2] if module == "multihead" else steps[f"heads.{c // 2}.queries"][i, c % 2]
                    self.near(value, wanted, 1e-6, module)
