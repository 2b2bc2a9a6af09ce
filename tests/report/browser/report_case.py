"""What the report's browser tests share: a browser, a folder, reports opened in it, and numbers read back."""

import math
import pathlib
import shutil
import tempfile
import unittest

import chromium
import library

BROWSER = chromium.find()
WORDS = ["Your", "journey", "starts", "with", "one", "step"]
ROWS = ["0.43,0.15,0.89", "0.55,0.87,0.66", "0.57,0.85,0.64", "0.22,0.58,0.33", "0.77,0.25,0.10", "0.05,0.80,0.55"]


class ReportTest(unittest.TestCase):
    @staticmethod
    def start():
        return chromium.Chromium(BROWSER)

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="attn-report-"))
        cls.browser = cls.start().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.pages = []

    def tearDown(self):
        for page in self.pages:
            self.assertEqual(page.complaints(), [])
            page.close()

    def open(self, *arguments, fragment="", **options):
        """Writes a report by `attn report ARGUMENTS` and opens it."""
        path = self.folder / f"{self.id().split('.')[-1]}-{len(self.pages)}.html"
        library.attn(self.folder, "report", *arguments, "--output", path)
        self.pages.append(self.browser.page(f"file://{path}{fragment}", **options))
        return self.pages[-1]

    def near(self, found, wanted, tolerance=1e-6, message=""):
        if math.isnan(wanted) or math.isinf(wanted):
            self.assertEqual(str(found), str(wanted), message)
        else:
            self.assertLessEqual(abs(found - wanted), tolerance * max(1, abs(wanted)), f"{message}: {found} for {wanted}")

    def cells(self, page, host="#steps .stage-matrix"):
        """{(row, column): number} of the table shown, by the digits in each cell's title."""
        found = page.run(f"[...document.querySelectorAll('{host} .cell')].map((c) => [c.dataset.row, c.dataset.column, c.dataset.value, c.innerText])")
        return {(int(row), int(column)): (library.number(value), text) for row, column, value, text in found}

    def six(self, *arguments):
        """The steps of a module on the six words, by attn run."""
        (self.folder / "x.csv").write_text("\n".join(ROWS) + "\n")
        library.attn(self.folder, "run", arguments[0], "--input", "x.csv", *arguments[1:], "--save-steps", "steps.safetensors")
        return library.steps(self.folder / "steps.safetensors")
