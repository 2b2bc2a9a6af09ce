#!/usr/bin/env python3
"""Measures reports of 6, 128 and 1024 tokens in Chromium and prints docs/report.md's table.

    bench/report.py [--attn build/default/attn]

Size of the file, time to write it (the whole command, the module's forward pass included), time from opening to
first paint and to the page answering, time from a click on a cell to the drawn answer; medians of five.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/report/browser"))
import chromium  # noqa: E402
import library  # noqa: E402

SHAPES = [(6, 3, 4, 2), (128, 768, 768, 12), (1024, 768, 768, 12)]  # tokens, d_in, d_out, heads
ROUNDS = 5
# The answer is drawn when the frame after the click has been.
CLICK = """new Promise((done) => {
  const frame = document.querySelector('#steps .frame, #steps .matrix'), box = frame.getBoundingClientRect(), from = performance.now();
  const at = { clientX: box.left + box.width * SHARE, clientY: box.top + box.height * SHARE, bubbles: true };
  (document.elementFromPoint(at.clientX, at.clientY) ?? frame).dispatchEvent(new MouseEvent('click', at));
  const work = (document.body.offsetHeight, performance.now() - from);
  requestAnimationFrame(() => setTimeout(() => done([work, performance.now() - from])));
})"""


def once(browser, attn, folder, tokens, d_in, d_out, heads):
    begin = time.perf_counter()
    subprocess.run([attn, "report", "multihead", "--input", "x.npy", "--d-out", str(d_out), "--heads", str(heads), "--output", "r.html"],
                   cwd=folder, check=True, stdout=subprocess.DEVNULL)
    write = time.perf_counter() - begin
    page = browser.page(f"file://{folder}/r.html")
    page.run("new Promise((done) => new PerformanceObserver((_, o) => (o.disconnect(), done())).observe({ type: 'paint', buffered: true }))")
    paint = page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    ready = page.run("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    page.box("#steps .frame, #steps .matrix")
    work, click = map(statistics.median, zip(*(page.run(CLICK.replace("SHARE", str(share))) for share in (0.3, 0.5, 0.7))))
    assert page.complaints() == []
    page.close()
    return os.path.getsize(f"{folder}/r.html"), write, paint, ready, work, click


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn", default=str(ROOT / "build/default/attn"))
    attn = os.path.abspath(parser.parse_args().attn)
    print("| tokens, heads, width | size | written in | first paint | answers | click: script and layout | click: drawn |\n|---|---|---|---|---|---|---|")
    for tokens, d_in, d_out, heads in SHAPES:
        with tempfile.TemporaryDirectory() as folder, chromium.Chromium(chromium.find()) as browser:
            rng = random.Random(1)
            library.save_npy(f"{folder}/x.npy", [rng.gauss(0, 1) for _ in range(tokens * d_in)], (tokens, d_in))
            rounds = [once(browser, attn, folder, tokens, d_in, d_out, heads) for _ in range(ROUNDS)]
        size, write, paint, ready, work, click = map(statistics.median, zip(*rounds))
        shown = f"{size / 1e6:.1f} MB" if size > 1e6 else f"{size / 1e3:.0f} kB"
        print(f"| {tokens}, {heads}, {d_out} | {shown} | {write:.2f} s | {paint:.0f} ms | {ready:.0f} ms | {work:.0f} ms | {click:.0f} ms |", flush=True)


if __name__ == "__main__":
    main()
