// Lab: the selected row's scores, made larger or smaller, by three ways of normalising.

const exp32 = (x) => Math.fround(Math.exp(x));

function bySum(scores) {
  const sum = scores.reduce((a, b) => a + b, 0);
  return scores.map((s) => Math.fround(s / sum));
}
// In float32 throughout: past e^88.7 there is only infinity.
function naiveSoftmax(scores) {
  let sum = 0;
  for (const s of scores) sum = Math.fround(sum + exp32(s));
  return scores.map((s) => Math.fround(exp32(s) / sum));
}
const stableSoftmax = (scores) => Array.from(softmaxRow(Float64Array.from(scores)), Math.fround);

function softmaxSentence(naive, stable, scores) {
  const most = Math.max(...stable), largest = Math.max(...scores);
  const overflow = naive.some(Number.isNaN) ? `The naive softmax fails: exp(${format(largest, 1)}) is too large for float32, and ∞ / ∞ is NaN. ` : "";
  if (naive.every((x) => x === 0)) return "The naive softmax fails: every exponential is 0.";
  if (stable.length > 1 && most > 0.999) return `${overflow}Softmax has become a step: ${percent(most)} on one key. Small changes of the scores no longer matter, and gradients vanish.`;
  if (stable.length > 1 && most < 1.02 / stable.length) return `${overflow}Softmax is nearly uniform: every key gets about 1/${stable.length}.`;
  return `${overflow}All keys have a say: the largest weight is ${percent(most)}.`;
}

function softmaxPanel(host) {
  const step = currentBlock().step("scores") ?? currentBlock().step("scaled");
  if (!step || !step.rows || !step.columns) return;
  const slider = element("input", { type: "range", id: "softmax-scale", min: -2, max: 4, step: 0.01, value: Math.log10(Math.abs(scaleFactor()) || 1) });
  const factorText = element("output", { class: "number", id: "softmax-factor" }), table = element("div", {}), said = element("p", { class: "note", id: "softmax-said", "aria-live": "polite" });
  let factor = scaleFactor(), numbersShown = [];
  const visible = () => {
    const block = currentBlock(), masked = block.step("masked");
    return report.keyTokens.map((_, key) => key).filter((key) => masked?.at(state.head, state.query, key) !== -Infinity);
  };
  const draw = () => {
    const block = currentBlock(), scores = block.step("scores") ?? block.step("scaled"), keys = visible();
    const scaled = keys.map((key) => Math.fround(scores.at(state.head, state.query, key) * factor));
    const ways = [bySum(scaled), naiveSoftmax(scaled), stableSoftmax(scaled)];
    const bar = (x) => {
      const cell = element("td", { class: "number bar", "data-value": String(x) }, format(x));
      const width = Number.isFinite(x) ? Math.min(Math.max(x, 0), 1) * 100 : 0;
      cell.style.backgroundSize = `${width}% 70%`;
      if (!Number.isFinite(x) || x < 0) cell.classList.add("wrong");
      return cell;
    };
    const few = keys.length <= 16 ? keys.map((_, i) => i) : keys.map((_, i) => i).sort((a, b) => ways[2][b] - ways[2][a]).slice(0, 16);
    numbersShown = few.map((i) => [report.keyTokens[keys[i]], scaled[i], ...ways.map((way) => way[i])]);
    factorText.textContent = format(factor, 3);
    said.textContent = keys.length ? softmaxSentence(ways[1], ways[2], scaled) : "This query sees no key.";
    fill(table, element("table", { class: "plain wide" }, element("caption", { class: "unseen" }, "The selected query’s scores, normalised in three ways"), element("thead", {}, element("tr", {},
      ["key", "score · scale", "s / Σ s", "naive: exp(s) / Σ exp(s)", "stable: exp(s − max) / Σ"].map((name, i) => element("th", { scope: "col", class: i ? "number" : null }, name)))),
    element("tbody", {}, few.map((i) => element("tr", { "data-key": keys[i], class: keys[i] === state.key ? "on" : null }, element("td", {}, token(report.keyTokens[keys[i]])),
      element("td", { class: "number" }, format(scaled[i])), ways.map((way) => bar(way[i])))))),
    few.length < keys.length ? element("p", { class: "quiet" }, `The ${few.length} largest of ${keys.length} keys.`) : null);
  };
  slider.addEventListener("input", () => { factor = 10 ** Number(slider.value); draw(); });
  const reset = element("button", { type: "button", id: "softmax-reset", onclick: () => { factor = scaleFactor(); slider.value = String(Math.log10(Math.abs(factor) || 1)); draw(); } }, "the module’s scale");
  fill(host, element("p", { class: "lead" }, "The selected query’s scores, times a scale of your choice. Dividing by the sum breaks on negative scores, the naive softmax overflows, the stable one does neither."),
    element("div", { class: "controls" }, element("label", { class: "field" }, "scale", slider), factorText, reset), said, element("div", { class: "scroll" }, table),
    exports({ name: () => "softmax", title: () => `Three ways to normalise, ${headName()}`, table: null, csv: () => [["key", "score", "by sum", "naive", "stable"], ...numbersShown] }));
  onSelection(draw);
}
