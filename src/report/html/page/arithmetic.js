// Where one number of one step comes from: its terms with the real numbers, their total, and the library's number.

const dot = "·";
const float32Unit = 2 ** -24;  // half the distance of two float32 numbers at 1
const minus = (x) => (x < 0 ? `(${format(x)})` : format(x));
const symbols = { inputs: "x", source: "x", queries: "q", keys: "k", values: "v", "rotated queries": "q′", "rotated keys": "k′", "mapped queries": "q′",
  "mapped keys": "k′", beta: "β", scores: "score", weights: "weight", latents: "latent", "query latents": "latent of the query" };

// A number as it stands, but for what an explanation says otherwise.
function arithmetic(block, name, head, query, key, column) {
  const step = block.step(name), q = word(report.tokens[query]), k = word(report.keyTokens[key]);
  const [row, token] = step.ofKeys ? [key, k] : [query, q], result = step.at(head, row, step.pairs ? key : column);
  const place = step.pairs ? `(${q}, ${k})` : `(${token})[${column + 1}]`;
  const explained = explanations[name]?.({ block, step, head, query, key, column, q, k, row, token, result }) ?? missing();
  return { title: (symbols[name] ?? name) + place, result, total: result, written: format(result), columns: [], rows: [], ...explained };
}

const missing = (say = "", more) => ({ say, alone: true, ...more });  // its origin is not in the report

// a · b summed over their index: names for the columns, a label and two numbers for each term.
function products(names, terms, { bias, zero, unit = 0, ...more }) {
  let total = bias ?? 0, size = Math.abs(total);
  for (const [, a, b] of terms) {
    const term = a === 0 && zero ? 0 : a * b;
    total += term, size += Math.abs(term);
  }
  return {
    total, bias, bound: ((terms.length + 2) * float32Unit + 2 * unit) * size, columns: [...names, "product"],
    rows: terms.map(([label, a, b]) => [label, a, b, a * b]),
    written: terms.map(([, a, b]) => `${minus(a)}${dot}${minus(b)}`).join(" + ") + (bias === undefined ? "" : ` + ${minus(bias)} (bias)`), ...more,
  };
}

// A row of a step times a column of a projection.
function projected({ row, column }, of, letter, which, p, say) {
  if (!p || !of) return missing("The projection’s weights are not in this report.");
  const terms = of.row(0, row).map((x, i) => [`${i + 1}`, x, p.at(i, column)]);
  return products(["dimension", letter, which], terms, { unit: config?.unit, bias: p.bias?.(column), say });
}
function ofInputs(which) {
  return (a) => {
    const of = (a.step.ofKeys ? a.block.step("source") : undefined) ?? a.block.step("inputs");
    return projected(a, of, `x(${a.token})`, which, projection(which, a.step.planeOf(a.head), a.step.columns), `The row of x times column ${a.column + 1} of this head's ${which}.`);
  };
}

// A number of a pair that turned by its position.
function turnedNumber({ block, step, head, row, token, column }) {
  const name = step.name.replace("rotated ", ""), from = block.step(name);
  if (!config?.rope || !from) return missing("How fast pairs turn is not in this report.");
  const turn = turnOf(column, row);
  if (!turn) return { say: "This number does not turn." };
  const term = (c, by) => [`${c + 1}`, from.at(head, row, c), by], pair = [column, turn.other].sort((a, b) => a - b);
  return products(["number", `${symbols[name]}(${token})`, "cos, ± sin"], [term(column, turn.cos), term(turn.other, turn.sin)],
    { say: `Numbers ${pair[0] + 1} and ${pair[1] + 1} are a pair. At position ${row} it turns by ${row} · ${format(turn.rate)} = ${format(turn.angle)} rad, ${(turn.angle * 180 / Math.PI).toFixed(1)}°.` });
}

// A score that a step changes by what the report does not hold, and one to which it adds.
function changed({ block, step: { name, meaning: say }, head, query, key, result }) {
  const before = block.before(name)?.at(head, query, key), adds = ["biased", "relative", "alibi"].includes(name);
  if (adds && Number.isFinite(before) && Number.isFinite(result)) return { say, written: `${minus(before)} + ${minus(result - before)}` };
  return missing(before === undefined ? say : `${say} Before: ${format(before)}.`);
}

// Explains a number that meets the state: elu + 1 of a projection, or its silu made 1 long.
function mapped({ block, step, head, row, column }) {
  const from = block.step(step.name.replace("mapped ", ""));
  if (!from || !report.kind?.recurrent) return missing();
  const x = from.at(head, row, column);
  if (report.module === "linear") return { say: "elu + 1: above 0 the number and 1, else exp of it. It is never negative.", ...(x > 0 ? { total: x + 1, written: `${minus(x)} + 1` } : { total: Math.exp(x), written: `exp(${minus(x)})` }) };
  const silu = (y) => y / (1 + Math.exp(-y)), squares = from.row(head, row).reduce((sum, y) => sum + silu(y) ** 2, 1e-6);
  return { say: "silu, x / (1 + exp(−x)), and all numbers divided by their length.", total: silu(x) / Math.sqrt(squares), written: `silu(${minus(x)}) / ${format(Math.sqrt(squares))}` };
}

const explanations = {
  inputs: () => ({ say: "Given: the word's embedding." }),
  source: () => ({ say: "Given: the other source's embedding." }),
  queries: ofInputs("W_query"), keys: ofInputs("W_key"), values: ofInputs("W_value"),
  "rotated queries": turnedNumber, "rotated keys": turnedNumber,

  scores({ block, head, query, key, q, k }) {
    const own = block.step("inputs"), rotated = block.step("rotated queries"), asked = block.step("queries");
    const qs = rotated ?? asked ?? own, ks = block.step("rotated keys") ?? block.step("keys") ?? own;
    if (!qs || !ks) return missing("Queries and keys are not in this report.");
    const letters = rotated ? ["q′", "k′"] : asked ? ["q", "k"] : ["x", "x"];
    const terms = qs.row(head, query).map((x, c) => [`${c + 1}`, x, ks.at(head, key, c)]);
    return products(["dimension", `${letters[0]}(${q})`, `${letters[1]}(${k})`], terms, { say: "How alike the query and the key point: their dot product." });
  },

  scaled({ block, head, query, key }) {
    const score = block.step("scores")?.at(head, query, key), factor = scaleFactor(), size = block.step("queries")?.columns;
    if (score === undefined) return missing();
    const root = size && Math.abs(factor * Math.sqrt(size) - 1) < 1e-9;
    return { say: root ? "Divided by the root of the key's size, so that softmax does not become a step as vectors grow." : "Times the scale.",
      total: score * factor, written: root ? `${minus(score)} / √${size}` : `${minus(score)}${dot}${format(factor)}` };
  },

  capped: changed, scored: changed, biased: changed, relative: changed, alibi: changed,

  masked({ block, head, query, key, q, k, result }) {
    const before = block.before("masked")?.at(head, query, key);
    if (result === -Infinity) return { say: key > query ? `“${k}” comes after “${q}”: it may not be seen, and exp(−∞) = 0.` : "This key may not be seen: exp(−∞) = 0." };
    return { say: before !== undefined && before !== result ? "The scaled score, changed on its way." : `“${k}” may be seen by “${q}”: the score stays.` };
  },

  "mapped queries": mapped, "mapped keys": mapped,
  beta: () => ({ say: "The sigmoid of W_beta · x." }),
  decay: ({ result }) => ({ say: `The state keeps exp of it, ${format(Math.exp(result))}.` }),
  normed: () => ({ say: "The context by its root mean square, times the norm’s weight; in gated-delta times silu(W_gate · x)." }),

  weights(a) {
    const { block, head, query, key } = a, scores = block.softmaxInput();
    if (!scores) return weightAlone(a);
    const row = scores.row(head, query);
    const most = row.reduce((m, x) => (x > m || Number.isNaN(x) ? x : m), -Infinity);
    if (most === -Infinity) return { say: "No key may be seen: the weights are 0.", total: 0 };
    const sink = block.sinks?.[head], exps = row.map((x) => Math.exp(x - most));
    const sum = exps.reduce((s, x) => s + x, sink === undefined ? 0 : Math.exp(sink - most));
    return { total: exps[key] / sum, columns: ["key", "score", "exp(score − largest)", "weight"],
      rows: row.map((x, j) => [word(report.keyTokens[j]), x, exps[j], exps[j] / sum]), masked: row.map((x) => x === -Infinity),
      marked: key, sum: ["sum", "", sum, 1],
      written: `exp(${minus(row[key])} − ${minus(most)}) / ${format(sum)} = ${format(exps[key])} / ${format(sum)}`,
      bound: 2 * float32Unit * exps[key] / sum * row.reduce((m, x) => (Number.isFinite(x) ? Math.max(m, Math.abs(x)) : m), 2) + 2 ** -126,
      say: `Softmax: the scores of a row${sink === undefined ? "" : ` and the head's sink, ${format(sink)},`} become weights that sum to 1.` };
  },

  dropped({ block, head, query, key, result }) {
    const weight = block.step("weights").at(head, query, key), p = dropoutChance(block);
    if (result === 0 && weight !== 0) return { say: "Dropped in this training step." };
    return { say: "Kept, and made larger so that the mean stays.", total: weight / (1 - p), written: `${format(weight)} / (1 − ${format(p, 3)})` };
  },

  context({ block, head, query, column }) {
    const values = block.step("values") ?? block.step("inputs"), weights = block.step("dropped") ?? block.step("weights");
    if (!values) return missing();
    const some = weights.pooled ? topKeys(weights, head, query) : weights.row(head, query).map((weight, key) => ({ key, weight }));
    return products(["key", "weight", symbols[values.name]], some.map(({ key, weight }) => [word(report.keyTokens[key]), weight, values.at(head, key, column)]),
      { masked: some.map(({ key }) => block.hides(head, query, key)), zero: true, say: weights.pooled ? `The ${some.length} largest weights of the row; values in 8 bits.` : "Every value, times how much the query looks at it." });
  },

  gates: () => missing("A gate stands beside each query, and is made of the same inputs."),
  gated({ block, head, query, column }) {
    const [context, gate] = ["context", "gates"].map((name) => block.step(name)?.at(head, query, column));
    if (context === undefined || gate === undefined) return missing();
    return { say: "The sigmoid of the gate is between 0, which closes, and 1, which lets the context pass.",
      total: context / (1 + Math.exp(-gate)), written: `${format(context)} / (1 + exp(−(${format(gate)})))` };
  },

  merged({ block, query, column }) {
    const from = headsGive(block), size = from?.columns, head = Math.floor(column / size);
    if (!size) return missing();
    const total = from.at(head, query, column % size);
    return { say: `Column ${column % size + 1} of head ${head + 1}'s context: the heads stand side by side.`, total, written: format(total) };
  },
  output(a) {
    const which = sizes ? "o_proj" : "out_proj";
    return projected(a, a.block.step("merged") ?? headsGive(a.block), "merged", which, linear(which), "The output projection mixes the heads.");
  },
};
const headsGive = (block) => block.step("normed") ?? block.step("gated") ?? block.step("context");

function weightAlone({ step, head, query, key, q }) {
  if (report.module === "average") {
    return { say: `“${q}” and what came before it, all alike.`, ...(key <= query ? { total: 1 / (query + 1), written: `1 / ${query + 1}` } : { total: 0, written: "0" }) };
  }
  if (!step.pooled) return hasSigns(step) ? { say: "The effective weight: what the state gives back of this word’s value. It may be negative." } : missing("Scores are not in this report.");
  const tops = topKeys(step, head, query), marked = tops.findIndex((top) => top.key === key);
  return missing(`Of this row the ${tops.length} largest weights are exact; the others are the map's, in 8 bits.`,
    { columns: tops.length ? ["key", "weight"] : [], rows: tops.map((top) => [word(report.keyTokens[top.key]), top.weight]), marked, near: marked < 0 });
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
function fewTerms({ rows, masked, marked }) {
  const all = [...rows.keys()], open = all.filter((i) => !masked?.[i] || i === marked), size = (i) => Math.abs(rows[i].at(-1)) || 0;
  const fitting = [all, open].find(({ length }) => length <= shownTerms);
  return fitting ?? open.sort((x, y) => (y === marked) - (x === marked) || size(y) - size(x)).slice(0, shownTerms - 1).sort((x, y) => x - y);
}
// The others, in words: "14 more, masked".
function leftTerms(a, few) {
  const left = [...a.rows.keys()].filter((i) => !few.includes(i)), masked = left.filter((i) => a.masked?.[i]).length, smaller = left.length - masked;
  return [smaller && `${smaller} more, smaller`, masked && `${masked} more, masked`].filter(Boolean).join("; ");
}

// Whether the library's number is what the terms give, in words.
function agreement({ near, total, result, bound = 4 * float32Unit * Math.abs(result) }) {
  if (near) return quiet();
  if (!Object.is(total, result) && !(Math.abs(total - result) <= bound)) return quiet(`The library has ${exactly(result)}; the terms above give ${format(total, 6)}.`);
  return element("p", { class: "agrees" }, `The library has the same number${total === result ? "." : `, as near as rounding allows: ${format(bound)}.`}`);
}

function termsTable(a) {
  const number = (x) => (typeof x === "number" ? element("td", { class: "number", title: exactly(x) }, format(x)) : element("td", { class: "number" }, x));
  const row = ([name, ...cells], on) => namedRow({ class: [on && "on"] }, element("bdi", {}, name), cells.map(number));
  const few = fewTerms(a), across = (count, text, ...more) => element("tr", more[0], element("td", { colspan: count }, text), more.slice(1));
  return element("div", { class: "scroll" }, table({ class: "terms" }, unseen("The terms"), a.columns.map((name) => element("bdi", {}, name)),
    [few.map((i) => row(a.rows[i], i === a.marked)), few.length < a.rows.length && across(a.columns.length, leftTerms(a, few), { class: "quiet more" }), a.bias !== undefined && row(biasRow(a)),
      a.sum ? across(1, a.sum[0], { class: "sum" }, a.sum.slice(1).map(number)) : a.columns.at(-1) === "product" && across(a.columns.length - 1, "sum", { class: "sum" }, number(a.total))]));
}
const biasRow = (a) => ["bias", ...a.columns.slice(2).map(() => ""), a.bias];

function arithmeticView(a) {
  const result = { class: "result", title: exactly(a.result) }, few = a.rows.length <= 8;
  return element("div", { class: "arithmetic", "data-total": String(a.total), "data-result": exactly(a.result) },
    element("h3", {}, element("bdi", {}, a.title), " = ", element("span", result, (a.near ? "≈ " : "") + format(a.result))), quiet(say(a.say)),
    few && !a.alone && element("p", { class: "written number" }, `${a.written} = ${format(a.total)}`),
    a.columns.length > 0 && [termsTable(a), exports({ name: () => "arithmetic", title: () => a.title, table: null, csv: () => [a.columns, ...a.rows, ...(a.bias === undefined ? [] : [biasRow(a)])] })],
    !a.alone && agreement(a));
}
