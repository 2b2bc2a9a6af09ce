#!/usr/bin/env python3
"""Tests of bench/compare.py and bench/page.py: what they tell of samples, and what they start rivals with. Needs no rival.

    tests/bench/run.py [-k NAME]
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import compare  # noqa: E402
import figures  # noqa: E402
import page  # noqa: E402
import units  # noqa: E402

QUIET = [1.0, 1.1, 0.9, 1.0, 1.0], [2.1, 2.2, 1.8, 2.1, 1.9]  # ratios 2.1, 2, 2, 2.1 and 1.9
NOISY = [1.0, 1.2, 0.8, 1.1, 0.9], [1.1, 1.0, 1.2, 1.0, 1.1]

# In place of bench/rounds.py: tells what it was started with.
SHOW = """import json, os, sys
print(json.dumps({"job": json.load(sys.stdin), "environment": dict(os.environ), "cores": sorted(os.sched_getaffinity(0))}))
"""


class Figures(unittest.TestCase):
    def test_the_spread_leaves_out_a_quarter_at_both_ends(self):
        self.assertEqual(figures.spread([3, 1, 2]), (1, 3))
        self.assertEqual(figures.spread([9, 1, 2, 3, 4]), (2, 4))
        self.assertEqual(figures.spread([0, 0, 1, 2, 3, 4, 9, 9]), (1, 4))

    def test_a_ratio_is_of_the_rounds_own_ratios(self):
        # Both sides are slower in the second and third round: the rounds' ratios do not see it.
        self.assertEqual(figures.ratio([1, 5, 9], [2, 10, 18]), (2, 2, 2))

    def test_a_spread_as_wide_as_the_distance_from_1_is_told_and_a_wider_one_not(self):
        ours = [1, 1, 1]
        self.assertEqual(figures.ratio(ours, [1.5, 2, 2.5]), (2, 1.5, 2.5))
        self.assertIsNone(figures.ratio(ours, [1.5, 2, 2.51]))
        self.assertEqual(figures.ratio(ours, [0.5, 0.5, 0.75]), (0.5, 0.5, 0.75))  # slower counts alike
        self.assertIsNone(figures.ratio(ours, [0.75, 0.75, 1.25]))
        self.assertIsNone(figures.ratio(ours, [1, 1, 1.01]))

    def test_two_rounds_tell_no_ratio(self):
        self.assertIsNone(figures.ratio([1, 1], [2, 2]))

    def test_rounds_that_are_missing_are_an_error(self):
        with self.assertRaises(ValueError):
            figures.ratio([1, 1, 1], [2, 2])


class Start(unittest.TestCase):
    def started(self, unit, threads=1, pages="kept", job=None):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write(SHOW)
            program.flush()
            return compare.measured((job or {}) | {"unit": unit, "threads": threads}, pages, program.name)

    def test_every_rival_is_held_to_the_unit_before_it_starts(self):
        wanted = {"avx2": ("avx2", "AVX2", "AVX2"), "avx512": ("avx512", "AVX512_CORE", "AVX512"),
                  "avx512bf16": ("avx512", "AVX512_CORE_BF16", "AVX512_E2"), "amx": ("avx512", "AVX512_CORE_AMX", "AVX512_E4")}
        self.assertEqual(set(units.UNITS), set(wanted))
        for unit, (aten, onednn, mkl) in wanted.items():
            found = self.started(unit)["environment"]
            self.assertEqual((found["ATEN_CPU_CAPABILITY"], found["ONEDNN_MAX_CPU_ISA"], found["MKL_ENABLE_INSTRUCTIONS"]),
                             (aten, onednn, mkl))
            self.assertEqual(found["ATTN_FORCE_ISA"], unit)

    def test_without_a_unit_nothing_is_limited_by_whoever_calls(self):
        with mock.patch.dict(os.environ, {"ATEN_CPU_CAPABILITY": "default", "ATTN_FORCE_ISA": "scalar"}):
            found = self.started(None)["environment"]
        for name in (*units.NAMES, "ATTN_FORCE_ISA"):
            self.assertNotIn(name, found)

    def test_it_is_bound_to_as_many_cores_as_it_has_threads(self):
        for threads in range(1, len(os.sched_getaffinity(0)) + 1):
            found = self.started(None, threads)
            self.assertEqual(len(found["cores"]), threads)
            self.assertEqual(set(found["cores"]), units.cores(threads))
            self.assertEqual(found["environment"]["OMP_NUM_THREADS"], str(threads))

    def test_one_thread_of_each_core_comes_first(self):
        with mock.patch.object(units, "siblings", lambda core: str(core % 3)):
            self.assertEqual(units.cores(3, [0, 1, 2, 3, 4, 5]), {0, 1, 2})
            self.assertEqual(units.cores(2, [0, 3, 4]), {0, 4})

    def test_pages_are_kept_unless_fresh_ones_are_asked_for(self):
        self.assertEqual(self.started(None)["environment"]["MALLOC_MMAP_MAX_"], "0")
        self.assertNotIn("MALLOC_MMAP_MAX_", self.started(None, pages="fresh")["environment"])

    def test_a_process_that_fails_ends_the_comparison(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write("raise SystemExit(3)")
            program.flush()
            with self.assertRaises(SystemExit):
                compare.measured({"unit": None, "threads": 1}, "kept", program.name)

    def test_units_are_those_of_the_machine(self):
        with mock.patch.object(compare, "has_unit", lambda attn, unit: unit != "amx"):
            self.assertEqual(compare.units_of("", "attn"), [None])
            self.assertEqual(compare.units_of("all", "attn"), ["avx2", "avx512", "avx512bf16"])
            self.assertEqual(compare.units_of("avx512,avx2", "attn"), ["avx512", "avx2"])
            for bad in ("amx", "avx2,mmx"):
                with self.assertRaises(SystemExit) as error:
                    compare.units_of(bad, "attn")
                self.assertIn("--unit: expected all, or some of avx2, avx512, avx512bf16", str(error.exception))


def part(ours, theirs, unit=None, threads=1):
    row = {"row": "forward 1,1,4,4 f32 none highest", "samples": {"attn": ours, "PyTorch SDPA": theirs}, "isa": "avx2",
           "bound": "f32", "amount": 100.0}
    return {"unit": unit, "threads": threads, "cores": [0], "limits": {"f32": 200.0, "clear": 1.5}, "rows": [row],
            "versions": {"torch": "1"}, "not_run": []}


class Options:
    pages, repeats = "kept", 5


class Told(unittest.TestCase):
    def test_the_report_tells_ratios_that_stand_out_of_the_noise_alone(self):
        told = compare.report([part(*QUIET)])
        self.assertIn("2.00× (2.00–2.10)", told)
        self.assertIn("100.0, 50% of the limit", told)
        told = compare.report([part(*NOISY)])
        self.assertIn("within noise\n", told)
        self.assertNotRegex(told, r"\d×")

    def test_a_saved_result_makes_a_page_that_refuses_what_the_report_refuses(self):
        for samples, wanted in ((QUIET, "| 1.00 ms | 50% | 2.10 ms | **2.00** (2.00–2.10) |"),
                                (NOISY, "| 1.00 ms | 50% | 1.10 ms | within noise |")):
            machine = json.loads(json.dumps(compare.result_of([part(*samples, unit="avx2")], Options)))
            self.assertEqual(machine["rows"][0]["samples"]["attn"], samples[0])
            made = page.page([machine | {"tables": {}}], [])
            self.assertIn(wanted, made)
            self.assertIn("new pages, GB/s, 1 thread | 1.5 |", made)
            self.assertNotIn("Training a GPT", made)  # was not measured

    def test_units_stand_side_by_side(self):
        units = [compare.result_of([part(*samples, unit=unit)], Options) for unit, samples in (("avx512", NOISY), ("avx2", QUIET))]
        made = "\n".join(page.units_section(units))
        self.assertIn("| row | avx2 | avx512 |", made)
        self.assertIn("| forward 1,1,4,4 f32 | 50%; **2.00** (2.00–2.10) | 50%; within noise |", made)

    def test_the_plot_leaves_out_what_noise_covers(self):
        for samples, count in ((QUIET, 1), (NOISY, 0)):
            machine = compare.result_of([part(*samples)], Options)
            with mock.patch.object(page.plot, "drawn", lambda machines, labels, ratios, title: len(labels)):
                self.assertEqual(page.picture([machine]), count)

    def test_each_unit_has_a_file(self):
        self.assertEqual(compare.place_of("a/b.json", "avx2", True), pathlib.Path("a/b-avx2.json"))
        self.assertEqual(compare.place_of("a/b.json", "avx2", False), pathlib.Path("a/b.json"))


class Lists(unittest.TestCase):
    def test_rows_have_all_columns(self):
        rows = compare.rows_of(BENCH / "linear.txt", "training 1,768,768")
        self.assertEqual(rows, ["linear-training 1,768,768 f32 none highest"])

    def test_dense_products_from_1_to_16384_rows_and_64_to_4096_columns(self):
        rows = [row.split() for row in compare.rows_of(BENCH / "linear.txt", "linear")]
        forward, training = ([r for r in rows if r[0] == op] for op in ("linear", "linear-training"))
        self.assertGreaterEqual(min(len(forward), len(training)), 20)
        for some in (forward, training):
            sizes = [[int(size) for size in row[1].split(",")] for row in some]
            counts, widths = [s[0] for s in sizes], [w for s in sizes for w in s[1:]]
            self.assertEqual((min(counts), max(counts), min(widths), max(widths)), (1, 16384, 64, 4096))

    def test_an_empty_filter_result_is_an_error(self):
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            compare.rows_of(BENCH / "linear.txt", "nothing")

    def test_a_row_with_numbers_of_a_kind_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "special.txt: expected op, shape, dtype"):
            compare.rows_of(BENCH / "special.txt", "")

    def test_a_count_that_is_none_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "expected all, or counts from 1 to"):
            compare.thread_counts("x")


if __name__ == "__main__":
    unittest.main()
