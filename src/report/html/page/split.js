// One large projection split into heads, or a small one for each head: the same numbers.

// The heads' matrices as columns of one (d_in, h · d): what MultiHeadAttention holds as W_query.
function wholeProjection(which, heads, size) {
  const parts = Array.from({ length: heads }, (_, head) => projection(which, head, size));
  return { inputs: parts[0].inputs, size: heads * size, at: (i, c) => parts[Math.floor(c / size)].at(i, c % size), bias: (c) => parts[Math.floor(c / size)].bias(c % size), parts };
}

function bothWays(which) {
  const x = which === "W_query" ? stepAt("inputs").values : sourceOf(), rows = stepAt(which === "W_query" ? "queries" : "keys").rows;
  const size = headSize(), heads = blocks[0].heads, whole = wholeProjection(which, heads, size), joined = project(x, rows, whole), separate = new Float32Array(joined.length);
  whole.parts.forEach((part, head) => {
    const own = project(x, rows, part);
    for (let i = 0; i < rows; i++) separate.set(own.subarray(i * size, (i + 1) * size), i * heads * size + head * size);
  });
  return { whole, joined, separate, rows, apart: joined.reduce((most, v, i) => Math.max(most, Math.abs(v - separate[i])), 0) };
}

function splitPanel(host) {
  const heads = blocks[0].heads;
  if (!canRecompute() || heads < 2 || !projection("W_query", 0, headSize())) return;
  const ways = { W_query: bothWays("W_query"), W_key: bothWays("W_key"), W_value: bothWays("W_value") };
  const { whole, joined, separate, rows } = ways.W_query, size = headSize(), columns = heads * size;
  const labels = Array.from({ length: columns }, (_, c) => `h${Math.floor(c / size) + 1}·${c % size + 1}`);
  const show = (title, id, values, count, names) => {
    const matrix = { rows: count, columns, values };
    return element("div", { id }, element("h3", {}, title), matrixFigure({ matrix, rowLabels: names, columnLabels: labels, scale: scaleOf(matrix), label: title }, id));
  };
  const w = new Float32Array(whole.inputs * columns);
  for (let i = 0; i < whole.inputs; i++) for (let c = 0; c < columns; c++) w[i * columns + c] = whole.at(i, c);
  const apart = Math.max(...Object.values(ways).map((way) => way.apart));
  fill(host, element("p", { class: "lead" }, `${isWrapper ? "This module keeps a matrix for each head." : "This module keeps one matrix for all heads."} Put side by side the heads’ matrices are the large one, so one product gives what ${heads} products give.`),
    element("div", { class: "routes small" }, show(`W_query, ${heads} heads side by side`, "split-w", w, whole.inputs, numbers(whole.inputs)),
      show("Q by one product, then split", "split-joined", joined, rows, report.tokens), show(`Q by ${heads} products, then joined`, "split-separate", separate, rows, report.tokens)),
    element("p", { class: "note", id: "split-said", "data-apart": String(apart) }, apart === 0 ? "Queries, keys and values are the same to the last bit." : `They differ by at most ${format(apart, 9)}.`));
}
