"""A page that computes: typing, continuing, edits and mistakes, against the library's own numbers."""

import json
import time

import library
from overview_case import MODEL
from report_case import ReportTest

TEXT = "You may copy"
KINDS = "JSON.stringify(blocks.map(({ kinds }) => kinds))"
ANSWERED = "Number(document.body.dataset.answered || 0)"


class LivePage(ReportTest):
    def live(self, text=TEXT, **options):
        page = self.open("--live", "--model", MODEL, "--text", text, **options)
        self.wait(page, "live.next !== undefined")
        return page

    def with_labs(self, *arguments, **options):
        """A page that computes, once its labs are there."""
        page = self.open(*arguments, "--live", **options)
        self.wait(page, "Boolean(document.getElementById('masks'))")
        return page

    def wait(self, page, condition, seconds=120):
        """Until the page has what it was asked for."""
        deadline = time.monotonic() + seconds
        while not page.run(condition):
            self.assertLess(time.monotonic(), deadline, condition)
            time.sleep(0.02)

    def settled(self, page):
        self.wait(page, f"{ANSWERED} === live.asked")

    def compare_kinds(self, page, model, text):
        """The scores that name heads are those in a report of that model."""
        recorded = self.open("--model", model, "--text", text)
        wanted = json.loads(recorded.run(KINDS))
        self.wait(page, f"Math.abs(blocks.at(-1).kinds?.at(-1).induction - {wanted[-1][-1]['induction']!r}) < 1e-5")
        for mine, theirs in zip(json.loads(page.run(KINDS)), wanted, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                for kind, score in other.items():
                    self.near(one[kind], score, 1e-5, kind)
        self.assertEqual(page.run("report.repeated"), recorded.run("report.repeated"))

    def type(self, page, text):
        page.run("document.getElementById('live-text').focus()")
        for character in text:
            page.type(character)


class Live(LivePage):
    def weights(self, page):
        """The weights of every head, by layer and head."""
        return page.run("blocks.map((block) => Array.from(block.step('weights').values))")

    def expected(self, text):
        """The weights that the command computes."""
        steps = []
        for layer in range(1, 5):
            heads = []
            for head in range(1, 4):
                told = library.json.loads(library.attn(self.folder, "show", "--model", MODEL, "--text", text, "--layer", layer, "--head", head, "--json"))
                heads += [x for row in told["values"] for x in row]
            steps.append(heads)
        return steps

    def compare(self, page, text):
        for found, wanted in zip(self.weights(page), self.expected(text)):
            self.assertEqual(len(found), len(wanted))
            for a, b in zip(found, wanted):
                self.near(a, b, 1e-5)

    def test_what_is_typed_is_read(self):
        page = self.live()
        self.assertEqual(page.run("document.getElementById('live-text').value"), TEXT)
        page.run("document.getElementById('live-text').setSelectionRange(99, 99)")
        self.type(page, " it.")
        self.settled(page)
        self.assertEqual(page.run("document.getElementById('live-text').value"), TEXT + " it.")
        self.assertEqual(page.run("report.tokens.join('')"), TEXT + " it.")
        self.assertEqual(page.text("h1"), TEXT + " it.")
        self.compare(page, TEXT + " it.")
        self.wait(page, "report.health.length > 3")  # behind the answer
        for panel in ("space", "checks"):
            self.assertTrue(page.run(f"document.getElementById('{panel}') !== null"), panel)
        page.run("select({ block: 3 })")
        self.wait(page, "blocks[3].space !== undefined")
        self.assertEqual(page.run("blocks.map((block) => block.space !== undefined)"), [page.run("report.start.layer") == 0, False, False, True])
        self.assertGreater(page.run("document.querySelectorAll('#space circle, #space .word').length"), 0)
        self.assertTrue(page.run("report.health.every(({ holds }) => holds)"))

    def test_the_map_is_two_presses_of_tab_and_enter_away_and_the_page_4000_pixels_tall(self):
        page = self.live(width=1400)
        page.send("Page.bringToFront")
        page.key("Tab"), page.key("Tab")
        self.assertEqual(page.run("document.activeElement.id"), "skip")
        left, top, right, bottom = page.run("((b) => [b.left, b.top, b.right, b.bottom])(document.activeElement.getBoundingClientRect())")
        self.assertTrue(right - left > 50 and bottom - top > 10, "it is seen where the focus is")
        page.key("Enter")
        self.assertTrue(page.run("document.activeElement.closest('#overview') !== null"))
        for place in ("strip", "stage-matrix"):
            page.key("Tab")
            self.assertTrue(page.run(f"document.activeElement.closest('#{place}') !== null"), place)
        self.assertLessEqual(page.run("below.drawn.then(() => document.documentElement.scrollHeight)"), 4000)

    def test_what_is_seen_first_is_drawn_first(self):
        page = self.live()
        page.click("#heads summary")
        seen = ("new Promise((done) => { const was = answerHeard; answerHeard = (data) => { const old = document.getElementById('heads'), first = document.getElementById('overview');"
                " was(data); answerHeard = was; const cards = () => document.querySelectorAll('#heads-grid button').length;"
                " requestAnimationFrame(() => { const now = document.getElementById('heads') === old && document.getElementById('overview') !== first;"
                " setTimeout(() => below.drawn.then(() => done([now, document.getElementById('heads') === old, cards()]))); }); }; typed('You may not'); })")
        self.assertEqual(page.run(seen), [True, False, 12])
        # What is printed is whole, whether a frame came or not.
        self.assertTrue(page.run("(drawPanels(), select({ head: 1 }), window.dispatchEvent(new Event('beforeprint')), document.querySelector('#heads-grid .on').dataset.head === '1')"))

    def test_the_rest_of_an_answer_comes_though_the_next_text_is_refused(self):
        page = self.live()
        page.run("const was = live.worker.onmessage; let asked = false; live.worker.onmessage = (event) => { was(event); if (event.data.blocks && !asked) {"
                 " asked = true; ask({ text: 'a' + String.fromCharCode(0) }, 'typed'); } }; typed('You may not'); 0")
        self.wait(page, "document.getElementById('live-said').textContent.includes('U+0000')")
        self.wait(page, "report.health.length > 3 && blocks[state.block].space !== undefined")
        self.assertEqual(page.text("h1"), "You may not")

    def test_two_hundred_keys_and_none_is_dropped(self):
        page = self.live()
        page.run("document.getElementById('live-text').value = ''; document.getElementById('live-text').focus()")
        page.run("live.times = []; const was = live.worker.onmessage; const begun = new Map(); const post = live.worker.postMessage.bind(live.worker); "
                 "live.worker.postMessage = (m) => { begun.set(m.number, performance.now()); post(m); }; "
                 "live.worker.onmessage = (e) => { was(e); if (e.data.blocks) live.times.push(performance.now() - begun.get(e.data.number)); }; 0")
        written = ("the quick brown fox. " * 10)[:200]
        for character in written:
            page.type(character)
            time.sleep(0.05)
        self.settled(page)
        self.assertEqual(page.run("document.getElementById('live-text').value"), written)
        self.assertEqual(page.run("report.tokens.join('')"), written[-32:])  # the model's context
        times = sorted(page.run("live.times"))
        print(f"\nanswers: {len(times)}, median {times[len(times) // 2]:.0f} ms, 95th percentile {times[len(times) * 95 // 100]:.0f} ms", end="")

    def test_the_model_goes_on(self):
        page = self.live()
        page.set("#temperature", "0")
        self.settled(page)
        wanted = library.attn(self.folder, "generate", "--model", MODEL, "--prompt", TEXT, "--tokens", 6, "--temperature", 0)
        for _ in range(6):
            page.click("#live-one")
            self.settled(page)
        self.assertEqual(page.run("document.getElementById('live-text').value").strip(), wanted.strip())
        before = page.run("live.ids.length")
        page.set("#temperature", "1")
        self.settled(page)
        page.click("#live-next button:nth-child(2)")
        self.settled(page)
        self.assertEqual(page.run("live.ids.length"), before + 1)
        self.assertEqual(page.run("[...document.querySelectorAll('#live-next button')].indexOf(document.activeElement)"), 1)

    def test_a_long_pass_waits_for_the_pause(self):
        page = self.live()
        page.set("#temperature", "0")
        self.settled(page)
        page.run("live.mostAtOnce = 0")  # as if each pass took long
        page.click("#live-on")
        self.wait(page, "live.ids.length >= 20")
        self.assertEqual(page.run("report.tokens.length"), len(TEXT))
        self.assertRegex(page.text("#live-said"), "when the text pauses")
        page.click("#live-on")
        self.wait(page, f"!live.going && !live.ahead && {ANSWERED} === live.asked")
        text = page.run("document.getElementById('live-text').value")
        self.assertEqual(page.run("report.tokens.join('')"), text[-32:])  # the model's context
        self.assertRegex(page.text("#live-loss"), r"^loss \d")
        wanted = library.attn(self.folder, "generate", "--model", MODEL, "--prompt", TEXT, "--tokens", min(len(text), 32) - len(TEXT), "--temperature", 0)
        self.assertEqual(text[:32].strip(), wanted.strip())

    def test_edits_and_back(self):
        page = self.live()
        self.type(page, ".")
        self.settled(page)
        before = self.weights(page)
        page.run("select({ block: 0, head: 1, step: 'scores', query: 5, key: 2 })")
        page.set("#edit-value", "7.5")
        page.click("#edit-set")
        self.settled(page)
        self.assertEqual(page.run("currentStep().at(1, 5, 2)"), 7.5)
        self.assertNotEqual(self.weights(page), before)
        page.click("#edit-head")
        self.settled(page)
        self.assertEqual(page.run("Math.max(...currentBlock().step('context').matrix(1).values.map(Math.abs))"), 0)
        page.click("#edit-none")
        self.settled(page)
        self.assertEqual(self.weights(page), before)
        page.set("#edit-value", "many")
        page.click("#edit-set")
        self.assertIn("number is needed", page.text("#live-said"))

    def test_a_mistake_is_told_and_the_page_goes_on(self):
        page = self.live()
        page.run("document.getElementById('live-text').value = ''; typed('')")
        self.wait(page, "document.getElementById('live-said').textContent !== ''")
        self.assertRegex(page.text("#live-said"), "expected a text of at least one token")
        self.type(page, "You")
        self.settled(page)
        self.assertEqual(page.run("report.tokens.join('')"), "You")

    def test_without_webassembly_the_recorded_pass_is_shown(self):
        path = self.folder / "refused.html"
        library.attn(self.folder, "report", "--live", "--model", MODEL, "--text", TEXT, "--output", path)
        path.write_text(path.read_text().replace(" 'wasm-unsafe-eval'", ""))
        page = self.browser.page(f"file://{path}")
        self.wait(page, "document.getElementById('live-said').textContent !== ''")
        self.assertIn("This page shows the recorded pass", page.text("#live-said"))
        self.assertEqual(page.run("report.tokens.join('')"), TEXT)
        page.close()
