"""Heads, lines, space, exports: drawn from the library's numbers."""

import json
import math
import xml.etree.ElementTree as xml

import library
from report_case import WORDS, ReportTest

SAVED = """(window.saved = [], window.save = async (name, blob) => window.saved.push(
    [name, blob.type, Array.from(new Uint8Array(await blob.arrayBuffer()))]), undefined)"""


class Figures(ReportTest):
    ARGUMENTS = ("multihead", "--d-out", 4)

    def test_the_heads_scores(self):
        w = self.six(*self.ARGUMENTS)["weights"]
        page = self.open(*self.ARGUMENTS)
        found = page.run("[...document.querySelectorAll('#heads .head')].map((card) => [...card.querySelectorAll('[data-score]')].map((c) => Number(c.title)))")
        for head, shown in enumerate(found):
            pairs = [(i, j, w[head, i, j]) for i in range(6) for j in range(6) if w[head, i, j] > 0]
            wanted = [sum(-x * math.log(x) for _, _, x in pairs), sum(x * abs(i - j) for i, j, x in pairs),
                      sum(x for _, j, x in pairs if j == 0), sum(x for i, j, x in pairs if j == i - 1) * 6 / 5, sum(x for i, j, x in pairs if i == j)]
            self.assertEqual(len(shown), len(wanted))
            for a, b in zip(shown, wanted):
                self.near(a, b / 6, 1e-9)
        page.click(".head[data-head='1']")
        self.assertIn("head=2", page.run("location.hash"))

    def test_the_lines_between_words(self):
        w = self.six(*self.ARGUMENTS)["weights"]
        page = self.open(*self.ARGUMENTS, fragment="#head=2&query=4")
        lines = page.run("[...document.querySelectorAll('#lines line')].map((l) => [l.dataset.query, l.dataset.key, l.getAttribute('stroke-width')])")
        self.assertEqual({(int(q), int(k)) for q, k, _ in lines}, {(i, j) for i in range(6) for j in range(i + 1)})
        for q, k, width in lines:
            self.near(float(width), 0.4 + 7 * w[1, int(q), int(k)], 0.006)
        page.run("document.querySelector('#lines .line-word').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
        self.assertIn("query=1", page.run("location.hash"))

    def test_figures_of_a_dark_page_are_saved_on_white(self):
        page = self.open(*self.ARGUMENTS, dark=True)
        dark = page.run("getComputedStyle(document.body).backgroundColor")
        page.run(SAVED)
        for panel in ("lines", "space", "steps"):
            page.click(f"#{panel} [data-export=SVG]")
        page.run("new Promise((done) => setTimeout(done, 100))")
        saved = [bytes(data).decode() for _, _, data in page.run("window.saved")]
        self.assertEqual(len(saved), 3)
        for svg in saved:
            ground = next(e for e in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect") if e.get("width") == "100%")
            self.assertEqual(ground.get("fill"), "#fff")
            self.assertNotIn("rgb(230, 232, 234)", svg)  # the dark page's ink
        self.assertEqual(page.run("getComputedStyle(document.body).backgroundColor"), dark)

    def test_files_of_several_layers_are_named_by_theirs(self):
        values = [0.25] * (2 * 2 * 4 * 4)
        library.save_npy(self.folder / "layers.npy", values, (2, 2, 4, 4))
        page = self.open("layers.npy", fragment="#layer=2&head=2&query=1&key=1")
        page.run(SAVED)
        for panel in ("steps", "lines"):
            page.click(f"#{panel} [data-export=SVG]")
        page.run("new Promise((done) => setTimeout(done, 100))")
        self.assertEqual(page.run("window.saved.map(([name]) => name)"), ["weights-layer-2-head-2.svg", "lines-layer-2-head-2.svg"])
        self.assertIn("layer 2, head 2", page.text("#stage-title"))
        weights = [1, 0, 0.5, 0.5], (1, 2, 2)  # one head
        library.save_safetensors(self.folder / "some.safetensors", {f"layers.{layer}.weights": weights for layer in (1, 4)})
        page = self.open("some.safetensors", fragment="#layer=5")
        self.assertIn("layer 5", page.text("#stage-title"))
        self.assertEqual(page.run("[...document.querySelectorAll('.head-name')].map((name) => name.innerText)"),
                         [f"layer {layer}, head {head}" for layer, head in ((2, 1), (5, 1))])
        self.assertEqual(page.run("[...document.querySelectorAll('[name=block] option')].map((option) => option.innerText)"), ["2", "5"])

    def test_the_space_turns_and_words_go_to_their_contexts(self):
        steps = self.six("simple")
        page = self.open("simple")
        before = page.attribute("#space .space-figures", "data-yaw")
        page.drag("#space figure", 60, 20)
        self.near(float(page.attribute("#space .space-figures", "data-yaw")), float(before) + 0.6, 1e-3)
        page.run("document.querySelector('#space svg').focus()")
        page.key("ArrowRight")
        self.near(float(page.attribute("#space .space-figures", "data-yaw")), float(before) + 0.7, 1e-3)
        page.set("#moved", "0.25")
        yaw, pitch = (float(page.attribute("#space .space-figures", f"data-{angle}")) for angle in ("yaw", "pitch"))
        unit = float(page.attribute("#space svg", "data-unit"))
        centre = [float(x) for x in page.attribute("#space svg", "data-centre").split()]
        self.assertGreater(unit, 150)
        circles = page.run("[...document.querySelectorAll('#space .vector')].map((g) => [...g.querySelectorAll('circle')].map((c) => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))]))")
        for i, (dot, ring) in enumerate(circles):
            for at, share in ((dot, 0.25), (ring, 1)):
                x, y, z = ((1 - share) * steps["inputs"][i, axis] + share * steps["context"][i, axis] - centre[axis] for axis in range(3))
                side, near = math.cos(yaw) * x + math.sin(yaw) * y, math.sin(yaw) * x - math.cos(yaw) * y
                self.near(at[0], 280 + unit * side, 1e-2)
                self.near(at[1], 220 - unit * (math.cos(pitch) * z - math.sin(pitch) * near), 1e-2)
        self.assertIn("drawn as they are", page.text("#space"))
        self.assertEqual(page.run("document.querySelectorAll('#space .stem').length"), 12)
        page.set("#arrows", False)
        self.assertEqual(page.run("[document.querySelectorAll('#space .stem').length, document.querySelectorAll('#space circle').length]"), [0, 12])

    def test_more_dimensions_are_drawn_by_principal_components(self):
        values = [math.sin(1.7 * i * i + i) for i in range(9 * 7)]
        library.save_npy(self.folder / "wide.npy", values, (9, 7))
        page = self.open("simple", "--input", "wide.npy")
        self.assertRegex(page.text("#space"), r"7 numbers, drawn by their first three principal components, which explain \d+\.\d %, \d+\.\d %, \d+\.\d %")

    def test_contexts_of_two_numbers_have_two_axes_of_their_own(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS)
        self.assertEqual(page.run("[...document.querySelectorAll('#space figure')].map((f) => [f.dataset.of, f.querySelectorAll('.axis').length, f.querySelectorAll('circle').length])"),
                         [["words", 3, 6], ["contexts", 2, 6]])
        self.assertTrue(page.run("document.querySelector('#moved').closest('label').hidden"))
        unit = float(page.attribute("#space .flat", "data-unit"))
        centre = [float(x) for x in page.attribute("#space .flat", "data-centre").split()]
        rings = page.run("[...document.querySelectorAll('#space .flat circle')].map((c) => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))])")
        for i, (x, y) in enumerate(rings):
            self.near(x, 280 + unit * (steps["context"][0, i, 0] - centre[0]), 1e-2)
            self.near(y, 220 - unit * (steps["context"][0, i, 1] - centre[1]), 1e-2)
        page.set("#space-what", "output")
        self.assertEqual(page.run("[...document.querySelectorAll('#space svg')].map((s) => s.querySelectorAll('.axis').length)"), [3, 3])

    def test_labels_of_vectors_do_not_lie_on_one_another(self):
        library.save_npy(self.folder / "near.npy", [math.sin(i % 3) + 0.02 * math.sin(7.1 * i) for i in range(24 * 3)], (24, 3))
        (self.folder / "words.txt").write_text("\n".join(f"word-{i}" for i in range(24)) + "\n")
        for page in (self.open(*self.ARGUMENTS), self.open("simple"), self.open("simple", "--input", "near.npy", "--tokens", "words.txt", fragment="#query=24")):
            for svg in range(page.run("document.querySelectorAll('#space svg').length")):
                boxes = page.run(f"[...document.querySelectorAll('#space svg')[{svg}].querySelectorAll('.word')].map((t) => {{ const b = t.getBBox(); return [t.textContent, b.x, b.y, b.x + b.width, b.y + b.height]; }})")
                for i, (name, *a) in enumerate(boxes):
                    self.assertTrue(0 <= a[0] and a[2] <= 560 and 0 <= a[1] and a[3] <= 440, name)
                    for other, *b in boxes[i + 1:]:
                        across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
                        self.assertFalse(across > 1 and down > 3, (name, other))  # boxes are taller than their letters
        self.assertEqual(page.run("document.querySelector('#space .word.on').textContent"), "word-23")

    def test_export_buttons_have_their_figures_name(self):
        page = self.open(*self.ARGUMENTS)
        names = page.run("[...document.querySelectorAll('[data-export]')].map((b) => b.getAttribute('aria-label'))")
        self.assertEqual(len(names), len(set(names)), "two buttons of one name")
        self.assertIn("Save “weights, head 1” as PNG", names)
        self.assertIn("Who looks at whom, head 1", page.text("#lines .exports"))
        page.set("[name=head]", "1")
        page.click("[data-step=scores]")
        self.assertIn("scores, head 2", page.text("#steps .exports"))
        self.assertIn("Who looks at whom, head 2", page.text("#lines .exports"))

    def test_exports(self):
        steps = self.six(*self.ARGUMENTS)
        page = self.open(*self.ARGUMENTS, fragment="#head=2")
        page.run(SAVED)
        for button in page.run("[...document.querySelectorAll('[data-export]')].map((b, i) => (b.id = `export-${i}`))"):
            page.run(f"document.getElementById('{button}').click()")
        page.run("new Promise((done) => setTimeout(done, 700))")
        saved = page.run("window.saved")
        self.assertEqual(len(saved), page.run("document.querySelectorAll('[data-export]').length"))
        for name, kind, content in saved:
            data = bytes(content)
            if name.endswith(".svg"):
                self.assertEqual(xml.fromstring(data).tag, "{http://www.w3.org/2000/svg}svg", name)
            elif name.endswith(".png"):
                self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n", name)
            else:
                self.assertEqual(kind, "text/csv", name)
        for name, _, content in saved:
            if name in ("softmax.csv", "leak.csv", "heads.csv", "arithmetic.csv", "space.csv"):
                cells = [cell for line in bytes(content).decode().split("\r\n")[1:-1] for cell in line.split(",")[2 if name == "leak.csv" else 1 :]]
                self.assertTrue(cells and all(math.isfinite(float(cell)) or cell == "-inf" for cell in cells), name)
        rows = [line.split(",") for line in next(bytes(c) for n, _, c in saved if n == "weights-head-2.csv").decode().split("\r\n")]
        self.assertEqual(rows[0], ["", *WORDS])
        for i in range(6):
            self.assertEqual([library.float32(float(x)) for x in rows[i + 1][1:]], [steps["weights"][1, i, j] for j in range(6)])

    def test_the_snippets_name_the_module(self):
        page = self.open(*self.ARGUMENTS)
        self.assertIn("torch.manual_seed(123)", page.text("#snippet-torch"))
        self.assertIn("attn::MultiHeadAttention module({.d_in = 3, .d_out = 4, .num_heads = 2}, rng);", page.text("#snippet-cpp"))
        library.attn(self.folder, "run", "self-v1", "--seed", 5, "--save-weights", "w.safetensors", "--output", "z.npy")
        page = self.open("self-v1", "--weights", "w.safetensors")
        self.assertNotIn("manual_seed", page.text("#snippet-torch"))
        library.save_npy(self.folder / "long.npy", [math.sin(i) for i in range(200 * 4)], (200, 4))
        page = self.open("multihead", "--input", "long.npy", "--d-out", 8)
        self.assertIn('x = torch.from_numpy(numpy.load("x.npy"))', page.text("#snippet-torch"))
        self.assertIn("/ 4 ** 0.5", page.text("#snippet-torch"))
        self.assertIn('attn::io::load_tensor("x.npy")', page.text("#snippet-cpp"))
