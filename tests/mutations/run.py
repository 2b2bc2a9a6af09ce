#!/usr/bin/env python3
"""Tests of scripts/mutations: which mistakes can be drawn, the copy they are made in, and what is told of their share.

    tests/mutations/run.py [-k NAME]
"""

import itertools
import pathlib
import shutil
import statistics
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

from mutations.mistakes import code_lines, draw, hidden, mistakes  # noqa: E402
from mutations.share import wilson  # noqa: E402
from mutations.tree import Mutation, Tree  # noqa: E402

CPP = [  # a kind, a line, and a mistake that the kind makes of it
    ("comparison", "if (a < b) {", "if (a <= b) {"),
    ("comparison", "return a == b;", "return a != b;"),
    ("arithmetic", "x = a + b;", "x = a - b;"),
    ("arithmetic", "x += c;", "x -= c;"),
    ("sign", "x = -y;", "x = y;"),
    ("logic", "return a && b;", "return a || b;"),
    ("term", "if (a && !b.empty()) c();", "if (a) c();"),
    ("term", "f(a + 1, b);", "f(a, b);"),
    ("condition", "if (!a) b();", "if (a) b();"),
    ("condition", "if (a) b();", "if (!(a)) b();"),
    ("condition", "x = a ? b : c;", "x = a ? c : b;"),
    ("constant", "x = 16;", "x = (16 - 1);"),
    ("constant", "x = 0;", "x = (0 + 1);"),
    ("constant", "x = 1e-5f;", "x = (1 + 2 * 1e-5f);"),
    ("constant", "f(true);", "f(false);"),
    ("bound", "x = a[i];", "x = a[i + 1];"),
    ("bound", "n = v.size();", "n = v.size() - 1;"),
    ("name", "x = std::min(a, b);", "x = std::max(a, b);"),
    ("arguments", "f(a, b);", "f(b, a);"),
    ("arguments", 'f(x, "a, b", c);', 'f("a, b", x, c);'),
    ("option", "g({.a = x, .b = y});", "g({.b = y});"),
    ("option", "f(a, b);", "f(a);"),
    ("return", "return f(a);", "return {};"),
    ("deletion", "f(a);", ";"),
    ("deletion", 'if (a < 0) fail("b");', ";"),
    ("deletion", "x.y = z;", ";"),
]
PYTHON = [
    ("logic", "x = a and b", "x = a or b"),
    ("condition", "if a is None:", "if not (a is None):"),
    ("condition", "if a is None:", "if a is not None:"),
    ("condition", "x = not a", "x = a"),
    ("constant", "x = True", "x = False"),
    ("option", "f(a, causal=causal)", "f(a)"),
    ("return", "return a", "return None"),
    ("deletion", "f(a)", "pass"),
    ("bound", "x = len(a)", "x = len(a) - 1"),
]


class Mistakes(unittest.TestCase):
    def test_each_kind_makes_what_it_says(self):
        for name, before, pairs in (("a.cpp", "{\n", CPP), ("a.py", "x = 1\n", PYTHON)):
            for kind, line, expected in pairs:
                text = before + line
                if line.endswith(":"):
                    text += "\n    pass"
                with self.subTest(kind=kind, line=line):
                    self.assertIn(expected, mistakes(name, text, 1).get(kind, []))

    def test_strings_comments_and_messages_stay_as_they_are(self):
        for name, text in (
            ("a.cpp", 'f("a < 1 && b");'), ("a.cpp", "f();  // a < 1"), ("a.cpp", 'fail(Kind::shape, "a" + b(1 < 2));'),
            ("a.cpp", "throw Error(a + 1);"), ("a.cpp", "f('<');"), ("a.py", 'f("a < 1")  # b == 2'),
            ("a.py", "raise ValueError(f'{a + 1}')")):  # fmt: skip
            with self.subTest(text=text):
                self.assertLessEqual(set(mistakes(name, text, 0)), {"deletion"})

    def test_arguments_that_may_change_places_do_not(self):
        for line, some in (("std::swap(a, b);", False), ("x = std::max(a, b);", False), ("swapped(a, b);", True)):
            self.assertEqual("arguments" in mistakes("a.cpp", "{\n" + line, 1), some, line)

    def test_a_digit_separator_begins_no_character(self):
        self.assertIn("x = 1'000 - y;  // '", mistakes("a.cpp", "x = 1'000 + y;  // '", 0)["arithmetic"])

    def test_what_is_hidden_is_as_long(self):
        for name, text in (("a.cpp", 'f(R"(a\n"b)", c); /* d\n */ g("e\\"");'), ("a.py", '"""A\nb."""\nx = f"{y} < {z}"\n')):
            self.assertEqual([len(line) for line in hidden(name, text).split("\n")],
                             [len(line) for line in text.split("\n")])  # fmt: skip

    def test_lines_without_code_or_for_other_systems_are_left_out(self):
        text = "// a\n\n#include <b>\n}\nf();\n#if defined(__aarch64__)\ng();\n#else\nh();\n#endif\n/* i\n j */\n"
        self.assertEqual(code_lines("a.cpp", text), [4, 8])
        text = '"""A\nb."""\nif TYPE_CHECKING:\n    c()\nd()  # e\n'
        self.assertEqual(code_lines("a.py", text), [4])

    def test_no_declaration_and_no_part_of_a_statement_is_left_out(self):
        for text in ("int a;", "const int a = b;", "f(a,", "return a;"):
            self.assertNotIn("deletion", mistakes("a.cpp", "{\n" + text, 1))
        self.assertNotIn("deletion", mistakes("a.cpp", "x = f(a,\n  b);\ng +\nh(c);", 3))

    def test_a_seed_draws_the_same_mistakes_from_all_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("src/a.cpp", "tools/b.cpp", "python/c.py"):
                (root / name).parent.mkdir()
                (root / name).write_text("".join(f"x = {i} + a\n" for i in range(40)))
            first, again, other = (
                list(itertools.islice(draw(root, ["src", "tools", "python"], seed), 60)) for seed in (1, 1, 2))
            self.assertEqual(first, again)
            self.assertNotEqual(first, other)
            self.assertEqual(len(set(first)), 60)
            for name in ("src/a.cpp", "tools/b.cpp", "python/c.py"):
                self.assertGreater(sum(file == name for file, *_ in first), 8)

    def test_a_mistake_is_made_in_its_line_alone(self):
        m = Mutation("a.cpp", [], "a.cpp:2", "f();", ";", line=1)
        self.assertEqual(m.broken("f();\nf();\nf();"), "f();\n;\nf();")
        self.assertEqual(m.fits("f();\nf();"), "")
        self.assertNotEqual(m.fits("f();\ng();"), "")


class Copy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        for base, text in ((root, "tree"), (root / "build/mutate/source", "copy")):
            for name in ("src/a", "build/default/build.ninja"):
                (base / name).parent.mkdir(parents=True, exist_ok=True)
                (base / name).write_text(text)
        self.tree = Tree(root, root / "build/mutate", None, 1)

    def test_what_runs_sees_the_copy_in_its_place(self):
        for name in ("src/a", "build/default/build.ninja"):
            self.assertEqual(self.tree.inside(["cat", str(self.tree.place / name)]), (True, "copy"))
        self.assertEqual(self.tree.inside(["cat", "a"], "src"), (True, "copy"))
        self.assertEqual((self.tree.root / "src/a").read_text(), "tree")

    @unittest.skipUnless(shutil.which("ninja"), "needs ninja")
    def test_objects_are_put_back_and_what_was_linked_with_them_is_removed(self):
        rule = "rule copy\n  command = cp $in $out\nbuild a.o: copy a\nbuild a.a: copy a.o\nbuild b.a: copy b.o\n"
        build = self.tree.build
        (build / "build.ninja").write_text(rule)
        for name in ("a.o", "a.a", "b.a"):
            (build / name).write_text("right")
        before = (build / "a.o").stat().st_mtime_ns
        self.tree.keep(["a.o"])
        for name in ("a.o", "a.a"):
            (build / name).write_text("wrong")
        self.tree.put_back()
        self.assertEqual((build / "a.o").read_text(), "right")
        self.assertEqual((build / "a.o").stat().st_mtime_ns, before)
        self.assertFalse((build / "a.a").exists())
        self.assertTrue((build / "b.a").exists())


class Share(unittest.TestCase):
    def test_the_interval_is_wilsons(self):
        # Its ends are the shares from which what was seen lies 1.96 standard deviations away.
        z = statistics.NormalDist().inv_cdf(0.975)
        for hits, trials in ((0, 10), (54, 60), (212, 219), (300, 300)):
            low, high = wilson(hits, trials)
            for end in (low, high):
                self.assertAlmostEqual((hits / trials - end) ** 2, z * z * end * (1 - end) / trials, 6)
            self.assertLess(low, high)
            self.assertTrue(low <= hits / trials <= high)


if __name__ == "__main__":
    unittest.main()
