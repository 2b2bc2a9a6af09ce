// Words and contexts as vectors in three dimensions, to turn with the mouse or the arrow keys.

const turned = { yaw: 0.5, pitch: 0.45, moved: 0, arrows: true, what: "context" };

// Sideways and up: the third axis stands upright, as in the notebooks' plots.
function turn([x, y, z]) {
  const c = Math.cos(turned.yaw), s = Math.sin(turned.yaw), cp = Math.cos(turned.pitch), sp = Math.sin(turned.pitch);
  const side = c * x + s * y, near = s * x - c * y;
  return [side, cp * z - sp * near];
}

function pointsOf(name) {
  const found = currentBlock().space.find((space) => space.name === name);
  if (found) found.values ??= floatsOf(found.points);
  return found;
}
const pointAt = (space, i) => [0, 1, 2].map((axis) => space.values[3 * i + axis]);

function contextSpace() {
  return pointsOf(turned.what === "context" ? `context ${state.head}` : turned.what) ?? pointsOf(`context ${state.head}`);
}

// Turned about the middle of all that is drawn, as large as the frame takes at any angle; the axes end past the furthest.
function framed(words, contexts) {
  const cache = contexts ?? words;
  if (cache.frame) return cache.frame;
  const sets = [words, contexts].filter(Boolean), dimensions = Math.min(3, Math.max(...sets.map((set) => set.size)));
  const points = sets.flatMap((set) => report.tokens.map((_, i) => pointAt(set, i)).filter((point) => point.every(Number.isFinite)));
  const most = (f) => points.reduce((largest, point) => Math.max(largest, f(point)), 1e-12);
  const reach = Array.from({ length: dimensions }, (_, axis) => 1.06 * most((point) => Math.abs(point[axis])));
  points.push(...reach.map((length, axis) => [0, 1, 2].map((i) => (i === axis ? length : 0))));
  const centre = [0, 1, 2].map((axis) => (most((point) => point[axis]) - most((point) => -point[axis])) / 2);
  return cache.frame = { reach, centre, radius: most((point) => Math.hypot(...point.map((x, axis) => x - centre[axis]))) };
}

// Names of points, moved down where they would lie on one another.
function spread(labels) {
  const set = [];
  for (const label of labels.sort((a, b) => a.y - b.y)) {
    for (const other of set) {
      if (Math.abs(other.x - label.x) < 7 * Math.max(other.text.length, label.text.length) && label.y - other.y < 12) label.y = other.y + 12;
    }
    set.push(label);
  }
  return set;
}

function spaceSvg() {
  const words = pointsOf("inputs"), contexts = contextSpace(), wide = 560, high = 440, count = report.tokens.length;
  const { reach, centre, radius } = framed(words, contexts), unit = 0.53 * high / radius;
  const place = (point) => { const [x, y] = turn(point.map((p, axis) => p - centre[axis])); return [wide / 2 + unit * x, high / 2 - unit * y]; };
  const goal = (i) => pointAt(contexts ?? words, i);
  const moving = (i) => pointAt(words, i).map((x, axis) => x + turned.moved * (goal(i)[axis] - x));
  const parts = [], labels = [], line = (a, b, look) => element("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], ...look });
  const origin = place([0, 0, 0]);
  reach.forEach((length, axis) => {
    const end = place([0, 1, 2].map((i) => (i === axis ? length : 0)));
    parts.push(line(origin, end, { class: "axis" }), element("text", { x: end[0], y: end[1], class: "axis-name" }, words.explained.length ? `PC ${axis + 1}` : `${axis + 1}`));
  });
  const many = count > 24, tops = topKeys(currentBlock().step("weights"), state.head, state.query).slice(0, 8).filter((top) => top.weight > 0);
  const near = new Set([state.query, ...(report.tokens.length === report.keyTokens.length ? tops.map((top) => top.key) : [])]);
  if (turned.moved > 0 && report.tokens.length === report.keyTokens.length) {
    for (const { key, weight } of tops) {
      parts.push(line(place(moving(state.query)), place(pointAt(words, key)), { class: "pull", "stroke-width": 0.5 + 5 * weight }));
    }
  }
  const order = Array.from({ length: count }, (_, i) => i).filter((i) => [...pointAt(words, i), ...goal(i)].every(Number.isFinite));
  const dots = { word: [], context: [] };  // of a long text: all but the near ones, as one path each
  for (const i of order) {
    const from = place(pointAt(words, i)), at = place(moving(i)), to = place(goal(i)), on = i === state.query, colour = seriesOf(i);
    if (many && !near.has(i)) {
      dots.word.push(`M${at[0].toFixed(1)} ${at[1].toFixed(1)}h0`);
      if (contexts) dots.context.push(`M${to[0].toFixed(1)} ${to[1].toFixed(1)}h0`);
      continue;
    }
    const dot = on ? 6 : 4.5;
    labels.push({ x: at[0] + 8, y: at[1] - 7, text: word(report.tokens[i]), on });
    parts.push(element("g", { class: on ? "vector on" : "vector", "data-word": i, onclick: () => select({ query: i }) },
      contexts && turned.arrows && line(origin, to, { stroke: colour, class: "stem context" }),
      turned.arrows && line(origin, at, { stroke: colour, class: "stem" }),
      turned.moved > 0 && line(from, at, { stroke: colour, class: "path" }),
      element("circle", { cx: at[0], cy: at[1], r: dot, fill: colour }, element("title", {}, word(report.tokens[i], 40))),
      contexts && element("circle", { cx: to[0], cy: to[1], r: dot + 2, stroke: colour, class: "ring" }, element("title", {}, `${word(report.tokens[i], 40)}: context`))));
  }
  parts.unshift(...Object.entries(dots).filter(([, d]) => d.length).map(([name, d]) => element("path", { d: d.join(""), class: `dots ${name}` })));
  parts.push(...spread(labels).map(({ x, y, text, on }) => element("text", { x, y, class: on ? "word on" : "word" }, text)));
  return element("svg", { viewBox: `0 0 ${wide} ${high}`, class: "space", role: "img", tabindex: 0, "data-keys": true, "data-unit": unit, "data-centre": centre.join(" "),
    "aria-label": "Words as vectors from the origin, their contexts hollow. Arrow keys turn the view." }, parts);
}

function spaceTable() {
  const words = pointsOf("inputs"), contexts = contextSpace();
  return [["word", "x1", "x2", "x3", ...(contexts ? ["context1", "context2", "context3"] : [])],
    ...report.tokens.map((text, i) => [text, ...pointAt(words, i), ...(contexts ? pointAt(contexts, i) : [])])];
}

function spaceSentence() {
  const words = pointsOf("inputs"), contexts = contextSpace();
  const say = (name, space) => space.explained.length
    ? `${name}: ${space.size} numbers, drawn by their first three principal components, which explain ${space.explained.map(percent).join(", ")} of the variance.`
    : `${name}: ${space.size} number${space.size === 1 ? "" : "s"} each, drawn as they are.`;
  const shared = contexts && contexts.size === words.size;
  return `${say("Words", words)} ${contexts ? say(turned.what === "context" ? "Contexts" : turned.what === "output" ? "Outputs" : "Merged contexts", contexts) : ""}` +
    (contexts && !shared ? " The two have axes of their own; between them the slider is only a picture." : "");
}

function spacePanel(host) {
  if (!pointsOf("inputs")) return;
  const figure = element("figure", { class: "space-figure" }), sentence = element("p", { class: "quiet" });
  const draw = () => {
    const had = figure.contains(document.activeElement), svg = spaceSvg();
    fill(figure, svg);
    figure.dataset.yaw = turned.yaw.toFixed(4);
    figure.dataset.pitch = turned.pitch.toFixed(4);
    sentence.textContent = spaceSentence();
    if (had) svg.focus({ preventScroll: true });
  };
  const by = (yaw, pitch) => {
    turned.yaw += yaw;
    turned.pitch = Math.min(Math.max(turned.pitch + pitch, -Math.PI / 2), Math.PI / 2);
    draw();
  };
  let from = null;
  figure.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; });
  window.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return void (from = null);
    by((event.clientX - from[0]) * 0.01, (event.clientY - from[1]) * 0.01);
    from = [event.clientX, event.clientY];
  });
  window.addEventListener("pointerup", () => { from = null; });
  figure.addEventListener("keydown", (event) => {
    const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (!turns) return;
    event.preventDefault();
    by(...turns);
  });
  const arrows = element("input", { type: "checkbox", id: "arrows", checked: true, onchange: (event) => { turned.arrows = event.target.checked; draw(); } });
  const slider = element("input", { type: "range", id: "moved", min: 0, max: 1, step: 0.01, value: 0, oninput: (event) => { turned.moved = Number(event.target.value); draw(); } });
  const choice = element("select", { id: "space-what", "aria-label": "Which context", onchange: (event) => { turned.what = event.target.value; draw(); } },
    [["context", "context of the head"], ["merged", "merged heads"], ["output", "output"]].filter(([name]) => name === "context" || pointsOf(name))
      .map(([value, text]) => element("option", { value }, text)));
  fill(host, element("h2", {}, "Embedding space"),
    element("p", { class: "lead" }, "Each word is an arrow from the origin, its context a hollow one. The slider moves the words to their contexts, and lines show which words pull. Drag to turn."),
    element("div", { class: "controls" }, element("label", { class: "field" }, "embedding", slider, "context"), choice, element("label", { class: "check" }, arrows, "arrows")), figure, sentence,
    exports({ name: () => "space", svg: () => standalone(figure.firstChild), csv: spaceTable }));
  onSelection(draw);
}
