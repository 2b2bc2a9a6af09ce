"""Medians with their spread, ratios that noise does not cover, and times as text. compare.py and page.py share these."""

import statistics

LEAST_ROUNDS = 3  # of fewer, nobody knows the spread


def spread(samples):
    """The least and the most, without the lowest and the highest quarter of the samples (rounded down)."""
    cut = len(samples) // 4
    kept = sorted(samples)[cut:len(samples) - cut]
    return kept[0], kept[-1]


def ratio(ours, theirs):
    """(median, least, most) of the rounds' own ratios; None where noise may be all that they tell.

    That is where fewer than three rounds were run, or where the spread is wider than the ratio's distance from 1.
    """
    ratios = [t / o for o, t in zip(ours, theirs, strict=True)]
    if len(ratios) < LEAST_ROUNDS:
        return None
    middle, (least, most) = statistics.median(ratios), spread(ratios)
    return None if most - least > abs(middle - 1) else (middle, least, most)


def ratio_text(ours, theirs, form="{:.2f}× ({:.2f}–{:.2f})"):
    found = ratio(ours, theirs)
    return form.format(*found) if found else "within noise"


def number_text(value):
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def time_text(ms):
    if ms is None:
        return "–"
    value, unit = (ms * 1e3, "µs") if ms < 1 else (ms, "ms") if ms < 1e3 else (ms / 1e3, "s")
    return f"{number_text(value)} {unit}"


def threads_text(threads):
    return f"{threads} thread" + ("s" if threads > 1 else "")
