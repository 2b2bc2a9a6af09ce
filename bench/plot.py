"""Draws docs/benchmarks.svg: how many times as fast as PyTorch attn is, by shape, on each machine."""

import html
import math

COLOURS = ["#1b6ca8", "#d1602b", "#3b8c4a"]
SHAPES = ["circle", "square", "triangle"]
LEFT, TOP, STEP, WIDTH, RIGHT = 330, 64, 22, 460, 30
TICKS = [0.5, 1, 2, 4, 8, 16, 32]


def place(ratio):
    low, high = math.log2(TICKS[0]), math.log2(TICKS[-1])
    return LEFT + WIDTH * (math.log2(min(max(ratio, TICKS[0]), TICKS[-1])) - low) / (high - low)


def mark(shape, x, y, colour, title=""):
    told = f"<title>{html.escape(title)}</title>" if title else ""
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}">{told}</circle>'
    if shape == "square":
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5}" width="9" height="9" fill="{colour}">{told}</rect>'
    return f'<path d="M{x:.1f} {y - 6}l5.5 10h-11z" fill="{colour}">{told}</path>'


def text(x, y, words, anchor="start", size=13, colour="#222222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{html.escape(words)}</text>'


def drawn(machines, labels, ratios, title):
    """labels: names of the rows by key; ratios[machine][key]: PyTorch's time in attn's."""
    keys = [key for key in labels if any(key in ratios[m] for m in machines)]
    bottom = TOP + STEP * len(keys)
    width, height = LEFT + WIDTH + RIGHT, bottom + 40
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="sans-serif" role="img" aria-label="{html.escape(title)}">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>', text(LEFT, 22, title, size=15)]
    x = LEFT
    for machine, colour, shape in zip(machines, COLOURS, SHAPES):
        lines += [mark(shape, x + 6, 42, colour), text(x + 17, 46.5, machine)]
        x += 40 + 7.5 * len(machine)
    for tick in TICKS:
        x = place(tick)
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}" stroke="#222222" '
                     f'stroke-width="{1.4 if tick == 1 else 0.5}" opacity="{0.9 if tick == 1 else 0.25}"/>')
        lines.append(text(x, bottom + 18, f"{tick:g}×", "middle", 12))
    lines.append(text(place(1) + 4, bottom + 34, "faster than PyTorch →", size=12))
    for i, key in enumerate(keys):
        y = TOP + STEP * i + STEP // 2
        lines.append(text(LEFT - 10, y + 4.5, labels[key], "end", 12))
        for machine, colour, shape in zip(machines, COLOURS, SHAPES):
            if key in ratios[machine]:
                ratio = ratios[machine][key]
                lines.append(mark(shape, place(ratio), y, colour, f"{machine}, {labels[key]}: {ratio:.2f}×"))
    return "\n".join([*lines, "</svg>"]) + "\n"
