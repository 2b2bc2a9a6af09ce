// Experiments on the text that is read, those of attn experiment: each by a button, as a table whose cells are coloured.

// One number a cell: orange above what changes nothing, purple below; its words are its title.
function shareTable({ caption, corner, columns, rows, values, text, title }) {
  const most = Math.max(...values.flat().filter(Number.isFinite).map(Math.abs), 1e-9);
  const colour = (value) => `color-mix(in srgb, ${seriesOf(value > 0 ? 1 : 6)} ${Math.round((65 * Math.abs(value)) / most) || 0}%, transparent)`;
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, table({ class: "experiment" }, element("caption", {}, caption),
    [corner, ...columns].map((name) => element("th", { scope: "col" }, name)),
    values.map((row, r) => element("tr", {}, element("th", { scope: "row" }, rows[r]), row.map((value, c) => element("td", { class: "number", title: title(r, c), style: { backgroundColor: colour(value) } }, text(r, c)))))));
}

const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(3)}`;
const experiments = {
  effects: {
    title: "Switch off each head", told: ({ before, after }) => [`The text’s loss is ${format(before)}. Each number is what it becomes more without that head: above 0 the head helps.`,
      shareTable({ caption: "Loss without a head, less the loss with all", corner: "layer", columns: numbers(after[0].length).map((n) => `head ${n}`), rows: numbers(after.length),
        values: after.map((row) => row.map((x) => x - before)), text: (r, c) => signed(after[r][c] - before), title: (r, c) => `layer ${r + 1}, head ${c + 1}: loss ${format(after[r][c])}` })],
  },
  lens: {
    title: "Read each layer by the head", told: ({ tokens, chance, loss, texts }) => ["The last norm and the head read what goes into each layer, and last what comes out: the token that is likeliest next, in a stronger colour the likelier.",
      shareTable({ caption: "The logit lens", corner: "into layer", columns: [...texts.map((one) => word(one)), "loss"], rows: tokens.map((_, l) => (l + 1 < tokens.length ? String(l + 1) : "out")),
        values: chance.map((row) => [...row, 0]), text: (r, c) => (c < texts.length ? word(tokens[r][c]) : loss[r] === undefined ? "" : format(loss[r])), title: (r, c) => (c < texts.length ? `behind ${word(texts[c])}: ${word(tokens[r][c])}, ${percent(chance[r][c])}` : "mean loss of the text") })],
  },
  patching: {
    title: "Patch the text into a second one", told: ({ clean, corrupt, a, b, stream, heads, texts }) => [`“${word(a)}” is the token that the text makes likelier than the second one does, and “${word(b)}” the other way round. The logit of the one less that of the other is ${signed(clean)} in the text and ${signed(corrupt)} in the second. 1: a part of the text, put into a pass on the second, gives back all of the difference. 0: none.`,
      ...[["What goes into a layer, at one token", stream, texts.map((one) => word(one)), "token"], ["What a head gives", heads, numbers(heads[0].length).map((n) => `head ${n}`), ""]].map(([caption, values, columns, of]) =>
        shareTable({ caption, corner: "layer", columns, rows: numbers(values.length), values, text: (r, c) => values[r][c].toFixed(2).replace("-", "−"), title: (r, c) => named(`layer ${r + 1}`, `${of} ${columns[c]}`.trim()) }))],
  },
};

// What is asked is of the text, the weights and the changes that are there; another answer takes what was found away.
function askExperiment(kind) {
  const other = byId("experiment-other").value, { at, edits } = live.now;
  fill(live.found, "Computing …");
  live.trying = { number: live.shown, turn: (live.trying?.turn ?? 0) + 1, asked: live.asked, experiment: kind, other, ids: live.ids, edits, at };
  live.worker.postMessage(live.trying);
}
// Of many passes some are left: they are run as long as nothing else is asked.
function goOn(left) {
  if (live.asked !== live.trying.asked) return fill(live.found, "Left off, since something else was asked.");
  const bar = live.found.querySelector("progress") ?? element("progress", { max: left, "aria-label": "Passes" });
  if (!bar.parentNode) fill(live.found, "Computing … ", bar);
  bar.value = bar.max - left;
  live.worker.postMessage({ ...live.trying, goesOn: true });
}
function showExperiment({ number, turn, experiment, found, error }) {
  if (number !== live.shown || turn !== live.trying.turn) return;
  if (found?.left) return goOn(found.left);
  live.experiment = found;
  fill(live.found, error ?? experiments[experiment].told(found).map((part) => (typeof part === "string" ? element("p", {}, part) : part)));
  document.body.dataset.experiment = experiment;
}
function experimentsPanel() {
  live.found = element("div", { id: "experiment-found", "aria-live": "polite" });
  const other = element("input", { id: "experiment-other", type: "text", size: 24, spellcheck: "false", placeholder: "a second text", "aria-label": "The second text, of as many tokens" });
  byId("live").after(element("details", { class: "panel", id: "experiments" }, element("summary", {}, element("h2", {}, "Experiments")),
    controls(Object.entries(experiments).map(([kind, { title }]) => [kind === "patching" && other, button(`experiment-${kind}`, title, () => askExperiment(kind))]).flat()), live.found));
}
