// The map: all heads of all layers, each named by where it looks while the model reads the text a second time.

// Names, what they mean, colours of the series, and letters for those who do not see the colours.
const kindNames = {
  previous: ["previous token", "the token just before", 6, "P"], same: ["same token", "an earlier token that is the query’s own", 2, "S"],
  induction: ["induction", "the token that came after an earlier one like the query’s own: what a text that repeats itself says next", 1, "I"],
  first: ["first token", "the first token of all, where weight goes that has no better place", 5, "F"],
};

const strongest = (kinds) => Object.keys(kindNames).reduce((most, kind) => (kinds[kind] > kinds[most] ? kind : most), "previous");
// "induction 0.83", or the largest of its scores where it is below the limit; nothing where no head has a name.
function kindOf(kinds) {
  if (!kinds) return { text: "" };
  const kind = strongest(kinds), score = kinds[kind], known = score >= report.named;
  return { kind: known ? kind : undefined, score, text: known ? `${kindNames[kind][0]} ${format(score, 2)}` : `no name: at most ${format(score, 2)} (${kindNames[kind][0]})` };
}
const kindColour = (kind) => seriesOf(kindNames[kind][2]);
const headTitle = (b, head) => [headName(head, b), kindOf(blocks[b].kinds?.[head]).text].filter(Boolean).join(": ");

function overviewSvg() {
  const cell = 18, left = 70, top = 60, across = Math.max(...blocks.map((block) => block.heads)), parts = [];
  blocks.forEach((block, b) => {
    const y = top + cell * b;
    parts.push(`<text x="${left - 8}" y="${y + 13}" text-anchor="end">${layerNumber(b)}</text>`);
    for (let head = 0; head < block.heads; head++) {
      const { kind, score } = kindOf(block.kinds?.[head]);
      parts.push(`<rect x="${left + cell * head}" y="${y}" width="${cell - 2}" height="${cell - 2}" rx="2" fill="${kind ? kindColour(kind) : "#e4e4e4"}"${kind ? ` fill-opacity="${score.toFixed(2)}"` : ""}><title>${headTitle(b, head)}</title></rect>`);
    }
  });
  const width = left + Math.max(cell * across, 420) + 20, below = top + cell * blocks.length + 24;
  if (report.repeated) Object.entries(kindNames).forEach(([kind, [name]], i) => parts.push(`<rect x="${left + 110 * i}" y="${below}" width="12" height="12" fill="${kindColour(kind)}"/><text x="${left + 110 * i + 17}" y="${below + 10}">${name}</text>`));
  parts.push(`<text x="${left}" y="24">Layers down, heads across</text><text x="${left}" y="44">${xml(word(report.title, 70))}</text>`);
  return svgFile(width, below + 30, "", parts);
}

// A mark in the colour of its kind, stronger the larger the score, with the kind's letter.
function kindMark(node, { kind, score = 1 }, letter = kindNames[kind]?.[3]) {
  if (kind) node.style.backgroundColor = `color-mix(in srgb, ${kindColour(kind)} ${Math.round(100 * score)}%, #fff)`;
  node.append(letter ?? "");
  return node;
}

// A head that is off is crossed out.
function headButton(b, head) {
  const shown = kindOf(blocks[b].kinds?.[head]), off = blocks[b].off?.includes(head), title = headTitle(b, head) + (off ? ", off" : "");
  return kindMark(button(null, "", () => select({ block: b, head }), { title, class: off ? "off" : null, "aria-label": title, "data-block": b, "data-head": head, "data-kind": shown.kind }), shown, off ? "×" : undefined);
}

function kindLegend() {
  const found = blocks.flatMap((block) => block.kinds.map(kindOf)), names = [...Object.keys(kindNames), undefined];
  return element("ul", { class: "kinds" }, names.map((kind) => element("li", {}, kindMark(element("i", { "aria-hidden": "true" }), { kind }),
    element("span", {}, element("strong", {}, kind ? kindNames[kind][0] : "no name"), ` (${found.filter((one) => one.kind === kind).length})`))));
}

function overviewPanel(host) {
  if (!severalLayers && !report.repeated) return;
  const across = Math.max(...blocks.map((block) => block.heads)), rows = blocks.map((block, b) => Array.from({ length: block.heads }, (_, head) => headButton(b, head)));
  const cells = rows.flat(), said = element("p", { class: "quiet told" }), names = Object.keys(kindNames);
  const map = roving(table({ role: "grid", class: across > 16 ? "many" : null, "aria-label": "Heads: layers down, heads across" }, null,
    [element("td", {}), ...numbers(across).map((n) => element("th", { scope: "col" }, n))],
    rows.map((buttons, b) => element("tr", {}, element("th", { scope: "row" }, String(layerNumber(b))), buttons.map((button) => element("td", {}, button))))),
  (down, right) => select({ block: clamp(state.block + down, blocks.length), head: state.head + right }));
  fill(host, lead("Layers go down and heads across.", report.repeated ? " A head has a name where most of its weight lies on one kind of token." : ""),
    report.repeated && kindLegend(), element("div", { class: "scroll" }, map), said);
  onSelection(() => {
    for (const button of cells) {
      const on = Number(button.dataset.block) === state.block && Number(button.dataset.head) === state.head;
      button.classList.toggle("on", on);
      button.setAttribute("aria-pressed", on);
      button.tabIndex = on ? 0 : -1;
    }
    const kinds = currentBlock().kinds?.[state.head];
    said.textContent = `${headName()}${kinds ? `: ${names.map((kind) => `${kindNames[kind][0]} ${kinds[kind].toFixed(2)}`).join(", ")}` : ""}.`.replace("l", "L");
  });
}

// Below the map, and behind the steps in the order of Tab.
function namesPanel(host) {
  if (!severalLayers && !report.repeated) return;
  const names = report.repeated ? Object.keys(kindNames) : [];
  fill(host, report.repeated && element("details", {}, element("summary", {}, "How heads are named"), names.map((kind) => quiet(element("strong", {}, kindNames[kind][0]), `: ${kindNames[kind][1]}.`)),
    quiet(`The model read the first ${report.repeated} tokens of the text twice, one after the other. A score is the mean, over the ${report.repeated} queries of the second reading, of a head’s weight on tokens of that kind. Each key counts once: as the first token, else as the previous, else as the same, else as induction. A head is named by its largest score if that is ${format(report.named, 1)} or more.`)),
  exports({ name: () => "overview", title: () => "The map of heads", svg: overviewSvg,
    csv: () => [["layer", "head", "name", ...names.map((kind) => kindNames[kind][0])], ...blocks.flatMap((block, b) => Array.from({ length: block.heads }, (_, head) => [layerNumber(b), head + 1, kindOf(block.kinds?.[head]).kind ?? "", ...names.map((kind) => block.kinds[head][kind])]))] }));
}
