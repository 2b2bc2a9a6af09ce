// Experiments on the text that is read, those of attn experiment: each by a button, as a table whose cells are coloured.

// Cells are { value, text, title }: orange above a value that changes nothing, purple below.
function shareTable(caption, corner, columns, rows, cells) {
  const most = Math.max(...cells.flat().map(({ value }) => Math.abs(value)).filter(Number.isFinite), 1e-9);
  const colour = (value) => `color-mix(in srgb, ${seriesOf(value > 0 ? 1 : 6)} ${Math.round((65 * Math.abs(value)) / most) || 0}%, transparent)`;
  const cell = ({ value, text, title }) => element("td", { class: "number", title, style: { backgroundColor: colour(value) } }, text);
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    table({ class: "experiment" }, element("caption", {}, caption), [corner, ...columns], cells.map((row, r) => namedRow({}, rows[r], row.map(cell)))));
}

const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(3)}`;
const headsOf = (row) => numbers(row.length).map((n) => `head ${n}`);
const experiments = {
  effects: {
    title: "Switch off each head",
    tell: ({ before, after }) => [`The text’s loss is ${format(before)}. Each number is what it becomes more without that head: above 0 the head helps.`,
      shareTable("Loss without a head, less the loss with all", "layer", headsOf(after[0]), numbers(after.length), after.map((row, l) =>
        row.map((loss, h) => ({ value: loss - before, text: signed(loss - before), title: `layer ${l + 1}, head ${h + 1}: loss ${format(loss)}` }))))],
  },
  lens: {
    title: "Read each layer by the head",
    tell: ({ tokens, chance, loss, texts }) => ["The last norm and the head read what goes into each layer, and last what comes out: the token that is likeliest next, in a stronger colour the likelier.",
      shareTable("The logit lens", "into layer", [...texts.map((one) => word(one)), "loss"], [...numbers(tokens.length - 1), "out"], chance.map((row, l) =>
        [...row.map((value, c) => ({ value, text: word(tokens[l][c]), title: `behind ${word(texts[c])}: ${word(tokens[l][c])}, ${percent(value)}` })),
          { value: 0, text: loss[l] !== undefined && format(loss[l]), title: "mean loss of the text" }]))],
  },
  patching: {
    title: "Patch the text into a second one",
    tell: ({ clean, corrupt, a, b, stream, heads, texts }) => [`“${word(a)}” is the token that the text makes likelier than the second one does, and “${word(b)}” the other way round. The logit of the one less that of the other is ${signed(clean)} in the text and ${signed(corrupt)} in the second. 1: a part of the text, put into a pass on the second, gives back all of the difference. 0: none.`,
      ...[["What goes into a layer, at one token", stream, texts.map((one) => word(one)), "token "], ["What a head gives", heads, headsOf(heads[0]), ""]].map(([caption, values, columns, of]) =>
        shareTable(caption, "layer", columns, numbers(values.length), values.map((row, l) =>
          row.map((value, c) => ({ value, text: value.toFixed(2).replace("-", "−"), title: `layer ${l + 1}, ${of}${columns[c]}` })))))],
  },
};

// Asks about the text, the weights and the changes that are there; another answer takes away what was found.
function askExperiment(kind) {
  const other = byId("experiment-other").value, { at, edits } = live.now;
  fill(live.found, "Computing …");
  live.trying = { number: live.shown, turn: (live.trying?.turn ?? 0) + 1, asked: live.asked, experiment: kind, other, ids: live.ids, edits, at };
  live.worker.postMessage(live.trying);
}
// Runs the passes that are left of many, as long as nothing else is asked.
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
  fill(live.found, error ?? experiments[experiment].tell(found).map((part) => (typeof part === "string" ? element("p", {}, part) : part)));
  document.body.dataset.experiment = experiment;
}
function experimentsPanel() {
  live.found = element("div", { id: "experiment-found", "aria-live": "polite" });
  const other = input("experiment-other", "text", { size: 24, spellcheck: "false", placeholder: "a second text", "aria-label": "The second text, of as many tokens" });
  byId("live").after(element("details", { class: "panel", id: "experiments" }, element("summary", {}, element("h2", {}, "Experiments")),
    controls(Object.entries(experiments).map(([kind, { title }]) => [kind === "patching" && other, button(`experiment-${kind}`, title, () => askExperiment(kind))])), live.found));
}
