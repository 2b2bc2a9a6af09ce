// The steps as a strip; the chosen one large, and beside it where the selected number comes from.

// Heads are shown one by one, or several become one of these together.
const views = { head: "one head", average: "average of heads", maximum: "maximum of heads", difference: "difference of two heads" };
const together = {
  average: (values) => values.reduce((sum, x) => sum + x, 0) / values.length,
  maximum: (values) => Math.max(...values),
  difference: ([a, b]) => (a === b ? 0 : a - b),
};
const maskedInAll = (masks) => masks.every(Boolean) ? masks[0].map((_, at) => (masks.every((mask) => mask[at]) ? 1 : 0)) : undefined;
function combine(step, view, heads) {
  const parts = heads.map((head) => step.matrix(head));
  return { ...parts[0], values: parts[0].values.map((_, i) => together[view](parts.map(({ values }) => values[i]))), masked: maskedInAll(parts.map(({ masked }) => masked)) };
}

// The stage shows one head of a step, or several taken together.
function stageMatrix(step) {
  const { heads } = currentBlock(), view = step.pairs && heads > 1 ? state.view : "head";
  if (view === "head") return { matrix: step.matrix(state.head), view };
  const of = view === "difference" ? [state.head, state.other] : [...Array(heads).keys()];
  return { matrix: held(step.combined ??= new Map(), [view, ...of].join(), () => combine(step, view, of)), view };
}

// Effective weights, of a layer that keeps a state, have signs.
const hasSigns = (step) => step.kind === "weights" && Boolean(report.kind?.recurrent || step.block?.step("mapped keys"));

// Weights are drawn on the scale that was chosen, or around 0 where they have signs; all else from 0 or its smallest value.
const stepScale = (step, matrix) => scaleOf(matrix, step.kind !== "weights" ? "linear" : hasSigns(step) && rangeOf(matrix).low < 0 ? "diverging" : chosenScale(state.scale, matrix));

function stageView(step, room) {
  const { matrix, view } = stageMatrix(step), { rowLabels, columnLabels } = step;
  const row = step.ofKeys ? "key" : "query", column = step.pairs ? "key" : "column", several = currentBlock().heads > 1 && step.kind !== "tokens";
  const ofHeads = { average: "average of the heads", maximum: "maximum of the heads", difference: `head ${state.head + 1} − head ${state.other + 1}` };
  return {
    matrix, room, rowLabels, columnLabels, scale: view === "difference" ? scaleOf(matrix, "diverging") : stepScale(step, matrix),
    label: named(step.name, several && view === "head" ? headName() : layerName(), ofHeads[view]), corner: step.pairs ? "query ↓ key →" : "",
    selected: { row: state[row], column: state[column] }, pick: (i, j) => select({ [row]: i, [column]: j }),
  };
}

function stepCard(step, place) {
  const matrix = step.matrix(state.head), on = step === currentStep();
  const shape = (step.kind === "tokens" ? [step.rows, step.columns] : [step.planes, step.rows, step.columns]).join(", ");
  return button(null, [element("span", { class: "card-title" }, step.name), !severalLayers() && element("span", { class: "card-picture" }, pixelsOf(matrix, stepScale(step, matrix))),
    element("code", { class: [shape.length > 10 && "long"] }, `(${shape})`)], () => select({ step: step.name }),
  { class: ["card", on && "on"], "data-step": step.name, role: "radio", "aria-checked": String(on), tabindex: on ? 0 : -1, style: place });
}

// Selects the step that is so many behind the current one; tells whether there is one.
function stepBy(by) {
  const { steps } = currentBlock(), next = steps[steps.indexOf(currentStep()) + by];
  if (next) select({ step: next.name });
  return next;
}

// One step after the other, from the inputs on, or from where it was paused.
function player() {
  let timer = null, paused = "";
  const stop = () => { clearInterval(timer); timer = null; paused = state.step; play.textContent = "▶ Play"; };
  const start = () => {
    if (state.step !== paused || currentStep() === currentBlock().steps.at(-1)) select({ step: currentBlock().steps[0].name });
    timer = setInterval(() => stepBy(1) ?? stop(), 1600);
    play.textContent = "❚❚ Pause";
  };
  const play = button("play", "▶ Play", () => (timer ? stop() : start()));
  const one = (id, by, text) => button(id, text, () => { stop(); stepBy(by); });
  return [one("back", -1, "← Back"), play, one("next", 1, "Step →")];
}

function stagePanel(host) {
  const strip = roving(element("div", { class: "strip", id: "strip", role: "radiogroup", "aria-label": "Steps" }), (down, right) => stepBy(down + right));
  const title = element("h3", { id: "stage-title" }), view = element("div", { class: "stage-matrix", id: "stage-matrix" }), side = element("div", { class: "stage-side", id: "stage-side" });
  const below = element("div", { class: "below" }), choices = element("span", { class: "controls", id: "stage-controls" });
  let drawnFor = "", seen = fromHash().step ? "" : state.step;
  const current = () => stageView(currentStep(), view.clientWidth), rows = (queries, exact) => (currentStep().pooled ? topRows(queries) : exact(current()));
  const out = exports({ name: () => fileName(state.step), title: () => stageView(currentStep()).label, svg: () => matrixSvg(current()),
    csv: () => rows([...report.tokens.keys()], matrixRows), table: () => rows([state.query], tableRows) });
  fill(host, lead(currentBlock().softmaxInput() ? "Choose a step, then a cell: beside it stands the arithmetic that made the number." : "Choose a cell: beside it stands what is known of the number."),
    strip, element("div", { class: "stage" }, element("div", {}, title, view, below, controls(player(), choices), out), side));
  return () => {
    const step = currentStep(), shown = current(), id = named(headName(), state.step, state.scale);
    if (drawnFor !== id) {
      fill(strip, flow(currentBlock()));
      // The strip begins at its beginning; it follows a step that was chosen, and the page stays where it is.
      const card = state.step !== seen && strip.querySelector(".on");
      if (card) strip.scrollLeft = card.offsetLeft + card.offsetWidth / 2 - strip.clientWidth / 2;
      [seen, drawnFor] = [state.step, id];
    }
    fill(title, shown.label, element("small", {}, step.kind !== "tokens" && kindOf(currentBlock().kinds?.[state.head]).text));
    fill(view, matrixView(shown));
    fill(below, legend(shown.scale, { name: step.name }), quiet(say(hasSigns(step) ? "Effective weights: the context is their sum of the values." : step.meaning),
      step.kind === "scores" && shown.scale.masked > 0 && step.name !== "masked" && " The mask will hide the hatched ones."));
    fill(choices, stageControls(step));
    fill(side, report.tokens.length > 0 && report.keyTokens.length > 0 && step.columns > 0 &&
      arithmeticView(arithmetic(currentBlock(), step.name, state.head, state.query, state.key, state.column)));
    // Said to a screen reader, unless the focus is in a picture, which says it itself.
    if (!document.activeElement.closest("[data-roving]")) byId("status").textContent = named(shown.label, side.querySelector("h3")?.textContent);
  };
}

const topRows = (queries) => [["query", "key", "weight"], ...queries.flatMap((i) =>
  topKeys(currentStep(), state.head, i).map(({ key, weight }) => [report.tokens[i], report.keyTokens[key], weight]))];

function stageControls(step) {
  const { heads } = currentBlock(), difference = state.view === "difference";
  if (!step.pairs) return [];
  return [heads > 1 && chooser("view", { id: "view", "aria-label": "Heads taken together" }, Object.entries(views)),
    heads > 1 && difference && chooser("other", { id: "other", "aria-label": "The other head" }, numbers(heads).map((n, h) => [h, `head ${n}`])),
    step.kind === "weights" && !difference && scaleChooser("scale")];
}

// Which scale the weights are drawn on; one choice for every panel.
function scaleChooser(id) {
  const automatic = scaleNames[chosenScale("auto", currentBlock().step("weights").matrix(state.head))];
  return field("scale", chooser("scale", { id }, [["auto", `automatic: ${automatic}`], ...Object.entries(scaleNames)]));
}
