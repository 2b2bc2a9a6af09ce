"""A page that computes, where texts are no text, numbers no count, and one thing comes while another goes on."""

import json
import os
import urllib.parse

import library
from live_case import ANSWERED, TEXT, LivePage
from overview_case import MODEL

WEIGHTS = "blocks.map((block) => Array.from(block.step('weights').values))"
TOO_MUCH = 2**32 + 65


def fragment(**parts):
    return "#" + urllib.parse.urlencode({k: v if isinstance(v, str) else json.dumps(v) for k, v in parts.items()})


class LiveLimits(LivePage):
    def said(self, page, action, words):
        page.run(f"said(''); {action}; 0")
        self.wait(page, "document.getElementById('live-said').textContent !== ''", 10)
        self.assertRegex(page.text("#live-said"), words)

    def small(self, name, layers):
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            (self.folder / "text.txt").write_text("You may copy it, and you may change it. " * 20)
            library.attn(self.folder, "train", "--text", "text.txt", "--out", path, "--context", 24, "--steps", 1, "--batch", 1, "--layers", layers, "--heads", 2, "--width", 16)
        return path

    def test_a_page_begins_with_the_ids_that_were_read(self):
        text, latin = "café thé café", b"caf\xe9 caf\xe9"
        for options, ids in (([os.fsdecode(latin)], list(latin)), ([text, "--tokens", "2-4"], list(text.encode()[1:4])), ([text], list(text.encode()))):
            with self.subTest(options):
                page = self.open("--live", "--model", MODEL, "--text", *options)
                self.wait(page, "live.next !== undefined")
                self.settled(page)
                recorded = page.run(WEIGHTS), page.run("report.tokens"), page.text("h1")
                self.assertEqual(page.run("live.ids"), ids)
                self.assertNotIn("ids", page.run("addressOf(live.now)"))
                page.run("ask()")
                self.settled(page)
                self.assertEqual([page.run("report.tokens"), page.text("h1")], [*recorded[1:]])
                for a, b in zip(sum(page.run(WEIGHTS), []), sum(recorded[0], []), strict=True):
                    self.near(a, b, 1e-5)
                page.set("#live-text", "another")
                self.settled(page)
                self.assertEqual(page.run("live.ids"), list(b"another"))
                self.assertIn("text=another", page.run("addressOf(live.now)"))
                page.click("#edit-undo")
                self.settled(page)
                self.assertEqual(page.run("live.ids"), ids)

    def test_a_text_with_a_zero_is_refused(self):
        (self.folder / "zero.txt").write_bytes(b"ab\0cd ef")
        for made in (["--model", MODEL], ["simple"]):
            with self.assertRaisesRegex(AssertionError, r"\[--text\] expected a text without the character U\+0000"):
                library.attn(self.folder, "report", *made, "--live", "--text-file", "zero.txt", "--output", "x.html")
        page = self.live()
        self.said(page, "typed('ab\\0cd')", r"expected a text without the character U\+0000")
        self.said(page, f"location.hash = {json.dumps(fragment(text=chr(97) + chr(0)))}", r"not taken over: .* U\+0000")

    def test_a_text_that_is_taken_away(self):
        page = self.live()
        self.said(page, "typed('')", r"^\[page\] expected a text of at least one token; found none$")
        self.assertEqual(page.run("report.tokens.join('')"), TEXT)

    def test_a_module_reads_as_many_words_as_a_page_is_made_for(self):
        page = self.open("multihead", "--text", "The cat sat", "--d-out", 4, "--live")
        self.wait(page, "live.ready")
        page.set("#live-text", "cat " * 128)
        self.settled(page)
        self.assertEqual(page.run("report.tokens.length"), 128)
        self.said(page, "typed('cat '.repeat(129))", r"^\[page\] expected a text of at most 128 words; found 129$")
        self.assertEqual(page.run("report.tokens.length"), 128)

    def test_numbers_in_a_message_are_printed_as_by_the_c_library(self):
        page = self.live()
        self.assertEqual(page.run("""(() => {
          const library = new Library(live.code), to = library.exports.attn_new(400), at = library.exports.attn_new(400);
          const view = new DataView(library.memory.buffer);
          const put = (where, text) => new TextEncoder().encodeInto(text + "\\0", new Uint8Array(view.buffer, where));
          put(at, "%.3g GB (%zu bytes) for %.*s"), put(at + 200, "numbers and more");
          view.setFloat64(at + 104, 4.294967, true), view.setUint32(at + 112, 4294967295, true), view.setInt32(at + 116, 7, true);
          view.setUint32(at + 120, at + 200, true);
          return [library.print(to, 400, at, at + 104), library.text(to)];
        })()"""), [38, "4.29 GB (4294967295 bytes) for numbers"])

    def test_what_was_unfolded_stays_so_and_the_focus_is_not_lost(self):
        page = self.live("You may, you may, you may")
        folds = ("#about details", "#naming")
        page.run(f"for (const one of {json.dumps(folds)}) document.querySelector(one).open = true; document.querySelector('#about summary').focus(); typed('You may copy'); 0")
        self.settled(page)
        self.wait(page, "report.health.length > 3")  # the head is made anew once more
        self.assertEqual(page.run(f"{json.dumps(folds)}.map((one) => document.querySelector(one).open)"), [True, True])
        self.assertTrue(page.run("document.activeElement.matches('#about summary')"))
        for layer in range(2):
            page.run(f"select({{ block: {layer} }})")
            page.click("#edit-head")
            self.settled(page)
        page.run("document.querySelector('#live-edits button').focus()")
        page.key("Enter")
        self.settled(page)
        self.assertIn("layer 2", page.run("document.activeElement.textContent"))
        page.key("Enter")
        self.settled(page)
        self.assertNotEqual(page.run("document.activeElement.tagName"), "BODY")

    def test_a_long_text_is_read_on_a_telephone(self):
        page = self.live(width=390)
        long = TEXT + " it. You may copy" * 1000
        page.set("#live-text", long)
        self.settled(page)
        self.assertEqual(page.run("document.querySelector('h1').textContent"), long[:2000] + "…")
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390)
        page.click("#live-one")
        self.settled(page)
        box = "document.getElementById('live-text')"
        self.assertGreater(page.run(f"{box}.clientHeight"), 150)  # several lines of it
        self.assertLess(page.run(f"{box}.scrollHeight - {box}.clientHeight - {box}.scrollTop"), 2)  # the last of them, too

    def test_addresses_of_what_is_not_there(self):
        page = self.live()
        self.said(page, f"location.hash = {json.dumps(fragment(ids=[TOO_MUCH, 66]))}", "not taken over: .*expected a list of ids")
        self.assertEqual(page.run("report.tokens.join('')"), TEXT)
        self.said(page, f"ask({{ ids: [{TOO_MUCH}, 66] }})", "expected ids of at most 32 bits; found [0-9]+")
        module = self.open("multihead", "--text", "The cat sat", "--d-out", 4, "--live")
        self.wait(module, "live.ready")
        plain = module.run(WEIGHTS)
        place = {"step": "inputs", "row": 0, "column": 0, "value": 1}
        for wrong in ({"column": 50}, {"row": 9}, {"step": "source"}, {"head": 1}, {"value": 1e39}):
            with self.subTest(wrong):
                self.said(module, f"location.hash = {json.dumps(fragment(edits=[{**place, **wrong}]))}", "not taken over: .*expected")
                self.assertEqual(module.run("live.now.edits"), [])
                self.assertEqual(module.run(WEIGHTS), plain)
        place.pop("value")
        self.said(module, f"location.hash = {json.dumps(fragment(edits=[{**place, 'from': 'scores'}]))}", "not taken over: .*expected")
        self.assertEqual(module.run(WEIGHTS), plain)

    def test_no_address_is_written_that_would_be_refused(self):
        page = self.live()
        for change in ("{ text: 'a'.repeat(10001) }", "{ ids: Array(1001).fill(65) }"):
            self.assertEqual(page.run(f"addressOf({{ ...live.now, ids: undefined, ...{change} }})"), "")
        self.assertIn("text=aaa", page.run("addressOf({ ...live.now, ids: undefined, text: 'a'.repeat(10000) })"))

    def test_numbers_are_not_cut_in_silence(self):
        page = self.live()
        for name, value, words in (("top-k", 2**32 + 1, "whole number from 0 to 2147483647; found 4294967297"), ("top-k", "2.7", "whole number"), ("temperature", "", "number from 0 to 5; found none"), ("top-p", "0", "0.01 to 1")):
            self.said(page, f"byId('{name}').value = '{value}'; byId('{name}').dispatchEvent(new Event('input'))", words)
        self.assertEqual(page.run("live.sampling"), [1, 0, 1])
        self.assertEqual(page.run("['-inf', '−∞ ', '-infx', '1e39', '-1e38'].map((text) => String(numberOf(text)))"), ["-inf", "-inf", "undefined", "undefined", "-1e+38"])
        label = "labelOf({ step: 'h.0.attn.%s', head: 0, row: 1, column: 0, value: '-inf' })"
        page.run("ask()")
        self.settled(page)
        self.assertIn("key 1 of query 2 masked", page.run(label % "scores"))
        self.assertIn("weights, layer 1, head 1 at 2, 1 = -inf", page.run(label % "weights"))
        module = self.open("causal", "--text", "The cat sat", "--d-out", 4, "--live")
        self.wait(module, "live.ready")
        module.set("#live-window", "2.5")
        self.assertIn("[window] expected a whole number", module.text("#live-said"))
        module.set("#weight-value", "1e39")
        module.click("#live-weights summary")
        module.click("#weight-set")
        self.assertIn("-1e38 to 1e38", module.text("#live-said"))
        self.assertEqual(module.run("[live.now.options, live.now.weights]"), [{}, []])

    def test_a_mistake_after_a_model_was_opened(self):
        page = self.live()
        page.run("edited({ layer: 0, head: 1 })")
        self.settled(page)
        page.choose("#live-files", self.small("three", 3))
        self.wait(page, "live.file === 'three.safetensors'")
        self.settled(page)
        self.said(page, "edited({ layer: 99, head: 0 })", "expected a layer")
        self.assertEqual(page.run("live.now.edits"), [])
        self.said(page, "ask({ at: 1 })", "expected a step of the model’s own training")
        self.assertEqual(page.run("String(live.now.at)"), "undefined")

    def test_the_last_model_and_the_last_text_win(self):
        page = self.live()
        for file in (MODEL, self.small("two", 2)):  # the first one is the larger
            page.choose("#live-files", file)
        page.set("#live-text", "typed meanwhile")
        self.wait(page, "live.file === 'two.safetensors'")
        self.settled(page)
        self.assertEqual(page.run("[blocks.length, report.tokens.join(''), byId('live-text').value]"), [2, "typed meanwhile", "typed meanwhile"])

    def test_what_is_typed_while_the_page_opens(self):
        for made, ready in ((["--model", MODEL, "--text", TEXT], "live.next !== undefined"), (["multihead", "--text", TEXT, "--d-out", 4], "live.ready")):
            for address in ("", fragment(text="from the address")):
                with self.subTest(made=made[0], address=address):
                    page = self.open(*made, "--live", fragment=address)
                    self.wait(page, ready)
                    self.settled(page)
                    # As it is while it opens.
                    page.run("{ const { code } = live; Object.assign(live, { code: undefined, now: live.begun }); typed('typed early'); live.code = code; begin(); }")
                    self.settled(page)
                    self.assertEqual(page.run("[live.now.text, byId('live-text').value]"), ["typed early"] * 2)
                    self.assertEqual(page.run("report.tokens.join(live.isModule ? ' ' : '')"), "typed early")
                    self.assertEqual(page.run(ANSWERED), page.run("live.asked"))
