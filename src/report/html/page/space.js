// Words and contexts as vectors in three dimensions, to turn with the mouse or the arrow keys. Contexts of another size
// than the words have a figure, and axes, of their own.

const turned = { yaw: 0.5, pitch: 0.45, moved: 0, arrows: true, what: "context" };
// On a narrow page the frame is as wide as the page, so that its letters keep their size.
const spaceFrame = {
  get wide() { return window.innerWidth > 860 ? 560 : clamped(roomForMatrix(), 240, 560); },
  get high() { return this.wide * 44 / 56; },
};

// Sideways and up: the third axis stands upright, as in the notebooks' plots. What has two dimensions lies flat.
function turn([x, y, z], flat) {
  if (flat) return [x, y];
  const c = Math.cos(turned.yaw), s = Math.sin(turned.yaw);
  return [c * x + s * y, Math.cos(turned.pitch) * z - Math.sin(turned.pitch) * (s * x - c * y)];
}

// Where a page computes, what a layer's words and contexts have is there a moment after it was asked for.
function pointsOf(name) {
  const { space, askSpace } = currentBlock();
  if (!space) return void askSpace?.();
  const found = space.find((one) => one.name === name);
  if (found) found.values ??= floatsOf(found.points, currentBlock());
  return found;
}
const pointAt = (space, i) => [0, 1, 2].map((axis) => space.values[3 * i + axis]);
const isFinitePoint = (point) => point.every(Number.isFinite);

// One figure of words and contexts together where they share their axes, else one of each.
function spaceFigures() {
  const words = pointsOf("inputs"), ofHead = `context ${state.head}`, contexts = pointsOf(turned.what === "context" ? ofHead : turned.what) ?? pointsOf(ofHead);
  return !contexts || words.size === contexts.size ? [{ words, contexts }] : [{ words }, { contexts }];
}

const onAxis = (axis, end) => [0, 1, 2].map((i) => (i === axis ? end : 0));

// Turned about the middle of all that is drawn, as large as the frame takes at any angle. An axis goes from below the
// least to past the largest number, and always through 0.
function framed({ words, contexts }) {
  const cache = contexts ?? words;
  if (cache.frame) return cache.frame;
  const sets = [words, contexts].filter(Boolean), dimensions = Math.min(3, cache.size);
  const points = sets.flatMap((set) => report.tokens.map((_, i) => pointAt(set, i)).filter(isFinitePoint));
  const most = (f) => points.reduce((largest, point) => Math.max(largest, f(point)), 1e-12);
  const up = (axis) => most((point) => point[axis]), down = (axis) => most((point) => -point[axis]);
  const ends = [0, 1, 2].slice(0, dimensions).map((axis) => [Math.min(0, -1.06 * down(axis)), Math.max(1.06 * up(axis), 0.3 * Math.max(up(axis), down(axis)))]);
  points.push(...ends.flatMap((two, axis) => two.map((end) => onAxis(axis, end))));
  const centre = [0, 1, 2].map((axis) => (up(axis) - down(axis)) / 2);
  const radius = most((point) => Math.hypot(...point.map((x, axis) => x - centre[axis])));
  return cache.frame = { ends, centre, radius, flat: dimensions < 3 };
}

// Labels { x, y, text, on } beside their points: each at the first of some places that is free, the selected one
// first; where none is free a label is left to the mouse.
function placed(labels, points) {
  const size = 11, boxes = [], dots = points.map(([x, y]) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 }));
  const hits = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const inside = (box) => box.left >= 2 && box.right <= spaceFrame.wide - 2 && box.top >= 2 && box.bottom <= spaceFrame.high - 2;
  return labels.sort((a, b) => b.on - a.on).flatMap((label) => {
    const wide = widthOf(label.text, size) * (label.on ? 1.1 : 1);
    const beside = (far) => [[far, -5], [far, 12], [-far - wide, -5], [-far - wide, 12], [-wide / 2, -far - 2], [-wide / 2, far + 10]];
    const free = [8, 18, 30].flatMap(beside).map(([dx, dy]) => ({ x: label.x + dx, y: label.y + dy }))
      .map(({ x, y }) => ({ x, y, left: x - 1, right: x + wide + 1, top: y - size, bottom: y + 3 }))
      .find((box) => inside(box) && ![...boxes, ...(label.on ? [] : dots)].some((other) => hits(box, other)));
    if (free) boxes.push(free);
    return free ? [{ ...label, x: free.x, y: free.y }] : [];
  });
}

const movedTo = (words, contexts, i) => pointAt(words, i).map((x, axis) => x + turned.moved * (pointAt(contexts, i)[axis] - x));
const segment = (a, b, look) => element("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], ...look });

// Lines from the selected word, on its way, to the words that pull it.
function pulls({ words, contexts }, place, tops) {
  if (!(turned.moved > 0 && words && contexts && isSelf())) return [];
  return tops.map(({ key, weight }) => segment(place(movedTo(words, contexts, state.query)), place(pointAt(words, key)), { class: "pull", "stroke-width": 0.5 + 5 * weight }));
}
const isSelf = () => report.tokens.length === report.keyTokens.length;

function axes({ ends, flat }, place, names) {
  return ends.map(([low, high], axis) => {
    const end = place(onAxis(axis, high)), from = low < -0.02 * high ? low : 0;
    return [segment(place(onAxis(axis, from)), end, { class: "axis" }), label(Math.min(end[0], spaceFrame.wide - 30), end[1] + (flat && axis === 0 ? 14 : 0), names(axis), { class: "axis-name" })];
  });
}

// One word: its arrow, its dot, and its context's arrow and ring; where it goes when the slider moves it.
function vector({ words, contexts }, place, i) {
  const both = words && contexts, on = i === state.query, colour = seriesOf(i), text = word(report.tokens[i], 40);
  const at = words && place(both ? movedTo(words, contexts, i) : pointAt(words, i)), to = contexts && place(pointAt(contexts, i));
  const stem = (name, end, from = place([0, 0, 0])) => segment(from, end, { stroke: colour, class: name });
  const dot = ([cx, cy], more, look, said) => element("circle", { cx, cy, r: (on ? 6 : 4.5) + more, ...look }, element("title", {}, said));
  const ends = [at, to].filter(Boolean), [[x, y]] = ends;
  return { i, ends, label: { x, y, text: word(report.tokens[i]), on },
    node: element("g", { class: ["vector", on && "on"], "data-word": i, onclick: () => select({ query: i }) },
      to && turned.arrows && stem("stem context", to), at && turned.arrows && stem("stem", at), both && turned.moved > 0 && stem("path", at, place(pointAt(words, i))),
      at && dot(at, 0, { fill: colour }, text), to && dot(to, 2, { stroke: colour, class: "ring" }, `${text}: context`)) };
}

function spaceSvg(figure) {
  const { words, contexts } = figure, { wide, high } = spaceFrame, frame = framed(figure), unit = 0.53 * high / frame.radius;
  const place = (point) => { const [x, y] = turn(point.map((p, axis) => p - frame.centre[axis]), frame.flat); return [wide / 2 + unit * x, high / 2 - unit * y]; };
  const tops = topKeys(currentBlock().step("weights"), state.head, state.query).slice(0, 8).filter((top) => top.weight > 0);
  const near = new Set([state.query, ...(isSelf() ? tops.map((top) => top.key) : [])]), isClose = ({ i }) => report.tokens.length <= 24 || near.has(i);
  const all = [...report.tokens.keys()].filter((i) => [words, contexts].every((set) => !set || isFinitePoint(pointAt(set, i)))).map((i) => vector(figure, place, i));
  const close = all.filter(isClose), far = all.filter((one) => !isClose(one));
  // Draws all of a long text but the near ones, as one path for the words and one for the contexts.
  const dots = (set, name, at) => set && far.length > 0 && element("path", { class: ["dots", name], d: far.map(({ ends }) => ends.at(at).map((x) => x.toFixed(1))).map(([x, y]) => `M${x} ${y}h0`).join("") });
  const shown = words && contexts ? "Words as vectors from the origin, their contexts hollow." : `${words ? "Words" : "Contexts"} as vectors from the origin.`;
  return element("svg", { viewBox: `0 0 ${wide} ${high}`, class: ["space", frame.flat && "flat"], role: "img", tabindex: 0, "data-keys": !frame.flat, "data-unit": unit, "data-centre": frame.centre.join(" "),
    "aria-label": say(frame.flat ? shown : `${shown} Arrow keys turn the view.`) },
  dots(words, "word", 0), dots(contexts, "context", -1), axes(frame, place, (axis) => ((words ?? contexts).explained.length ? `PC ${axis + 1}` : `${axis + 1}`)),
  pulls(figure, place, tops), close.map(({ node }) => node),
  placed(close.map((one) => one.label), close.flatMap(({ ends }) => ends)).map(({ x, y, text, on }) => label(x, y, text, { class: ["word", on && "on"] })));
}

function spaceTable(sets) {
  const shown = Object.entries(sets).filter(([, set]) => set).map(([name, set]) => [name === "words" ? "x" : "context", set, Math.min(3, set.size)]);
  return [["word", ...shown.flatMap(([name, , count]) => numbers(count).map((n) => name + n))],
    ...report.tokens.map((text, i) => [text, ...shown.flatMap(([, set, count]) => pointAt(set, i).slice(0, count))])];
}

const contextName = () => ({ context: `Contexts of ${headName()}`, output: "Outputs", merged: "Merged contexts" })[turned.what];

function spaceSentence(name, { size, explained }) {
  return explained.length
    ? `${name}: ${size} numbers, drawn by their first three principal components, which explain ${explained.map(percent).join(", ")} of the variance.`
    : `${name}: ${size} number${size === 1 ? "" : "s"} each, drawn as ${size === 1 ? "it is" : "they are"}.`;
}

function spaceFigure({ words, contexts }, at) {
  const [of, name] = words && contexts ? ["both", "Words and contexts"] : words ? ["words", "Words"] : ["contexts", contextName()];
  const said = [words && spaceSentence("Words", words), contexts && spaceSentence(contextName(), contexts)].filter(Boolean).join(" ");
  return element("div", {}, element("figure", { class: "space-figure", "data-of": of }, spaceSvg({ words, contexts })), quiet(say(said)),
    exports({ name: () => (words ? "space" : "space-contexts"), title: () => say(name), svg: () => standalone(document.querySelectorAll("#space svg")[at]), csv: () => spaceTable({ words, contexts }) }));
}

// Drag and arrow keys turn; what is flat stays.
function turnBy(yaw, pitch) {
  turned.yaw += yaw;
  turned.pitch = clamped(turned.pitch + pitch, -Math.PI / 2, Math.PI / 2);
  turned.draw();
}
const turnable = (node) => node.closest(".space:not(.flat)");
// A drag may leave the figure, so that all of the page listens.
window.addEventListener("pointermove", ({ buttons, clientX, clientY }) => {
  const { from } = turned;
  turned.from = from && buttons ? [clientX, clientY] : undefined;
  if (turned.from) turnBy(0.01 * (clientX - from[0]), 0.01 * (clientY - from[1]));
});
function turnByKey(event) {
  const [down, right] = (turnable(event.target) && arrowKeys[event.key]) ?? [];
  if (down === undefined) return;
  event.preventDefault();
  turnBy(0.1 * right, 0.1 * down);
}

function spacePanel(host) {
  if (!pointsOf("inputs")) return;
  const figures = element("div", { class: "space-figures", onkeydown: turnByKey,
    onpointerdown: ({ target, clientX, clientY }) => { turned.from = turnable(target) && [clientX, clientY]; } });
  const draw = turned.draw = () => {
    if (!pointsOf("inputs")) return;
    const shown = spaceFigures(), restoreFocus = focusPlace();
    fill(figures, shown.map(spaceFigure));
    Object.assign(figures.dataset, { yaw: turned.yaw.toFixed(4), pitch: turned.pitch.toFixed(4) });
    move.hidden = shown.length > 1;
    host.parentNode.classList.toggle("wide", shown.length > 1);
    restoreFocus();
  };
  // A control changes one part of how the figures are drawn.
  const changes = (name, value) => ({ target }) => { turned[name] = value(target); draw(); };
  const move = field("embedding", input("moved", "range", { min: 0, max: 1, step: 0.01, value: 0, oninput: changes("moved", ({ value }) => Number(value)) }), "context");
  const which = choice({ id: "space-what", "aria-label": "Which context", onchange: changes("what", ({ value }) => value) },
    [["context", "context of the head"], ["merged", "merged heads"], ["output", "output"]].filter(([name]) => name === "context" || pointsOf(name)), turned.what);
  fill(host, lead(say("Each word is an arrow from the origin, and its context is a hollow one. They share a figure where they have as many numbers: there the slider moves the words to their contexts, and lines show which words pull. Drag to turn what has three dimensions.")),
    controls(move, which, check("arrows", "arrows", { checked: true, onchange: changes("arrows", ({ checked }) => checked) })), figures);
  return draw;
}
