// The steps as a strip; the chosen one large, and beside it where the selected number comes from.

// What the stage shows of a step: one head, or several taken together.
const combined = new Map();
function stageMatrix(step) {
  const heads = step.kind === "tokens" ? 1 : currentBlock().heads;
  const view = step.pairs && heads > 1 ? state.view : "head";
  if (view === "head") return { matrix: step.matrix(state.head), view };
  const id = [state.block, step.name, view, state.head, view === "difference" ? state.other : ""].join();
  return { matrix: held(combined, id, () => combine(step, heads, view)), view };
}

const maskedInAll = (masks) => masks.every(Boolean) ? masks[0].map((_, at) => (masks.every((mask) => mask[at]) ? 1 : 0)) : undefined;

function combine(step, heads, view) {
  const parts = view === "difference" ? [step.matrix(state.head), step.matrix(state.other)] : Array.from({ length: heads }, (_, h) => step.matrix(h));
  const values = new Float32Array(parts[0].values.length);
  for (let i = 0; i < values.length; i++) {
    if (view === "difference") values[i] = parts[0].values[i] === parts[1].values[i] ? 0 : parts[0].values[i] - parts[1].values[i];
    else if (view === "maximum") values[i] = Math.max(...parts.map((part) => part.values[i]));
    else values[i] = parts.reduce((sum, part) => sum + part.values[i], 0) / heads;
  }
  return { ...parts[0], values, masked: maskedInAll(parts.map((part) => part.masked)) };
}

// Effective weights, of a layer that keeps a state, have signs.
const hasSigns = (step) => step.kind === "weights" && Boolean(report.kind?.recurrent || step.block?.step("mapped keys"));

// Weights are drawn on the scale that was chosen, or around 0 where they have signs; all else from 0 or its smallest value.
const stepScale = (step, matrix) => scaleOf(matrix, step.kind !== "weights" ? "linear" : hasSigns(step) && rangeOf(matrix).low < 0 ? "diverging" : chosenScale(state.scale, matrix));

function stageView(step, room) {
  const { matrix, view } = stageMatrix(step);
  const scale = view === "difference" ? scaleOf(matrix, "diverging") : stepScale(step, matrix);
  const row = step.ofKeys ? state.key : state.query, column = step.pairs ? state.key : state.column;
  const several = currentBlock().heads > 1 && step.kind !== "tokens", ofHeads = { average: "average of the heads", maximum: "maximum of the heads", difference: `head ${state.head + 1} − head ${state.other + 1}` };
  return {
    matrix, scale, room, label: named(step.name, several && view === "head" ? headName() : layerName(), ofHeads[view]), rowLabels: step.rowLabels, columnLabels: step.columnLabels,
    selected: { row, column }, corner: step.pairs ? "query ↓ key →" : "",
    pick: (i, j) => select({ [step.ofKeys ? "key" : "query"]: i, [step.pairs ? "key" : "column"]: j }),
  };
}

function stepCard(step) {
  const matrix = step.matrix(state.head), canvas = severalLayers ? null : pixelsOf(matrix, stepScale(step, matrix)), on = step === currentStep();
  canvas?.setAttribute("aria-hidden", "true");
  const shape = (step.kind === "tokens" ? [step.rows, step.columns] : [step.planes, step.rows, step.columns]).join(", ");
  return element("button", { class: on ? "card on" : "card", type: "button", "data-step": step.name, role: "radio", "aria-checked": String(on), tabindex: on ? 0 : -1, onclick: () => select({ step: step.name }) },
    element("span", { class: "card-title" }, step.name), canvas && element("span", { class: "card-picture" }, canvas),
    element("code", { class: shape.length > 10 ? "long" : null }, `(${shape})`));
}

// Scrolls the strip alone, and never the page.
function showIn(strip, card) {
  if (card) strip.scrollLeft = card.offsetLeft + card.offsetWidth / 2 - strip.clientWidth / 2;
}

// One step after the other, from the inputs on, or from where it was paused.
function player() {
  let timer = null, paused = "";
  const move = (by) => {
    const { steps } = currentBlock(), next = steps[steps.indexOf(currentStep()) + by];
    next ? select({ step: next.name }) : stop();
  };
  const stop = () => { clearInterval(timer); timer = null; paused = state.step; play.textContent = "▶ Play"; };
  const start = () => {
    if (state.step !== paused || currentStep() === currentBlock().steps.at(-1)) select({ step: currentBlock().steps[0].name });
    timer = setInterval(() => move(1), 1600);
    play.textContent = "❚❚ Pause";
  };
  const play = button("play", "▶ Play", () => (timer ? stop() : start()));
  const one = (id, by, text) => button(id, text, () => { stop(); move(by); });
  return [one("back", -1, "← Back"), play, one("next", 1, "Step →")];
}

function stagePanel(host) {
  const strip = roving(element("div", { class: "strip", id: "strip", role: "radiogroup", "aria-label": "Steps" }), (down, right) => {
    const { steps } = currentBlock();
    select({ step: steps[clamp(steps.indexOf(currentStep()) + down + right, steps.length)].name });
  });
  const title = element("h3", { id: "stage-title" }), view = element("div", { class: "stage-matrix", id: "stage-matrix" }), side = element("div", { class: "stage-side", id: "stage-side" });
  const below = element("div", { class: "below" }), choices = element("span", { class: "controls", id: "stage-controls" });
  let drawnFor = "", seen = fromHash().step ? "" : state.step;
  const current = () => stageView(currentStep(), view.clientWidth);
  const out = exports({ name: () => fileName(state.step), title: () => stageView(currentStep()).label, svg: () => matrixSvg(current()),
    csv: () => (currentStep().pooled ? topRows(report.tokens.map((_, i) => i)) : matrixRows(current())), table: () => (currentStep().pooled ? topRows([state.query]) : tableRows(current())) });
  fill(host, lead(currentBlock().softmaxInput() ? "Choose a step, then a cell: beside it stands the arithmetic that made the number." : "Choose a cell: beside it stands what is known of the number."),
    strip, element("div", { class: "stage" }, element("div", {}, title, view, below, controls(player(), choices), out), side));
  onSelection(() => {
    const step = currentStep(), shown = current();
    const id = named(headName(), state.step, state.scale);
    if (drawnFor !== id) fill(strip, flow(currentBlock()));
    // The strip begins at its beginning; it follows a step that was chosen.
    if (drawnFor !== id && state.step !== seen) showIn(strip, strip.querySelector(".on"));
    seen = state.step;
    drawnFor = id;
    fill(title, shown.label, element("small", {}, step.kind === "tokens" ? "" : kindOf(currentBlock().kinds?.[state.head]).text));
    fill(view, matrixView(shown));
    fill(below, legend(shown.scale, { name: step.name }), quiet(say(hasSigns(step) ? "Effective weights: the context is their sum of the values." : step.meaning), step.kind === "scores" && shown.scale.masked > 0 && step.name !== "masked" ? " The mask will hide the hatched ones." : ""));
    fill(choices, stageControls(step));
    fill(side, report.tokens.length && report.keyTokens.length && step.columns
      ? arithmeticView(arithmetic(currentBlock(), step.name, state.head, state.query, state.key, state.column)) : null);
    // Said to a screen reader, unless the focus is in a picture, which says it itself.
    if (!document.activeElement.closest("[data-roving]")) byId("status").textContent = named(shown.label, side.querySelector("h3")?.textContent);
  });
}

function topRows(queries) {
  const step = currentStep();
  return [["query", "key", "weight"], ...queries.flatMap((i) => topKeys(step, state.head, i).map((top) => [report.tokens[i], report.keyTokens[top.key], top.weight]))];
}

function stageControls(step) {
  if (!step.pairs) return [];
  const { heads } = currentBlock(), difference = state.view === "difference";
  return [
    heads > 1 && choice({ id: "view", "aria-label": "Heads taken together", onchange: ({ target }) => select({ view: target.value }) },
      [["head", "one head"], ["average", "average of heads"], ["maximum", "maximum of heads"], ["difference", "difference of two heads"]], state.view),
    heads > 1 && difference && choice({ id: "other", "aria-label": "The other head", onchange: ({ target }) => select({ other: Number(target.value) }) }, numbers(heads).map((n, h) => [h, `head ${n}`]), state.other),
    step.kind === "weights" && !difference && scaleChooser("scale"),
  ];
}

// Which scale the weights are drawn on; one choice for every panel.
function scaleChooser(id) {
  const automatic = scaleNames[chosenScale("auto", currentBlock().step("weights").matrix(state.head))];
  return field("scale", choice({ id, onchange: ({ target }) => select({ scale: target.value }) }, [["auto", `automatic: ${automatic}`], ...Object.entries(scaleNames)], state.scale));
}
