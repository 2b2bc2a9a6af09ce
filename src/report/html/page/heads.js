// Heads side by side, and what each of them does in numbers.

// Where heads have names the map's scores come first, of the text that is read twice; the others are of this text.
const scoreNames = () => ({
  ...(report.repeated ? Object.fromEntries(Object.entries(kindNames).map(([kind, { name }]) => [kind, [name]])) : {}),
  ...(report.kind?.recurrent ? {} : { entropy: ["entropy", "nats; 0 looks at one key, higher spreads"], distance: ["distance", "words, weighted mean of |query − key|"] }),
  ...(report.repeated ? {} : { first: [say("first word"), "mean weight on the first key, where attention sinks"], previous: [say("previous word"), "mean weight on the word just before"] }),
  diagonal: [say("own word"), "mean weight on the word itself"],
});
const mostHeads = 24;  // that are shown at once; of more each layer folds
const scaleSaid = {
  diverging: "white for 0, orange above it and purple below", row: "in each row dark for 0, bright for the row’s largest",
  log: "dark for the smallest, bright for the largest weight, by the logarithm", linear: "dark for 0, bright for its largest",
};

// Each with what is drawn of it, once that is asked for; one whose layer is not open yet has its scores alone.
const allHeads = () => blocks.flatMap((block, b) => Array.from({ length: block.heads }, (_, head) => ({
  b, head, name: headName(head, b), kinds: block.kinds?.[head], scores: { ...block.scores[head], ...block.kinds?.[head] },
  get matrix() { return block.step("weights")?.matrix(head); },
  get scale() { return stepScale(block.step("weights"), this.matrix); },
})));

// A button that chooses a head; of several the selected one is marked.
const headButton = (b, head, look, ...content) => button(null, content, () => select({ block: b, head }), { "data-block": b, "data-head": head, ...look });
function markHead(buttons) {
  for (const one of buttons) {
    const on = Number(one.dataset.block) === state.block && Number(one.dataset.head) === state.head;
    one.classList.toggle("on", on);
    one.setAttribute("aria-pressed", on);
  }
}

function headCard(shown) {
  const { b, head, name, scores, matrix } = shown;
  const score = (text, attributes, value) => element("span", {}, `${text} `, element("b", { class: "number", ...attributes }, value));
  return headButton(b, head, { class: "head" }, element("span", { class: "head-name" }, name), matrix ? pixelsOf(matrix, shown.scale) : element("span", { class: "closed" }),
    element("span", { class: "head-scores" }, score("largest", {}, matrix ? format(rangeOf(matrix).high, 2) : "…"),
      Object.entries(scoreNames()).map(([key, [title]]) => score(title, { "data-score": key, title: String(scores[key]) }, format(scores[key], 2)))));
}

// The small multiples as one figure: the pictures as images, names above.
function headsSvg(heads) {
  const size = 140, across = Math.min(heads.length, 6), down = Math.ceil(heads.length / across);
  return svgFile(20 + (size + 20) * across, 20 + (size + 40) * down, "Heads side by side", heads.map(({ name, matrix, scale }, i) => {
    const x = 20 + (size + 20) * (i % across), y = 40 + (size + 40) * Math.floor(i / across);
    return [label(x, y - 8, `${name}: ${scale.kind === "row" ? "by row" : `${scale.lowText} to ${format(scale.high, 2)}`}`), svgImage(matrix, scale, x, y, size, size)];
  }));
}

function headsPanel(host) {
  const heads = allHeads(), titles = scoreNames(), names = Object.keys(titles), few = heads.length <= mostHeads;
  const grid = element("div", { class: few ? "heads" : "layers", id: "heads-grid" }), scales = element("div", { class: "controls", id: "heads-controls" }), said = element("span");
  const shown = () => heads.filter(({ b }) => few || b === state.block);
  // Where there are many heads, each layer folds; that of the selected head is open.
  const layers = few ? [{ cards: grid, of: heads }] : blocks.map((_, b) => {
    const cards = element("div", { class: "heads" }), folded = element("details", { ontoggle: () => drawOpen() }, element("summary", {}, layerName(b)), cards);
    return { cards, folded, of: heads.filter((one) => one.b === b) };
  });
  if (!few) fill(grid, layers.map(({ folded }) => folded));
  const drawOpen = () => {
    const id = named(state.scale, blocks.filter(({ packed }) => !packed).length);
    for (const layer of layers) {
      if (layer.drawnFor !== id && layer.folded?.open !== false) fill(layer.cards, layer.of.map(headCard)), layer.drawnFor = id;
    }
    markHead(grid.querySelectorAll("button"));
  };
  let open;
  fill(host, lead("Each picture is one head’s weights, queries down and keys across: ", said, `. Hatched is masked. Choose a head to see it everywhere.${few ? "" : " Layers fold; the table has all heads."}`), scales, grid,
    quiet(say(names.filter((key) => titles[key][1]).map((key) => titles[key].join(": ")).join(". ")), `.${report.repeated ? " The others are the map’s." : ""}`),
    exports({ name: () => "heads", title: () => (few ? "All heads" : `Heads of ${layerName()}`), svg: () => headsSvg(shown().filter(({ matrix }) => matrix)),
      csv: () => [["head", ...names.map((key) => titles[key][0])], ...heads.map(({ name, scores }) => [name, ...names.map((key) => scores[key])])] }));
  return () => {
    if (!few && open !== state.block) for (const [b, { folded }] of layers.entries()) folded.open = b === state.block;
    open = state.block;
    drawOpen();
    fill(scales, scaleChooser("heads-scale"));
    said.textContent = scaleSaid[heads.find(({ matrix }) => matrix).scale.kind];
  };
}
