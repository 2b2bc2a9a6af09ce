// The map: all heads of all layers, each named by where it looks while the model reads the text a second time.

// Names, what they mean, colours of the series, and letters for those who do not see the colours.
const kindNames = {
  previous: { name: "previous token", means: "the token just before", colour: seriesOf(6), letter: "P" },
  same: { name: "same token", means: "an earlier token that is the query’s own", colour: seriesOf(2), letter: "S" },
  induction: { name: "induction", means: "the token that came after an earlier one like the query’s own: what a text that repeats itself says next", colour: seriesOf(1), letter: "I" },
  first: { name: "first token", means: "the first token of all, where weight goes that has no better place", colour: seriesOf(5), letter: "F" },
};
const kindList = Object.entries(kindNames);

// "induction 0.83", or the largest of its scores where it is below the limit; nothing where no head has a name.
function kindOf(kinds) {
  if (!kinds) return { text: "" };
  const kind = Object.keys(kindNames).reduce((most, one) => (kinds[one] > kinds[most] ? one : most)), score = kinds[kind], { name } = kindNames[kind];
  return score >= report.named ? { kind, score, text: `${name} ${format(score, 2)}` } : { score, text: `no name: at most ${format(score, 2)} (${name})` };
}
const headTitle = ({ name, kinds }) => [name, kindOf(kinds).text].filter(Boolean).join(": ");

function overviewSvg() {
  const cell = 18, left = 70, top = 60, below = top + cell * blocks.length + 24;
  return svgFile(left + Math.max(cell * headsAcross(), 420) + 20, below + 30, "The map of heads",
    label(left, 24, "Layers down, heads across"), label(left, 44, word(report.title, 70)),
    blocks.map((_, b) => label(left - 8, top + cell * b + 13, String(layerNumber(b)), { "text-anchor": "end" })),
    allHeads().map((one) => {
      const { kind, score } = kindOf(one.kinds), look = kind ? { fill: kindNames[kind].colour, "fill-opacity": score.toFixed(2) } : { fill: "#e4e4e4" };
      return rectangle(left + cell * one.head, top + cell * one.b, cell - 2, cell - 2, { rx: 2, ...look }, element("title", {}, headTitle(one)));
    }),
    report.repeated > 0 && kindList.map(([, { name, colour }], i) => [rectangle(left + 110 * i, below, 12, 12, { fill: colour }), label(left + 110 * i + 17, below + 10, name)]));
}

// The look of a mark in the colour of its kind, stronger the larger the score.
const kindLook = ({ kind, score = 1 }) => kind && { backgroundColor: `color-mix(in srgb, ${kindNames[kind].colour} ${Math.round(100 * score)}%, #fff)` };

// A head has its kind's letter; one that is off is crossed out.
function mapButton(one) {
  const { b, head } = one, shown = kindOf(one.kinds), off = blocks[b].off?.includes(head), title = headTitle(one) + (off ? ", off" : "");
  return headButton(b, head, { title, class: [off && "off"], "aria-label": title, "data-kind": shown.kind, style: kindLook(shown) }, off ? "×" : kindNames[shown.kind]?.letter);
}

function kindLegend() {
  const found = allHeads().map(({ kinds }) => kindOf(kinds).kind), count = (kind) => ` (${found.filter((one) => one === kind).length})`;
  return element("ul", { class: "kinds" }, [...kindList, [undefined, { name: "no name" }]].map(([kind, { name, letter }]) => element("li", {},
    element("i", { "aria-hidden": "true", style: kindLook({ kind }) }, letter), element("span", {}, element("strong", {}, name), count(kind)))));
}

function overviewPanel(host) {
  const across = headsAcross(), cells = allHeads().map(mapButton), said = element("p", { class: "quiet told" });
  const row = (b) => namedRow({}, String(layerNumber(b)), cells.filter(({ dataset }) => Number(dataset.block) === b).map((one) => element("td", {}, one)));
  const map = table({ role: "grid", class: [across > 16 && "many"], "aria-label": "Heads: layers down, heads across" }, null, [element("td", {}, element("span", { class: "unseen" }, "layer")), ...numbers(across)], blocks.map((_, b) => row(b)));
  roving(map, (down, right) => select({ block: clamp(state.block + down, blocks.length), head: state.head + right }));
  fill(host, lead("Layers go down and heads across.", report.repeated ? say(" A head has a name where most of its weight lies on one kind of token.") : ""),
    report.repeated > 0 && kindLegend(), element("div", { class: "scroll" }, map), said);
  return () => {
    markHead(cells);
    for (const one of cells) one.tabIndex = one.classList.contains("on") ? 0 : -1;
    const kinds = currentBlock().kinds?.[state.head];
    said.textContent = `${headName()}${kinds ? `: ${kindList.map(([kind, { name }]) => `${name} ${format(kinds[kind], 2)}`).join(", ")}` : ""}.`.replace("l", "L");
  };
}

// Below the map, and behind the steps in the order of Tab.
function namesPanel(host) {
  const named = report.repeated ? kindList : [];
  fill(host, report.repeated > 0 && element("details", { id: "naming" },
    element("summary", {}, "How heads are named"), named.map(([, { name, means }]) => quiet(element("strong", {}, name), `: ${say(means)}.`)),
    quiet(say(`The model read the first ${report.repeated} tokens of the text twice, one after the other. A score is the mean, over the ${report.repeated} queries of the second reading, of a head’s weight on tokens of that kind. Each key counts once: as the first token, else as the previous, else as the same, else as induction. A head is named by its largest score if that is ${format(report.named, 1)} or more.`))),
  exports({ name: () => "overview", title: () => "The map of heads", svg: overviewSvg,
    csv: () => [["layer", "head", "name", ...named.map(([, { name }]) => name)], ...allHeads().map(({ b, head, kinds }) => [layerNumber(b), head + 1, kindOf(kinds).kind ?? "", ...named.map(([kind]) => kinds[kind])])] }));
}
