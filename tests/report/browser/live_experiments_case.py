"""Experiments in a live page: the numbers of `attn experiment`, and what cannot be asked."""

import json

import library
from live_case import TEXT, LivePage
from overview_case import MODEL

OTHER = "You can copy"  # as many bytes as TEXT


class LiveExperiments(LivePage):
    def found(self, page, kind):
        page.run("document.getElementById('experiments').open = true; delete document.body.dataset.experiment; 0")
        page.click(f"#experiment-{kind}")
        self.wait(page, f"document.body.dataset.experiment === '{kind}'")
        return page.run("live.experiment")

    def experiment(self, text, *options):
        return json.loads(library.attn(self.folder, "experiment", "--model", MODEL, "--text", text, *options, "--json"))

    def compare(self, found, wanted):
        self.assertEqual([len(row) for row in found], [len(row) for row in wanted])
        for mine, theirs in zip(found, wanted):
            for a, b in zip(mine, theirs):
                self.near(a, b, 1e-5)

    def cell(self, page, row, column, table=1):
        return page.run(f"document.querySelectorAll('#experiment-found table')[{table - 1}].tBodies[0].rows[{row}].cells[{column + 1}].textContent")

    def test_every_head_switched_off(self):
        page = self.live()
        found, wanted = self.found(page, "effects"), self.experiment(TEXT, "--effects")
        self.near(found["before"], wanted["before"])
        self.compare(found["after"], wanted["after"])
        self.assertEqual(self.cell(page, 0, 0), f"{wanted['after'][0][0] - wanted['before']:+.3f}")
        self.assertIn(f"loss is {wanted['before']:.4f}", page.text("#experiment-found"))
        # The effects are measured beside heads that are off already.
        page.run("select({ block: 1, head: 0 })")
        page.click("#edit-head")
        self.settled(page)
        self.assertEqual(page.text("#experiment-found"), "")  # what was found is of what was read before
        found, wanted = self.found(page, "effects"), self.experiment(TEXT, "--effects", "--without", "2.1")
        self.near(found["before"], wanted["before"])
        self.compare(found["after"], wanted["after"])

    def test_the_logit_lens(self):
        page = self.live()
        found, wanted = self.found(page, "lens"), self.experiment(TEXT, "--lens")
        self.assertEqual(found["tokens"], [[chr(int(one)) for one in row] for row in wanted["likeliest"]])
        self.compare(found["chance"], wanted["chance"])
        self.compare([found["loss"]], [[sum(row) / len(row) for row in wanted["losses"]]])
        self.assertEqual(found["texts"], list(TEXT))
        self.assertEqual(self.cell(page, 4, len(TEXT)), f"{found['loss'][4]:.4f}")

    def test_a_second_text(self):
        page = self.live()
        page.set("#experiment-other", OTHER)
        self.compare_texts(page)
        page.run("select({ block: 1, head: 0 })")
        page.click("#edit-head")
        self.settled(page)
        self.compare_texts(page, "--without", "2.1")

    def compare_texts(self, page, *changes):
        found = self.found(page, "patching")
        wanted = self.experiment(TEXT, "--patch-from", OTHER, "--tokens", found["a"], found["b"], *changes)
        self.near(found["clean"], wanted["clean"], 1e-5)
        self.near(found["corrupt"], wanted["corrupt"], 1e-5)
        scale = 1e-5 * max(1, 10 / abs(wanted["clean"] - wanted["corrupt"]))
        for name in ("stream", "heads"):
            for mine, theirs in zip(found[name], wanted[name], strict=True):
                for a, b in zip(mine, theirs, strict=True):
                    self.near(a, b, scale)
        self.assertEqual(self.cell(page, 0, 0, 2), f"{found['heads'][0][0]:.2f}".replace("-", "−"))
        chances = [{one["token"]: one["chance_changed" if changes else "chance"] for one in self.experiment(text, "--next", "--count", 256, *changes)["next"]} for text in (TEXT, OTHER)]
        more = {token: chance - chances[1][token] for token, chance in chances[0].items()}
        self.assertEqual((found["a"], found["b"]), (max(more, key=more.get), min(more, key=more.get)))

    def test_what_is_typed_is_answered_before_the_rest_of_an_experiment(self):
        for kind in ("effects", "patching"):
            with self.subTest(kind):
                page = self.live()
                page.set("#experiment-other", OTHER)
                page.run("document.getElementById('experiments').open = true; live.came = []; const was = live.worker.onmessage; live.worker.onmessage = (event) => {"
                         " if (!event.data.space) live.came.push(event.data.experiment ? event.data.found.left ?? 'found' : 'answer'); was(event); if (live.came.length === 2) typed('You must copy'); }; 0")
                page.click(f"#experiment-{kind}")  # typed behind the second part, when a third has been asked for
                self.wait(page, "report.tokens.length === 13")
                self.assertIn(page.text("#experiment-found"), ("", "Left off, since something else was asked."))
                page.run("delete document.body.dataset.experiment; 0")
                page.click("#experiment-lens")
                self.wait(page, "document.body.dataset.experiment === 'lens'")
                first, second, third, answer, lens = page.run("live.came")
                self.assertGreater(first, second)
                self.assertGreater(second, third)
                self.assertGreater(third, 0)
                self.assertEqual([answer, lens], ["answer", "found"])

    def test_the_last_one_that_was_asked_for_is_told(self):
        page = self.live()
        page.run("document.getElementById('experiments').open = true; live.came = []; const was = live.worker.onmessage; live.worker.onmessage = (event) => {"
                 " if (event.data.experiment) live.came.push(event.data.experiment); if (live.came.length === 1) { askExperiment('effects'); askExperiment('lens'); askExperiment('effects'); } was(event); }; 0")
        found, wanted = self.found(page, "effects"), self.experiment(TEXT, "--effects")
        self.compare(found["after"], wanted["after"])
        self.assertEqual(set(page.run("live.came")), {"effects", "lens"})

    def test_what_cannot_be_compared_is_told_and_the_page_goes_on(self):
        page = self.live()
        page.set("#experiment-other", "You")
        self.assertIsNone(self.found(page, "patching"))
        self.assertIn("expected two texts of as many tokens; found 12 and 3", page.text("#experiment-found"))
        page.set("#experiment-other", TEXT)
        self.found(page, "patching")
        self.assertIn("the same difference in both", page.text("#experiment-found"))
        self.assertIsNotNone(self.found(page, "lens"))
        self.type(page, "!")
        self.settled(page)
        self.assertEqual(page.run("report.tokens.length"), len(TEXT) + 1)
