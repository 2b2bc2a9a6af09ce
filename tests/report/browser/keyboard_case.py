"""The page by keyboard alone, to a screen reader, in light and dark, printed, and with motion reduced."""

import library
from model_page_case import TEXT, attention
from overview_case import MODEL
from live_case import LivePage

HELD = "document.activeElement.closest('[data-roving]')?.closest('[id]').id ?? document.activeElement.closest('[id]')?.id ?? document.activeElement.tagName"
SETTLED = "new Promise((done) => setTimeout(() => setTimeout(done)))"  # what was asked for has been done
# Text that is seen, and its contrast with what lies behind it (WCAG 2, relative luminance).
CONTRASTS = """(() => {
  const part = (c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4), pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 200) return c; } return [255, 255, 255]; };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement, look = getComputedStyle(e);
    if (!node.data.trim() || e.closest("script, noscript, style, option, .unseen, text, title") || !e.checkVisibility() || look.fontSize === "0px") continue;
    const a = light(rgba(look.color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), large = parseFloat(look.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) found.push([node.data.trim().slice(0, 40), e.className, ratio.toFixed(2), look.color, behind(e).join()].join(" | "));
  }
  return [...new Set(found)];
})()"""


class Keyboard(LivePage):
    def licences(self, *more, **options):
        return self.open("--model", MODEL, "--text", TEXT, *more, **options)

    def stops(self, page, count):
        found = []
        for _ in range(count):
            page.key("Tab")
            found.append(page.run(HELD))
        return found

    def test_map_steps_and_heatmap_are_within_five_presses_of_tab(self):
        for page in (self.licences(width=1400), self.licences(width=390)):
            page.send("Page.bringToFront")
            stops = self.stops(page, 5)
            self.assertEqual([stop for stop in stops if stop in ("overview", "strip", "stage-matrix")], ["overview", "strip", "stage-matrix"], stops)
            for picture in ("#overview [role=grid]", "#strip", "#stage-matrix"):
                self.assertEqual(page.run(f"[...document.querySelectorAll('{picture} *, {picture}')].filter((e) => e.tabIndex === 0 && e.matches('[tabindex], button, a, input')).length"), 1, picture)
        self.assertEqual([stop for stop in self.stops(self.open("multihead", "--d-out", 4), 5) if stop in ("strip", "stage-matrix")], ["strip", "stage-matrix"])

    def to(self, page, stop):
        for _ in range(40):
            page.key("Tab")
            if page.run(HELD) == stop:
                return
        self.fail(f"no stop {stop}")

    def test_arrows_move_the_selection_and_the_focus_stays_with_it(self):
        page = self.licences("--layer", 1, "--head", 2, width=1400)
        self.to(page, "overview")
        page.key("ArrowDown"), page.key("ArrowRight")
        self.assertEqual(page.run("[state.block, state.head]"), [1, 2])
        self.assertEqual(page.run("[document.activeElement.dataset.block, document.activeElement.dataset.head]"), ["1", "2"])
        for key, wanted in (("ArrowRight", [1, 2]), ("ArrowUp", [0, 2]), ("ArrowUp", [0, 2]), ("ArrowLeft", [0, 1]), ("]", [0, 2]), ("[", [0, 1])):
            page.key(key)
            self.assertEqual(page.run("[state.block, state.head]"), wanted, key)
        page.key("Tab")
        for key, step in (("ArrowLeft", "masked"), ("ArrowUp", "scaled"), ("ArrowRight", "masked"), ("ArrowDown", "weights"), ("ArrowRight", "context")):
            page.key(key)
            self.assertEqual(page.run("[state.step, document.activeElement.dataset.step]"), [step, step])
        page.key("ArrowLeft"), page.key("Tab")
        page.run("select({ query: 5, key: 1 })")
        for key, wanted in (("ArrowDown", [6, 1]), ("ArrowRight", [6, 2]), ("ArrowUp", [5, 2]), ("ArrowLeft", [5, 1])):
            page.key(key)
            self.assertEqual(page.run("[state.query, state.key]"), wanted, key)
            self.assertEqual(page.run(HELD), "stage-matrix")
            label = page.run("document.activeElement.getAttribute('aria-label')")
            self.assertIn(f"{TEXT[wanted[0]]}, {TEXT[wanted[1]]}", label)
        six = self.open("multihead", "--d-out", 4)
        six.click("#steps .cell[data-row='3'][data-column='1']")
        six.key("ArrowUp"), six.key("ArrowRight"), six.key("]")
        self.assertEqual(six.run("[state.query, state.key, state.head]"), [2, 2, 1])
        self.assertEqual(six.run("[document.activeElement.dataset.row, document.activeElement.dataset.column, document.activeElement.getAttribute('aria-selected')]"), ["2", "2", "true"])

    def test_arrows_scroll_where_nothing_is_selected(self):
        page = self.licences(width=1400)
        before = page.run("JSON.stringify(state)")
        page.key("ArrowDown")
        self.assertTrue(page.run("new Promise((done) => { const look = () => (scrollY > 0 ? done(true) : requestAnimationFrame(look)); look(); })"))
        page.run("document.querySelector('#next').focus()")
        for key in ("ArrowUp", "ArrowLeft", "ArrowRight", "[", "]"):
            page.key(key)
        self.assertEqual(page.run("JSON.stringify(state)"), before)
        page.run("document.querySelector('#stage-matrix [tabindex=\"0\"]').focus({ preventScroll: true })")
        page.run("window.addEventListener('keydown', (event) => { window.kept = event.defaultPrevented; })")
        page.key("ArrowDown", modifiers=1)
        self.assertEqual(page.run("JSON.stringify(state)"), before)
        self.assertFalse(page.run("kept"))
        page.key("ArrowDown")  # here it moves the selection, and does not scroll as well
        self.assertNotEqual(page.run("JSON.stringify(state)"), before)
        self.assertTrue(page.run("kept"))

    def test_the_focus_outlives_a_view_that_is_built_anew(self):
        six, model = self.with_labs("multihead", "--d-out", 4, "--dropout", 0.5), self.with_labs("--model", MODEL, "--text", TEXT, width=1400)
        self.wait(model, "live.next !== undefined")
        for panel in ("#masks", "#heads"):  # they fold below a model's map
            model.click(f"{panel} summary")
            model.run(SETTLED)
        # Each place is a page, what has the focus there, and the key that changes something.
        places = [(six, "#strip .on", "ArrowRight"), (six, "#stage-matrix [tabindex='0']", "ArrowDown"), (six, "#next", "Enter"), (six, "#back", "Enter"),
                  (six, "#scale", "End"), (six, "#view", "End"), (six, "#heads-scale", "Home"), (six, "#route-all [tabindex='0']", "ArrowDown"), (six, "#dropout [tabindex='0']", "ArrowUp"),
                  (six, ".head[data-head='1']", "Enter"), (six, "[name=query]", "End"), (six, "#space svg[data-keys]", "ArrowRight"), (six, "#route-all .numbers summary", "Enter"),
                  (six, "#stage-side .export", "Enter"), (model, "#route-masked [tabindex='0']", "ArrowDown"), (model, "#heads .head:nth-child(3)", "Enter"), (model, "[name=block]", "End"), (model, "#overview .on", "ArrowLeft")]
        for page, selector, key in places:
            page.send("Page.bringToFront")
            page.run("save = () => {}")
            page.run("select({ step: 'weights', view: 'head' })")
            page.run(f"document.querySelector(\"{selector}\").focus()")
            held = page.run(HELD)
            page.key(key)
            page.run(SETTLED)
            self.assertEqual(page.run(HELD), held, selector)
            page.run("select({ query: state.query === 3 ? 2 : 3 })")  # another view anew
            page.run("select({ head: 1 })")
            self.assertEqual(page.run(HELD), held, selector)
            self.assertNotEqual(page.run("document.activeElement.tagName"), "BODY", selector)

    def tree(self, page):
        page.send("Accessibility.enable")
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    def test_the_accessibility_tree_has_names_and_roles(self):
        for page in (self.licences(width=1400), self.with_labs("multihead", "--d-out", 4)):
            nodes = [(n["role"]["value"], n.get("name", {}).get("value", ""), {p["name"]: p["value"].get("value") for p in n.get("properties", [])}) for n in self.tree(page)]
            unnamed = [role for role, name, properties in nodes if not name and (properties.get("focusable") and role not in ("RootWebArea", "generic") or role in ("img", "image", "application", "grid", "radiogroup", "table"))]
            self.assertEqual(unnamed, [])
            names = {role: [name for r, name, _ in nodes if r == role] for role in ("radiogroup", "radio", "grid", "application", "heading", "status", "navigation", "main")}
            self.assertEqual(names["radiogroup"], ["Steps"])
            self.assertEqual(sum(p.get("checked") == "true" for role, _, p in nodes if role == "radio"), 1)
            self.assertTrue(names["main"] and names["navigation"] == ["Selection"])
            if page is self.pages[0]:
                self.assertEqual(names["grid"], ["Heads: layers down, heads across"])
                self.assertTrue(any("25 rows, 25 columns; o, Y: " in name for name in names["application"]), names["application"])
                self.assertTrue(any(p.get("focusable") and role == "button" and "previous token" in name for role, name, p in nodes))
            levels = page.run("[...document.querySelectorAll('h1, h2, h3')].filter((h) => h.checkVisibility()).map((h) => Number(h.tagName[1]))")
            self.assertEqual(levels[0], 1)
            self.assertTrue(all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels)

    def test_a_choice_elsewhere_is_said(self):
        page = self.licences(width=1400)
        page.set("[name=query]", "7")
        self.assertIn("weight(", page.text("#status"))
        self.assertIn("layer 1", page.text("#status"))

    def test_behind_every_picture_stands_a_table(self):
        steps = self.six("multihead", "--d-out", 4)
        page = self.with_labs("multihead", "--d-out", 4, "--dropout", 0.5)
        page.run("document.querySelectorAll('.numbers').forEach((d) => (d.open = true))")
        page.run(SETTLED)
        # Every picture that can be saved has its numbers; what has none is itself a table.
        self.assertEqual(page.run("[...document.querySelectorAll('.exports')].filter((e) => e.querySelector('[data-export=SVG]') && !e.querySelector('.numbers table tbody td')).map((e) => e.innerText)"), [])
        rows = page.run("[...document.querySelectorAll('#steps .numbers tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))")
        for i, row in enumerate(rows):
            self.assertEqual([library.float32(float(x)) for x in row[1:]], [steps["weights"][0, i, j] for j in range(6)])
        page.set("[name=head]", "1")  # it follows, and stays open
        rows = page.run("[...document.querySelectorAll('#steps .numbers tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))")
        for i, row in enumerate(rows):
            self.assertEqual([library.float32(float(x)) for x in row[1:]], [steps["weights"][1, i, j] for j in range(6)])
        self.assertEqual(page.run("[...document.querySelectorAll('.numbers')].filter((d) => !d.open).length"), 0)
        library.save_npy(self.folder / "long.npy", attention(140, 3), (1, 140, 140))
        page = self.open("long.npy", fragment="#query=101")
        page.click("#steps .numbers summary")
        page.run(SETTLED)
        shown = page.run("[...document.querySelectorAll('#steps .numbers tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))")
        self.assertEqual(len(shown), 16)
        for query, key, weight in shown:
            self.assertEqual(query, "101")
            self.assertEqual(library.float32(float(weight)), library.float32(attention(140, 3)[100 * 140 + int(key) - 1]))

    def test_text_stands_out_from_what_lies_behind_it(self):
        for dark in (False, True):
            for page in (self.with_labs("multihead", "--d-out", 4, dark=dark), self.licences(width=1400, dark=dark)):
                page.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
                page.run(SETTLED)
                self.assertEqual(page.run(CONTRASTS), [], "dark" if dark else "light")

    def test_nothing_moves_by_itself(self):
        page = self.licences(width=1400)
        page.send("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]})
        page.key("Tab")
        self.assertEqual(page.run("document.getAnimations().length"), 0)
        self.assertEqual(page.run("[document.documentElement, ...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e); return s.transitionDuration !== '0s' || s.animationName !== 'none' || s.scrollBehavior === 'smooth'; }).length"), 0)

    def test_a_printed_page_has_its_pictures_and_no_controls(self):
        page = self.licences(width=1400, dark=True)
        page.send("Emulation.setEmulatedMedia", {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.assertEqual(page.run("['#selection', '#strip', '#play', '.exports'].map((s) => getComputedStyle(document.querySelector(s)).display)"), ["none"] * 4)
        self.assertTrue(page.run("['#overview [role=grid]', '#stage-matrix canvas', '#lines svg', '.arithmetic'].every((s) => document.querySelector(s).checkVisibility())"))
        self.assertEqual(page.run(CONTRASTS), [])
        self.assertEqual(page.run("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
