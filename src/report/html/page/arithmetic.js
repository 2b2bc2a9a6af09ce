// Where one number of one step comes from: its terms with the real numbers, their total, and the library's number.

const dot = "·";
const float32Unit = 2 ** -24;  // half the distance of two float32 numbers at 1
const minus = (x) => (x < 0 ? `(${format(x)})` : format(x));

// a · b summed over their index: names for the columns, a label and two numbers for each term.
function products(title, names, terms, { bias, result, say, zero, masked, unit = 0 }) {
  let total = bias ?? 0, size = Math.abs(total);
  for (const [, a, b] of terms) {
    const term = a === 0 && zero ? 0 : a * b;
    total += term, size += Math.abs(term);
  }
  return {
    title, total, result, masked, say, bound: ((terms.length + 2) * float32Unit + 2 * unit) * size,
    columns: [...names, "product"],
    rows: terms.map(([label, a, b]) => [label, a, b, a * b]),
    written: [terms.map(([, a, b]) => `${minus(a)}${dot}${minus(b)}`).join(" + "), bias !== undefined && `${minus(bias)} (bias)`].filter(Boolean).join(" + "),
    bias,
  };
}

const given = (title, result, say, more) => ({ title, result, total: result, columns: [], rows: [], written: format(result), say, ...more });
const missing = (title, result, say, more) => given(title, result, say, { alone: true, ...more });  // its origin is not in the report

function arithmetic(block, name, head, query, key, column) {
  const step = block.step(name), q = word(report.tokens[query]), k = word(report.keyTokens[key]);
  const row = step.ofKeys ? key : query, at = step.pairs ? key : column;
  return explanations[name]({ block, step, head, query, key, column, q, k, result: step.at(head, row, at) });
}

// A row of a step times a column of a projection.
function byColumn(title, names, of, row, p, column, result, say) {
  if (!p || !of) return missing(title, result, "The projection’s weights are not in this report.");
  const terms = Array.from({ length: p.inputs }, (_, i) => [`${i + 1}`, of.at(0, row, i), p.at(i, column)]);
  return products(title, names, terms, { unit: config?.unit, bias: p.hasBias ? p.bias(column) : undefined, result, say });
}
function projected(which, symbol, of, row, token, { head, column, result, step }) {
  const p = report.module === "average" ? undefined : projection(which, head, step.columns);
  return byColumn(`${symbol}(${token})[${column + 1}]`, ["dimension", `x(${token})`, which], of, row, p, column, result, `The row of x times column ${column + 1} of this head's ${which}.`);
}

// A number of a pair that turned by its position.
function turnedNumber(name, symbol, row, token, { block, head, column, result }) {
  const from = block.step(name), title = `${symbol}′(${token})[${column + 1}]`;
  if (!config?.rope || !from) return missing(title, result, "How fast pairs turn is not in this report.");
  const turn = turnOf(column, row);
  if (!turn) return given(title, result, "This number does not turn.");
  const term = (c, by) => [`${c + 1}`, from.at(head, row, c), by];
  return products(title, ["number", `${symbol}(${token})`, "cos, ± sin"], [term(column, turn.cos), term(turn.other, turn.sin)],
    { result, say: `Numbers ${Math.min(column, turn.other) + 1} and ${Math.max(column, turn.other) + 1} are a pair. At position ${row} it turns by ${row} · ${format(turn.rate)} = ${format(turn.angle)} rad, ${(turn.angle * 180 / Math.PI).toFixed(1)}°.` });
}

// A score that a step changes by what the report does not hold, and one to which it adds.
function changed(name, { block, head, query, key, q, k, result }, say, adds) {
  const before = block.before(name)?.at(head, query, key), title = `${name}(${q}, ${k})`;
  if (adds && Number.isFinite(before) && Number.isFinite(result)) return given(title, result, say, { written: `${minus(before)} + ${minus(result - before)}` });
  return missing(title, result, before === undefined ? say : `${say} Before: ${format(before)}.`);
}

// What meets the state: elu + 1 of a projection, or its silu made 1 long.
function mapped(symbol, of, row, token, { block, head, column, result, step }) {
  const from = block.step(of), title = `${symbol}′(${token})[${column + 1}]`;
  if (!from || report.module === undefined || !report.kind?.recurrent) return missing(title, result);
  const x = from.at(head, row, column);
  if (report.module === "linear") {
    return given(title, result, "elu + 1: above 0 the number and 1, else exp of it. It is never negative.", { total: x > 0 ? x + 1 : Math.exp(x), written: x > 0 ? `${minus(x)} + 1` : `exp(${minus(x)})` });
  }
  const silu = (y) => y / (1 + Math.exp(-y)), squares = Array.from({ length: step.columns }, (_, c) => silu(from.at(head, row, c)) ** 2).reduce((s, y) => s + y, 1e-6);
  return given(title, result, "silu, x / (1 + exp(−x)), and all numbers divided by their length.", { total: silu(x) / Math.sqrt(squares), written: `silu(${minus(x)}) / ${format(Math.sqrt(squares))}` });
}

const explanations = {
  inputs: ({ q, column, result }) => given(`x(${q})[${column + 1}]`, result, "Given: the word's embedding."),
  source: ({ k, column, result }) => given(`x(${k})[${column + 1}]`, result, "Given: the other source's embedding."),
  queries: (a) => projected("W_query", "q", a.block.step("inputs"), a.query, a.q, a),
  keys: (a) => projected("W_key", "k", a.block.step("source") ?? a.block.step("inputs"), a.key, a.k, a),
  values: (a) => projected("W_value", "v", a.block.step("source") ?? a.block.step("inputs"), a.key, a.k, a),

  "rotated queries": (a) => turnedNumber("queries", "q", a.query, a.q, a),
  "rotated keys": (a) => turnedNumber("keys", "k", a.key, a.k, a),

  scores({ block, head, query, key, q, k, result }) {
    const own = block.step("inputs"), rotated = block.step("rotated queries");
    const qs = rotated ?? block.step("queries") ?? own, ks = block.step("rotated keys") ?? block.step("keys") ?? own;
    const title = `score(${q}, ${k})`;
    if (!qs || !ks) return missing(title, result, "Queries and keys are not in this report.");
    const letters = rotated ? ["q′", "k′"] : block.step("queries") ? ["q", "k"] : ["x", "x"];
    const terms = Array.from({ length: qs.columns }, (_, c) => [`${c + 1}`, qs.at(head, query, c), ks.at(head, key, c)]);
    return products(title, ["dimension", `${letters[0]}(${q})`, `${letters[1]}(${k})`], terms,
      { result, say: "How alike the query and the key point: their dot product." });
  },

  scaled({ block, head, query, key, q, k, result }) {
    const score = block.step("scores")?.at(head, query, key), factor = scaleFactor(), size = block.step("queries")?.columns;
    const root = size && Math.abs(factor * Math.sqrt(size) - 1) < 1e-9;
    if (score === undefined) return missing(`scaled(${q}, ${k})`, result);
    const told = root ? "Divided by the root of the key's size, so that softmax does not become a step as vectors grow." : "Times the scale.";
    return given(`scaled(${q}, ${k})`, result, told, { total: score * factor, written: root ? `${minus(score)} / √${size}` : `${minus(score)}${dot}${format(factor)}` });
  },

  capped: (a) => changed("capped", a, "The softcap bends large scores: cap · tanh(score / cap)."),
  scored: (a) => changed("scored", a, "As the score function changes it."),
  biased: (a) => changed("biased", a, "The score and the bias of this query and key.", true),
  relative: (a) => changed("relative", a, "The score and what the head has learned of the distance.", true),
  alibi: (a) => changed("alibi", a, "The score falls with the distance, by the head’s slope.", true),

  masked({ block, head, query, key, q, k, result }) {
    const before = block.before("masked")?.at(head, query, key), title = `masked(${q}, ${k})`;
    if (result === -Infinity) return given(title, result, key > query ? `“${k}” comes after “${q}”: it may not be seen, and exp(−∞) = 0.` : "This key may not be seen: exp(−∞) = 0.");
    if (before !== undefined && before !== result) return given(title, result, "The scaled score, changed on its way.");
    return given(title, result, `“${k}” may be seen by “${q}”: the score stays.`);
  },

  "mapped queries": (a) => mapped("q", "queries", a.query, a.q, a),
  "mapped keys": (a) => mapped("k", "keys", a.key, a.k, a),
  beta: ({ k, result }) => given(`β(${k})`, result, "The sigmoid of W_beta · x."),
  decay: ({ k, result }) => given(`decay(${k})`, result, `The state keeps exp of it, ${format(Math.exp(result))}.`),
  normed: ({ q, column, result }) => given(`normed(${q})[${column + 1}]`, result, "The context by its root mean square, times the norm’s weight; in gated-delta times silu(W_gate · x)."),

  weights(a) {
    const { block, step, head, query, key, q, k, result } = a;
    const scores = block.softmaxInput(), title = `weight(${q}, ${k})`;
    if (!scores) return weightAlone(a, title);
    const row = Array.from({ length: step.columns }, (_, j) => scores.at(head, query, j));
    const most = row.reduce((m, x) => (x > m || Number.isNaN(x) ? x : m), -Infinity);
    if (most === -Infinity) return given(title, result, "No key may be seen: the weights are 0.", { total: 0 });
    const sink = block.sinks?.[head], exps = row.map((x) => Math.exp(x - most));
    const sum = exps.reduce((s, x) => s + x, sink === undefined ? 0 : Math.exp(sink - most));
    return { title, total: exps[key] / sum, result,
      columns: ["key", "score", "exp(score − largest)", "weight"],
      rows: row.map((x, j) => [word(report.keyTokens[j]), x, exps[j], exps[j] / sum]), masked: row.map((x) => x === -Infinity),
      marked: key, sum: ["sum", "", sum, 1],
      written: `exp(${minus(row[key])} − ${minus(most)}) / ${format(sum)} = ${format(exps[key])} / ${format(sum)}`,
      bound: 2 * float32Unit * exps[key] / sum * row.reduce((m, x) => (Number.isFinite(x) ? Math.max(m, Math.abs(x)) : m), 2) + 2 ** -126,
      say: sink === undefined ? "Softmax: the scores of a row become weights that sum to 1."
        : `Softmax: the scores of a row and the head's sink, ${format(sink)}, become weights that sum to 1.` };
  },

  dropped({ block, head, query, key, q, k, result }) {
    const weight = block.step("weights").at(head, query, key), p = dropoutChance(block), title = `dropped(${q}, ${k})`;
    if (result === 0 && weight !== 0) return given(title, result, "Dropped in this training step.");
    return given(title, result, "Kept, and made larger so that the mean stays.", { total: weight / (1 - p), written: `${format(weight)} / (1 − ${format(p, 3)})` });
  },

  context({ block, head, query, column, q, result }) {
    const values = block.step("values") ?? block.step("inputs"), weights = block.step("dropped") ?? block.step("weights");
    const title = `context(${q})[${column + 1}]`;
    if (!values) return missing(title, result);
    const some = weights.pooled ? topKeys(weights, head, query) : Array.from({ length: weights.columns }, (_, j) => ({ key: j, weight: weights.at(head, query, j) }));
    const letter = block.step("values") ? "v" : "x";
    return products(title, ["key", "weight", letter], some.map(({ key, weight }) => [word(report.keyTokens[key]), weight, values.at(head, key, column)]),
      { result, masked: some.map(({ key }) => block.hides(head, query, key)), zero: true, say: weights.pooled ? `The ${some.length} largest weights of the row; values in 8 bits.` : "Every value, times how much the query looks at it." });
  },

  gated({ block, head, query, column, q, result }) {
    const [context, gate] = ["context", "gates"].map((name) => block.step(name)?.at(head, query, column)), title = `gated(${q})[${column + 1}]`;
    if (context === undefined || gate === undefined) return missing(title, result);
    return given(title, result, "The sigmoid of the gate is between 0, which closes, and 1, which lets the context pass.",
      { total: context / (1 + Math.exp(-gate)), written: `${format(context)} / (1 + exp(−(${format(gate)})))` });
  },

  merged({ block, query, column, q, result }) {
    const from = block.step("normed") ?? block.step("gated") ?? block.step("context"), size = from?.columns, title = `merged(${q})[${column + 1}]`;
    if (!size) return missing(title, result);
    const head = Math.floor(column / size), total = from.at(head, query, column % size);
    return given(title, result, `Column ${column % size + 1} of head ${head + 1}'s context: the heads stand side by side.`, { total, written: format(total) });
  },

  output({ block, query, column, q, result, step }) {
    const from = block.step("merged") ?? block.step("normed") ?? block.step("gated") ?? block.step("context"), which = config?.latents ? "o_proj" : "out_proj";
    return byColumn(`output(${q})[${column + 1}]`, ["column", "merged", which], from, query, projection(which, 0, step.columns), column, result, "The output projection mixes the heads.");
  },
};

function weightAlone({ step, head, query, key, q, result }, title) {
  if (report.module === "average") {
    return given(title, result, `“${q}” and what came before it, all alike.`, key <= query ? { total: 1 / (query + 1), written: `1 / ${query + 1}` } : { total: 0, written: "0" });
  }
  if (!step.pooled && hasSigns(step)) return given(title, result, "The effective weight: what the state gives back of this word’s value. It may be negative.");
  const tops = step.pooled ? topKeys(step, head, query) : [];
  const known = !step.pooled || tops.some((top) => top.key === key);
  return missing(title, result, step.pooled ? `Of this row the ${tops.length} largest weights are exact; the others are the map's, in 8 bits.` : "Scores are not in this report.",
    { columns: tops.length ? ["key", "weight"] : [], rows: tops.map((top) => [word(report.keyTokens[top.key]), top.weight]), marked: tops.findIndex((top) => top.key === key), near: !known });
}

// p, from the module or from what is left of a kept weight.
function dropoutChance(block) {
  if (config) return config.dropout;
  const weights = block.step("weights").values, dropped = block.step("dropped").values;
  const at = dropped.findIndex((x) => x !== 0);
  return at < 0 ? 1 : 1 - weights[at] / dropped[at];
}

// ---- as elements -----------------------------------------------------------------------
const shownTerms = 12;

// Which terms are shown of many: the chosen one, and the largest of those that no mask hides.
function fewTerms(a) {
  const order = a.rows.map((_, i) => i), last = a.columns.length - 1, size = (i) => Math.abs(a.rows[i][last]) || 0;
  if (order.length <= shownTerms) return order;
  const open = order.filter((i) => !a.masked?.[i] || i === a.marked);
  if (open.length <= shownTerms) return open;
  return open.sort((x, y) => (y === a.marked) - (x === a.marked) || size(y) - size(x)).slice(0, shownTerms - 1).sort((x, y) => x - y);
}
// The others, in words: "14 more, masked".
function leftTerms(a, few) {
  const left = a.rows.map((_, i) => i).filter((i) => !few.includes(i)), masked = left.filter((i) => a.masked?.[i]).length, smaller = left.length - masked;
  return [smaller && `${smaller} more, smaller`, masked && `${masked} more, masked`].filter(Boolean).join("; ");
}

function arithmeticView(a) {
  const bound = a.bound ?? 4 * float32Unit * Math.abs(a.result);
  const agrees = !a.near && (Object.is(a.total, a.result) || Math.abs(a.total - a.result) <= bound);
  const number = (x) => element("td", { class: "number", title: typeof x === "number" ? exactly(x) : null }, typeof x === "number" ? format(x) : x);
  const row = (cells, i) => element("tr", { class: i === a.marked ? "on" : null }, element("th", { scope: "row" }, element("bdi", {}, cells[0])), cells.slice(1).map(number));
  const few = fewTerms(a), left = a.rows.length - few.length, bias = a.bias !== undefined && ["bias", ...a.columns.slice(2).map(() => ""), a.bias];
  return element("div", { class: "arithmetic", "data-total": String(a.total), "data-result": exactly(a.result) },
    element("h3", {}, element("bdi", {}, a.title), " = ", element("span", { class: "result", title: exactly(a.result) }, (a.near ? "≈ " : "") + format(a.result))),
    element("p", { class: "quiet" }, say(a.say ?? "")),
    a.rows.length <= 8 && !a.alone ? element("p", { class: "written number" }, `${a.written} = ${format(a.total)}`) : null,
    a.columns.length > 0 && element("div", { class: "scroll" }, table({ class: "terms" }, element("caption", { class: "unseen" }, "The terms"),
      a.columns.map((name, i) => element("th", { scope: "col", class: i ? "number" : null }, element("bdi", {}, name))),
      [...few.map((i) => row(a.rows[i], i)), left > 0 && element("tr", { class: "quiet more" }, element("td", { colspan: a.columns.length }, leftTerms(a, few))), bias && row(bias, -2),
        a.sum ? element("tr", { class: "sum" }, a.sum.map((x, i) => (i ? number(x) : element("td", {}, x))))
          : a.columns.at(-1) === "product" && element("tr", { class: "sum" }, element("td", { colspan: a.columns.length - 1 }, "sum"), number(a.total))])),
    a.columns.length > 0 && exports({ name: () => "arithmetic", title: () => a.title, table: null, csv: () => [a.columns, ...a.rows, ...(bias ? [bias] : [])] }),
    a.alone ? null : element("p", { class: agrees ? "agrees" : "quiet" }, agrees ? `The library has the same number${a.total === a.result ? "." : `, as near as rounding allows: ${format(bound)}.`}` : a.near ? "" : `The library has ${exactly(a.result)}; the terms above give ${format(a.total, 6)}.`));
}
