"""A slider over the models that a run has kept: the text's loss and the names of heads follow, as the command tells them."""

import json
import os
import subprocess

import library
from live_case import LivePage

TEXT = "the cat sat, the"  # half of the context, so that all of it is read twice


class LiveCheckpoints(LivePage):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "text.txt").write_text("the cat sat, the cat sat down. " * 60)
        cls.train("run", "--steps", 30, "--keep-every", 10, "--layers", 2, "--heads", 2, "--width", 32, "--batch", 8)

    @classmethod
    def train(cls, name, *settings):
        library.attn(cls.folder, "train", "--text", "text.txt", "--out", f"{name}.safetensors", "--context", 32, *settings)

    def slider(self, name="run", **options):
        page = self.open("--live", "--checkpoints", "--model", f"{name}.safetensors", "--text", TEXT, **options)
        self.wait(page, "live.next !== undefined")
        return page

    def move(self, page, place):
        page.run(f"(() => {{ const input = document.getElementById('live-step'); input.value = {place}; input.dispatchEvent(new Event('input')); }})()")
        self.settled(page)
        self.wait(page, "!live.namesDue && report.repeated > 0")

    def test_loss_and_names_are_those_of_each_step(self):
        page = self.slider()
        told = json.loads(library.attn(self.folder, "experiment", "--model", "run.safetensors", "--text", TEXT, "--checkpoints", "--json"))["checkpoints"]
        self.assertEqual(page.run("live.steps"), [one["step"] for one in told])
        for place, one in reversed(list(enumerate(told))):
            self.move(page, place)
            self.near(page.run("live.next.loss"), one["loss"], 1e-5)
            self.assertEqual(page.text("#live-at"), f"step {one['step']}")
            self.assertEqual(page.attribute("#live-step", "aria-valuetext"), f"step {one['step']}")
            self.assertEqual(page.text("#live-loss"), f"loss {one['loss']:.4f} nats a byte")
            self.compare_kinds(page, f"run.step-{one['step']}.safetensors", TEXT)
        self.assertRegex(page.attribute("#live-losses", "aria-label"), f"loss {told[0]['loss']:.4f} at step 10, .* at the end of the run")
        self.assertEqual(page.run("document.getElementById('snippets') === null"), True)  # code of the model has other weights
        self.move(page, len(told))
        self.near(page.run("live.next.loss"), told[-1]["loss"], 1e-5)  # the last step is the end

    def test_by_keyboard_and_back(self):
        page = self.slider()
        page.run("document.getElementById('live-step').focus()")
        page.key("ArrowLeft")
        page.key("ArrowLeft")
        self.wait(page, "live.now.at === 1")
        self.settled(page)
        self.assertEqual(page.run("document.activeElement.id"), "live-step")
        self.assertEqual(page.text("#live-at"), "step 20")
        loss = page.run("live.next.loss")
        self.wait(page, "location.hash.includes('at=1')")
        other = self.browser.page(page.run("location.href"))
        self.pages.append(other)
        self.wait(other, "live.next !== undefined && live.now.at === 1")
        self.settled(other)
        self.assertEqual((other.run("live.next.loss"), other.text("#live-at")), (loss, "step 20"))
        page.click("#edit-undo")  # one move of the slider is one change
        self.settled(page)
        self.assertEqual((page.text("#live-at"), page.run("document.getElementById('live-step').value")), ("the end of the run", "3"))

    def test_changes_stay_while_the_slider_moves(self):
        page = self.slider()
        self.move(page, 0)
        page.run("select({ block: 0, head: 1 })")
        page.click("#edit-head")
        self.settled(page)
        told = json.loads(library.attn(self.folder, "experiment", "--model", "run.step-10.safetensors", "--text", TEXT, "--without", "1.2", "--json"))
        self.near(page.run("live.next.before"), told["loss"], 1e-5)
        self.near(page.run("live.next.loss"), told["loss_changed"], 1e-5)
        self.move(page, 2)
        told = json.loads(library.attn(self.folder, "experiment", "--model", "run.step-30.safetensors", "--text", TEXT, "--without", "1.2", "--json"))
        self.near(page.run("live.next.before"), told["loss"], 1e-5)
        self.near(page.run("live.next.loss"), told["loss_changed"], 1e-5)

    def test_an_address_of_a_step_that_is_not_there(self):
        page = self.slider(fragment="#at=3")
        self.wait(page, "document.getElementById('live-said').textContent !== ''")
        self.assertIn("expected a step that this page has", page.text("#live-said"))

    def test_large_models_are_kept_in_bytes(self):
        self.train("large", "--steps", 2, "--keep-every", 1, "--layers", 4, "--heads", 4, "--width", 160, "--batch", 1)
        page = self.slider("large")
        size = os.path.getsize(self.folder / "large.safetensors")
        self.assertLess(page.run("document.getElementById('model').textContent.length"), 4 / 3 * 1.6 * size)  # and two of a quarter
        told = json.loads(library.attn(self.folder, "experiment", "--model", "large.safetensors", "--text", TEXT, "--checkpoints", "--json"))["checkpoints"]
        self.move(page, 0)
        self.assertEqual(page.text("#live-at"), "step 1, in 8 bits")
        self.near(page.run("live.next.loss"), told[0]["loss"], 1e-2)
        self.assertNotEqual(page.run("live.next.loss"), told[0]["loss"])

    def test_a_large_model_is_held_in_bytes(self):
        self.train("whole", "--steps", 1, "--layers", 4, "--heads", 4, "--width", 208, "--batch", 1)
        size = os.path.getsize(self.folder / "whole.safetensors")
        self.assertGreater(size, 7_500_000)
        page = self.open("--live", "--model", "whole.safetensors", "--text", TEXT)
        self.wait(page, "live.next !== undefined")
        self.settled(page)
        self.assertLess(page.run("document.getElementById('model').textContent.length"), 0.4 * size)
        self.assertIn("matrices in 8 bits", page.text("#about"))
        told = json.loads(library.attn(self.folder, "experiment", "--model", "whole.safetensors", "--text", TEXT, "--json"))
        self.near(page.run("live.next.loss"), told["loss"], 1e-2)
        shown = page.run("Array.from(blocks[3].step('weights').values)")
        page.run("ask()")  # what is shown first is of the weights that the page has
        self.settled(page)
        self.assertEqual(page.run("Array.from(blocks[3].step('weights').values)"), shown)

    def test_what_cannot_be_there_is_refused(self):
        def refused(*arguments):
            ran = subprocess.run([os.path.abspath(library.ATTN), "report", *arguments, "--output", "r.html"], cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertNotEqual(ran.returncode, 0)
            return ran.stderr

        live = ("--live", "--checkpoints", "--text", TEXT, "--model")
        self.assertIn("expected --live and --model", refused("--checkpoints", "--model", "run.safetensors", "--text", TEXT))
        self.assertIn("expected --live and --model", refused("multihead", "--d-out", "4", "--live", "--checkpoints"))
        self.assertIn("keep-every N keeps them", refused(*live, "run.step-10.safetensors"))
        self.train("mixed", "--steps", 1, "--layers", 1, "--heads", 2, "--width", 32, "--batch", 1)
        (self.folder / "mixed.step-7.safetensors").write_bytes((self.folder / "run.safetensors").read_bytes())
        self.assertIn("another run has kept it", refused(*live, "mixed.safetensors"))
        (self.folder / "mixed.step-7.safetensors").write_bytes(b"no model at all")
        self.assertIn("mixed.step-7.safetensors", refused(*live, "mixed.safetensors"))
