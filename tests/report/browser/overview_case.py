"""The map of all heads of a model: each named by what it does, and chosen by mouse and by keyboard."""

import pathlib
import re

import library
from report_case import ReportTest

MODEL = pathlib.Path(__file__).resolve().parents[3] / "examples/data/licences.safetensors"
NAMES = {"previous": "previous token", "same": "same token", "induction": "induction", "first": "first token"}
CELLS = "[...document.querySelectorAll('#overview td button')]"


class Overview(ReportTest):
    def licences(self, **options):
        return self.open("--model", MODEL, "--text", "You may copy the Program.", **options)

    def test_each_head_has_the_name_of_its_largest_score(self):
        page = self.licences()
        kinds = page.run("blocks.map((block) => block.kinds)")
        found = page.run(f"{CELLS}.map((b) => [Number(b.dataset.block), Number(b.dataset.head), b.dataset.kind ?? null, b.title, b.ariaLabel])")
        self.assertEqual(len(found), sum(len(block) for block in kinds))
        for block, head, kind, title, label in found:
            scores = kinds[block][head]
            self.assertEqual(set(scores), set(NAMES))
            self.assertTrue(all(0 <= score <= 1 for score in scores.values()) and sum(scores.values()) <= 1 + 1e-6, scores)
            most = max(scores, key=scores.get)
            named = scores[most] >= 0.4
            self.assertEqual(kind, most if named else None)
            self.assertEqual(title, label)
            self.assertIn(f"layer {block + 1}, head {head + 1}: " + (NAMES[most] if named else "no name"), title)
            self.near(library.number(next(filter(re.compile(r"\d.*").match, title.split(": ", 1)[1].split()))), scores[most], 5.1e-3, title)
        for kind, name in NAMES.items():
            self.assertIn(f"{name} ({sum(one[2] == kind for one in found)})", page.text("#overview .kinds"))

    def expect_shown(self, page, block, head):
        """The cell is marked, its scores are told, and the selection and the weights' panel show this head."""
        self.assertEqual(page.run("[state.block, state.head]"), [block, head])
        self.assertEqual(page.run(f"{CELLS}.filter((b) => b.classList.contains('on')).map((b) => [b.dataset.block, b.dataset.head])"),
                         [[str(block), str(head)]])
        self.assertIn(f"Layer {block + 1}, head {head + 1}: ", page.text("#overview .told"))
        for kind, name in NAMES.items():
            score = page.run(f"blocks[{block}].kinds[{head}].{kind}")
            told = page.text("#overview .told").split(f"{name} ")[1].split(",")[0].rstrip(".")
            self.near(library.number(told), score, 5.1e-3, name)
        self.assertEqual(page.run("document.querySelector('[name=head]').value"), str(head))
        self.assertIn(f"head={head + 1}", page.run("location.hash"))

    def test_a_head_is_chosen_by_mouse_and_by_keyboard(self):
        page = self.licences()
        heads = page.run(f"{CELLS}.map((b) => [Number(b.dataset.block), Number(b.dataset.head)])")
        block, head = heads[-1]
        page.click(f"#overview button[data-block='{block}'][data-head='{head}']")
        self.expect_shown(page, block, head)
        block, head = heads[1]
        page.run(f"document.querySelector(\"#overview button[data-block='{block}'][data-head='{head}']\").focus()")
        page.key("Enter")
        self.expect_shown(page, block, head)

    def test_the_map_fits_a_telephone(self):
        page = self.licences(width=390)
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390)
        left, right = page.run("((b) => [b.left, b.right])(document.querySelector('#overview [role=grid]').getBoundingClientRect())")
        self.assertGreaterEqual(left, 0)
        self.assertLessEqual(right, 390)
