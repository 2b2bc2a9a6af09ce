#!/usr/bin/env python3
"""Measures reports of 6, 128 and 1024 tokens in Chromium and prints docs/report.md's table.

    bench/report.py [--attn build/default/attn]
    bench/report.py --live      # instead docs/live.md's table, of pages in which models run
    bench/report.py --live --own build/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf      # and of one that is opened there
    bench/report.py --live --firefox    # the same in Firefox

Size of the file, time to write it (the whole command, the module's forward pass included), time from opening to
first paint and to the page answering, time from a click on a cell to the drawn answer; medians of five. Of pages in
which a model runs: size, first paint, and time from a text that is typed to the drawn answer, with every step of it.
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
import firefox  # noqa: E402
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
    assert page.complaints() == [], page.complaints()
    page.close()
    return os.path.getsize(f"{folder}/r.html"), write, paint, ready, work, click


MODELS = [(4, 3, 96), (6, 4, 208), (6, 6, 384)]  # layers, heads, width, of bytes: 0.5, 3 and 11 million weights
TOKENS = (16, 64, 128)
# The answer is drawn when the frame after it has been, and the page behind that.
TYPED = """new Promise((done) => {
  const area = document.getElementById('live-text'), from = performance.now();
  new MutationObserver((_, observer) => {
    if (Number(document.body.dataset.answered) !== live.asked) return;
    observer.disconnect();
    const draw = drawnBelow;  // behind the frame
    drawnBelow = () => {
      const first = performance.now() - from;
      drawnBelow = draw;
      draw();
      done([first, performance.now() - from]);
    };
  }).observe(document.body, { attributes: true });
  area.value = TEXT;
  area.dispatchEvent(new Event('input'));
})"""
OPENED = "new Promise((done) => { const look = () => (CONDITION ? done() : setTimeout(look, 5)); look(); })"


def model_page(browser, attn, folder, layers, heads, width):
    """A page of a model that was hardly trained: what it computes takes as long as that of another."""
    pathlib.Path(f"{folder}/text.txt").write_text("You may copy it, and you may change it. " * 80)
    subprocess.run([attn, "train", "--text", "text.txt", "--out", "m.safetensors", "--context", str(max(TOKENS)), "--steps", "1", "--batch", "1", "--force",
                    "--layers", str(layers), "--heads", str(heads), "--width", str(width)], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([attn, "report", "--live", "--model", "m.safetensors", "--text", "You may copy", "--output", "r.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return browser.page(f"file://{folder}/r.html")


def answers(page, unit, rounds=ROUNDS):
    """Milliseconds from a text of so many tokens to the next drawn frame, and until what stands below is drawn, too: the
    least of some, after one that nobody counts."""
    least = []
    for tokens in TOKENS:
        times = []
        for count in range(rounds + 1):
            first = unit[:-1] + chr(ord("a") + count)  # another text each time
            times.append(page.run(TYPED.replace("TEXT", repr(first + unit * (tokens - 1)))))
            assert page.run("report.tokens.length") == tokens
        least.append(", ".join(f"{min(of):.0f} ms" for of in zip(*times[1:])))
    assert page.complaints() == [], page.complaints()
    return least


def live(browser, attn, folder, own):
    print("| weights | page | first paint | " + " | ".join(f"{tokens} tokens" for tokens in TOKENS) + " |\n|---|---|---|" + "---|" * len(TOKENS))
    for layers, heads, width in MODELS:
        page = model_page(browser, attn, folder, layers, heads, width)
        page.run(OPENED.replace("CONDITION", "live.next"))
        paint, weights = page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"), page.run("live.size.weights")
        size = os.path.getsize(f"{folder}/r.html")
        print(f"| {weights / 1e6:.1f} million | {size / 1e6:.1f} MB | {paint:.0f} ms | " + " | ".join(answers(page, "a")) + " |", flush=True)
        page.close()
    if not own:
        return
    page = model_page(browser, attn, folder, *MODELS[0])
    page.run(OPENED.replace("CONDITION", "live.next"))
    begin = time.perf_counter()
    page.choose("#live-files", os.path.abspath(own))
    page.run(OPENED.replace("CONDITION", "live.file && Number(document.body.dataset.answered) === live.asked"))
    opened, weights = time.perf_counter() - begin, page.run("live.size.weights")
    shown = " | ".join(answers(page, " a", 3))
    page.run(TYPED.replace("TEXT", "'The capital of France is'"))
    page.run("document.getElementById('live-on').click()")
    page.run(OPENED.replace("CONDITION", "live.ahead"))  # keys and values of the text are there
    first, begin = page.run("live.ids.length"), time.perf_counter()
    page.run(OPENED.replace("CONDITION", f"live.ids.length >= {first + 32}"))
    speed = (page.run("live.ids.length") - first) / (time.perf_counter() - begin)
    page.run("document.getElementById('live-on').click()")
    print(f"| {weights / 1e6:.1f} million, {os.path.getsize(own) / 1e6:.0f} MB from disk | opened in {opened:.1f} s | {speed:.1f} tokens/s | {shown} |", flush=True)
    page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn", default=str(ROOT / "build/default/attn"))
    parser.add_argument("--live", action="store_true", help="pages in which models run")
    parser.add_argument("--own", help="a model that is opened in such a page, from disk")
    parser.add_argument("--firefox", action="store_true", help="in Firefox, with --live")
    options = parser.parse_args()
    attn = os.path.abspath(options.attn)
    if options.live:
        started = firefox.Firefox(firefox.find()) if options.firefox else chromium.Chromium(chromium.find())
        with tempfile.TemporaryDirectory() as folder, started as browser:
            live(browser, attn, folder, options.own)
        return
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
