// Words and contexts as vectors in three dimensions, to turn with the mouse or the arrow keys.

const turned = { yaw: 0.5, pitch: 0.45, moved: 0, what: "context" };

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

function spaceSvg() {
  const words = pointsOf("inputs"), contexts = contextSpace(), wide = 560, high = 440, middle = wide / 2, ground = 0.56 * high, count = report.tokens.length;
  const finite = (values) => values.reduce((most, x) => (Number.isFinite(x) ? Math.max(most, Math.abs(x)) : most), 0);
  const unit = 0.44 * high / Math.max(finite(words.values), contexts ? finite(contexts.values) : 0, 1e-12);
  const place = (point) => { const [x, y] = turn(point); return [middle + unit * x, ground - unit * y]; };
  const moving = (i) => {
    const from = pointAt(words, i), to = contexts ? pointAt(contexts, i) : from;
    return from.map((x, axis) => x + turned.moved * (to[axis] - x));
  };
  const parts = [], line = (a, b, look) => element("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], ...look });
  const origin = place([0, 0, 0]), reach = 0.5 * high / unit;
  words.explained.concat(words.explained.length ? [] : [0, 0, 0]).slice(0, Math.min(3, Math.max(words.size, contexts?.size ?? 0))).forEach((share, axis) => {
    const end = place([0, 1, 2].map((i) => (i === axis ? reach : 0)));
    parts.push(line(origin, end, { class: "axis" }), element("text", { x: end[0], y: end[1], class: "axis-name" },
      words.explained.length ? `PC ${axis + 1}` : `${axis + 1}`));
  });
  const many = count > 24, tops = topKeys(currentBlock().step("weights"), state.head, state.query).slice(0, 8).filter((top) => top.weight > 0);
  const near = new Set([state.query, ...(report.tokens.length === report.keyTokens.length ? tops.map((top) => top.key) : [])]);
  if (turned.moved > 0 && report.tokens.length === report.keyTokens.length) {
    for (const { key, weight } of tops) {
      parts.push(line(place(moving(state.query)), place(pointAt(words, key)), { class: "pull", "stroke-width": 0.5 + 5 * weight }));
    }
  }
  const order = Array.from({ length: count }, (_, i) => i).filter((i) => [...pointAt(words, i), ...moving(i)].every(Number.isFinite));
  const dots = { word: [], moved: [] };  // of a long text: all but the near ones, as one path each
  for (const i of order) {
    const at = place(pointAt(words, i)), to = place(moving(i)), on = i === state.query, colour = seriesOf(i);
    if (many && !near.has(i)) {
      dots.word.push(`M${at[0].toFixed(1)} ${at[1].toFixed(1)}h0`);
      if (turned.moved > 0) dots.moved.push(`M${to[0].toFixed(1)} ${to[1].toFixed(1)}h0`);
      continue;
    }
    parts.push(element("g", { class: on ? "vector on" : "vector", "data-word": i, onclick: () => select({ query: i }) },
      line(origin, at, { stroke: colour, class: "stem" }),
      element("circle", { cx: at[0], cy: at[1], r: on ? 6 : 4.5, fill: colour }, element("title", {}, word(report.tokens[i], 40))),
      turned.moved > 0 && line(origin, to, { stroke: colour, class: "stem moved" }),
      turned.moved > 0 && line(at, to, { stroke: colour, class: "path" }),
      turned.moved > 0 && element("circle", { cx: to[0], cy: to[1], r: on ? 6 : 4.5, stroke: colour, class: "ring" }),
      element("text", { x: at[0] + 8, y: at[1] - 7, class: "word" }, word(report.tokens[i]))));
  }
  parts.unshift(...Object.entries(dots).filter(([, d]) => d.length).map(([name, d]) => element("path", { d: d.join(""), class: `dots ${name}` })));
  return element("svg", { viewBox: `0 0 ${wide} ${high}`, class: "space", role: "img", tabindex: 0, "data-keys": true,
    "aria-label": "Words as arrows from the origin. Arrow keys turn the view." }, parts);
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
  const slider = element("input", { type: "range", id: "moved", min: 0, max: 1, step: 0.01, value: 0, oninput: (event) => { turned.moved = Number(event.target.value); draw(); } });
  const choice = element("select", { id: "space-what", "aria-label": "Which context", onchange: (event) => { turned.what = event.target.value; draw(); } },
    [["context", "context of the head"], ["merged", "merged heads"], ["output", "output"]].filter(([name]) => name === "context" || pointsOf(name))
      .map(([value, text]) => element("option", { value }, text)));
  fill(host, element("h2", {}, "Embedding space"),
    element("p", { class: "lead" }, "Each word is an arrow from the origin. Attention moves it: the slider goes from the embedding to its context, and the lines show which words pull."),
    element("div", { class: "controls" }, element("label", { class: "field" }, "embedding", slider, "context"), choice), figure, sentence,
    exports({ name: () => "space", svg: () => standalone(figure.firstChild), csv: spaceTable }));
  onSelection(draw);
}
