// Shows what a run of attn train has kept on its way: a slider puts the weights of a step in the model's place, and
// loss, next tokens, every layer and the names of heads follow.

const stepName = (at) => (at === undefined ? "the end of the run" : `step ${live.steps[at]}`);
function checkpointField() {
  live.losses = [];
  const last = live.steps.length, slider = input("live-step", "range", { min: 0, max: last, step: 1, value: last, "aria-label": "Weights of the run at",
    oninput: () => ask({ at: Number(slider.value) === last ? undefined : Number(slider.value) }, "moved") });
  return element("div", { class: "controls", id: "live-checkpoints" }, field("weights at ", slider), element("output", { id: "live-at", for: "live-step" }), element("span", { id: "live-losses", role: "img" }));
}

// Losses of the text by all steps that were looked at, as a line; the slider shows which one is there.
function showStep() {
  const { at, text, edits } = live.now, slider = byId("live-step"), last = live.steps?.length;
  if (!last) return;
  slider.value = at ?? last;
  slider.setAttribute("aria-valuetext", stepName(at));
  byId("live-at").textContent = named(stepName(at), live.keptInBytes && at !== undefined && "in 8 bits");
  const of = JSON.stringify([text, edits]);
  if (live.lossesOf !== of) live.losses = [];
  live.lossesOf = of;
  if (live.next && live.next.loss !== "nan") live.losses[at ?? last] = Number(live.next.loss);
  const most = Math.max(...live.losses.filter(Boolean));
  const known = live.losses.map((loss, n) => ({ loss, n, x: 4 + 112 * n / last, y: 36 - 30 * loss / most })).filter(Boolean);
  byId("live-losses").setAttribute("aria-label", known.map(({ loss, n }) => `loss ${format(loss)} at ${stepName(n === last ? undefined : n)}`).join(", "));
  fill(byId("live-losses"), known.length > 1 && element("svg", { width: 120, height: 40, "aria-hidden": "true" },
    element("polyline", { points: known.map(({ x, y }) => `${x},${y}`).join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5 }),
    known.map(({ x, y, n }) => element("circle", { cx: x, cy: y, r: n === (at ?? last) ? 4 : 2, fill: "currentColor" }))));
}

// Heads are named anew where other weights read the text, or a model was opened from disk.
function askNames() {
  if (!live.namesDue) return;
  live.namesDue = false;
  live.worker.postMessage({ number: live.shown, names: live.ids });
}
function showNames({ named: least, layers, count }) {
  layers.forEach(({ kinds }, b) => { blocks[b].kinds = kinds; });
  Object.assign(report, { repeated: count, named: least });
  drawPanels();
}
