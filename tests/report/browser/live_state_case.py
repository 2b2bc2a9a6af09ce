"""Heads that are switched off in a live page, beside `attn experiment`, and the address that holds what was changed."""

import json
import urllib.parse

import library
from live_case import TEXT, LivePage
from overview_case import MODEL

ADDRESS = "decodeURIComponent(location.hash).replaceAll('+', ' ')"


class LiveHeads(LivePage):
    def shown(self, page):
        """The loss and the chances as the page has them, before and after."""
        return page.run("live.next")

    def experiment(self, text, *options):
        return json.loads(library.attn(self.folder, "experiment", "--model", MODEL, "--text", text, *options, "--json"))

    def compare(self, page, text, *heads):
        without = ["--without", ",".join(heads)]
        found, wanted = self.shown(page), self.experiment(text, *without)
        self.near(found["before"], wanted["loss"])
        self.near(found["loss"], wanted["loss_changed"])
        listed = {one["id"]: one for one in found["tokens"]}
        for one in self.experiment(text, *without, "--next", "--count", 5)["next"]:
            self.near(listed[one["id"]]["before"], one["chance"])
            self.near(listed[one["id"]]["chance"], one["chance_changed"])
        self.assertEqual(page.text("#live-loss"), f"loss {wanted['loss']:.4f} → {wanted['loss_changed']:.4f} nats a byte")
        first = found["tokens"][0]
        self.assertIn(f"{100 * first['before']:.1f} % → {100 * first['chance']:.1f} %", page.text("#live-next button"))

    def map_cell(self, page, layer, head):
        page.click(f"#overview td button[data-block='{layer - 1}'][data-head='{head - 1}']")

    def test_a_click_in_the_map_switches_heads_off(self):
        page = self.live()
        page.set("#edit-click", True)
        self.map_cell(page, 2, 2)
        self.wait(page, "live.now.edits.length === 1")
        self.settled(page)
        self.compare(page, TEXT, "2.2")
        self.assertEqual(page.run("document.querySelector(\"#overview [data-block='1'][data-head='1']\").getAttribute('aria-label').endsWith(', off')"), True)
        self.assertTrue(page.run("Boolean(blocks[3].step('weights').matrix(0).changed?.includes(1))"))  # changed cells are marked
        self.assertFalse(page.run("Boolean(blocks[1].step('weights').matrix(0).changed?.includes(1))"))
        self.map_cell(page, 1, 3)
        self.wait(page, "live.now.edits.length === 2")
        self.settled(page)
        self.compare(page, TEXT, "2.2", "1.3")
        # Another text, whose pass with all heads nobody has seen.
        self.type(page, "!")
        self.settled(page)
        text = page.run("live.now.text")
        self.compare(page, text, "2.2", "1.3")
        self.assertTrue(page.run("Boolean(blocks[3].step('weights').matrix(0).changed?.includes(1))"))
        self.map_cell(page, 2, 2)
        self.wait(page, "live.now.edits.length === 1")
        self.settled(page)
        self.compare(page, text, "1.3")
        page.click("#edit-undo")
        self.settled(page)
        self.compare(page, text, "2.2", "1.3")
        page.click("#edit-none")
        self.settled(page)
        self.assertEqual(page.text("#live-loss"), f"loss {self.experiment(text)['loss']:.4f} nats a byte")
        self.assertEqual(page.run("document.querySelectorAll('#overview td button[title$=off]').length"), 0)

    def test_a_text_of_one_token_has_no_loss(self):
        page = self.live()
        page.set("#live-text", "Y")
        self.settled(page)
        self.assertEqual(page.text("#live-loss"), "")
        self.map_cell(page, 1, 1)
        page.click("#edit-head")
        self.settled(page)
        self.assertEqual(page.text("#live-said"), "")
        self.assertIn("→", page.text("#live-next button"))


class LiveAddress(LivePage):
    def at(self, fragment, *options):
        page = self.open(*(options or ("--live", "--model", MODEL, "--text", TEXT)), fragment=fragment)
        self.wait(page, "live.next !== undefined || live.ready === true")
        self.settled(page)
        return page

    def fragment(self, **parts):
        return "#" + urllib.parse.urlencode({k: v if isinstance(v, str) else json.dumps(v) for k, v in parts.items()})

    def address(self, page):
        page.run("new Promise((done) => setTimeout(done, 600))")  # it is written a moment after the last change
        return page.run("location.hash")

    def test_what_was_changed_is_there_again(self):
        page = self.live()
        self.assertEqual(self.address(page).count("text="), 0)  # as it was made
        page.set("#live-text", "Größe & +1 #2?")
        self.settled(page)
        page.run("select({ block: 2, head: 1, step: 'scores', query: 15, key: 2 })")
        page.set("#edit-value", "7.5")
        page.click("#edit-set")
        self.settled(page)
        page.click("#edit-head")
        self.settled(page)
        page.click("#edit-mask")
        self.settled(page)
        again = self.at(self.address(page))
        for what in ("live.now.edits", "report.tokens", "blocks.map((block) => Array.from(block.step('weights').values))", "live.next", "state",
                     "document.getElementById('live-text').value", "document.getElementById('live-edits').innerText", "currentStep().at(1, 15, 2)"):  # fmt: skip
            self.assertEqual(again.run(what), page.run(what), what)
        self.assertEqual(self.address(again), self.address(page))
        # Ids that the tokenizer would not make of their text are held as they are.
        page.run("proceed({ id: 200, token: '\\\\xC8' })")
        self.settled(page)
        third = self.at(self.address(page))
        self.assertEqual(third.run("live.ids"), page.run("live.ids"))
        # An address that is put into the page itself.
        page.run("location.hash = '#query=3&text=Other'")
        self.wait(page, "report.tokens.join('') === 'Other'")
        self.assertEqual(page.run("live.now.edits"), [])
        self.assertEqual(page.run("state.query"), 2)

    def test_a_module(self):
        made = ("multihead", "--text", "The cat sat down", "--d-out", "4", "--live")
        page = self.at("", *made)
        page.set("#live-text", "The dog sat down")
        page.set("#live-scale", "2")
        page.run("select({ step: 'scores', query: 3, key: 1 })")
        page.set("#edit-value", "-1.5")
        page.click("#edit-set")
        page.run("ask({ weights: [{ name: 'W_query.weight', at: 1, value: 0.5 }] })")
        again = self.at(self.address(page), *made)
        for what in ("live.now.options", "live.now.weights", "live.now.edits", "report.tokens", "Array.from(blocks[0].step('output').values)", "document.getElementById('live-scale').value"):
            self.assertEqual(again.run(what), page.run(what), what)
        self.assertEqual(again.run("document.getElementById('live-said').textContent"), "")
        bad = self.at(self.fragment(weights=[{"name": "W_query.weight", "at": 99999, "value": 1}]), *made)
        self.assertIn("not taken over: [address] expected a list of this module’s weights", bad.text("#live-said"))
        bad = self.at(self.fragment(edits=[{"step": "scroes", "row": 0, "column": 0, "value": 1}]), *made)
        self.assertIn("did you mean scores", bad.text("#live-said"))
        self.assertEqual(bad.run("live.now.edits"), [])

    def test_hostile_addresses_are_refused_in_words(self):
        number = {"step": "h.0.attn.scores", "head": 0, "row": 1, "column": 0, "value": 1}
        cases = {
            "not JSON": ({"edits": "[{"}, "expected a list of edits; found"),
            "no list": ({"edits": {"layer": 0, "head": 1}}, "expected a list of edits"),
            "null": ({"edits": [None]}, "expected a list of edits"),
            "list in list": ({"edits": [[]]}, "expected a list of edits"),
            "another field": ({"edits": [{**number, "__proto__x": 1}]}, "expected a list of edits"),
            "prototype": ({"edits": '[{"__proto__":{"step":"x"},"layer":0,"head":1}]'}, "expected a list of edits"),
            "both": ({"edits": [{**number, "from": "h.0.attn.scaled"}]}, "expected a list of edits"),
            "text for a number": ({"edits": [{**number, "value": "<img src=x onerror=alert(1)>"}]}, "expected a list of edits"),
            "many": ({"edits": [{"layer": 0, "head": 1}] * 1001}, "expected a list of edits"),
            "a half head": ({"edits": [{"layer": 0, "head": 0.5}]}, "expected a list of edits"),
            "ids": ({"ids": [1, -2]}, "expected a list of ids"),
            "long": ({"text": "a" * 10001}, "a text of at most 10000 characters; found 10001"),
            "no text": ({"text": ""}, "expected a text of at least one token"),
            "a model": ({"model": "other.gguf", "text": "x"}, "expected the model that is open, this page’s own; found other.gguf; open that one first"),
            "step": ({"edits": [{**number, "step": "h.0.attn.scroes"}]}, "did you mean h.0.attn.scores"),
            "place": ({"edits": [{**number, "row": 500}]}, "expected a place inside"),
            "layer": ({"edits": [{"layer": 99, "head": 0}]}, "99|100"),
            "large ids": ({"ids": [84, 99999]}, "99999"),
        }  # fmt: skip
        page = self.at("")
        plain = page.run("blocks.map((block) => Array.from(block.step('weights').values))")
        for name, (parts, words) in cases.items():
            with self.subTest(name):
                page.run(f"said(''); location.hash = {json.dumps(self.fragment(**parts))}; 0")
                self.wait(page, "document.getElementById('live-said').textContent !== ''")
                self.settled(page)
                self.assertRegex(page.text("#live-said"), "The address is not taken over: .*(" + words + ")")
                self.assertEqual(page.run("live.now.edits"), [])
                self.assertEqual(page.run("document.getElementById('live-text').value"), TEXT)
        for a, b in zip(page.run("blocks.map((block) => Array.from(block.step('weights').values))"), plain, strict=True):
            for x, y in zip(a, b, strict=True):
                self.near(x, y, 1e-5)
        first = self.at(self.fragment(edits=[{"layer": 99, "head": 0}]))
        self.assertIn("The address is not taken over", first.text("#live-said"))
        self.assertEqual(first.run("report.tokens.join('')"), TEXT)
