// The page's head: shapes, the command, what was checked.

function shapeChain() {
  const seen = new Map();
  for (const [name, shape] of report.shapes) {
    const short = name.split(".").at(-1), many = name !== short;
    if (!seen.has(short)) seen.set(short, { shape, count: 0 });
    seen.get(short).count += many ? 1 : 0;
  }
  const links = Array.from(seen, ([name, { shape, count }]) =>
    element("li", {}, element("span", {}, name), element("code", {}, `${count > 1 ? `${count} × ` : ""}(${shape.join(", ")})`)));
  return element("ol", { class: "chain", "aria-label": "Shapes, in the order of the steps" }, links);
}

function healthList() {
  return element("ul", { class: "health", "aria-label": "Checks" }, report.health.map((check) =>
    element("li", { class: check.holds ? "holds" : "fails", "data-check": check.name, "data-value": String(check.value) },
      element("span", { class: "sign", "aria-hidden": "true" }, check.holds ? "✓" : "✗"),
      element("strong", {}, check.holds ? check.name : `${check.name}: does not hold`), element("span", { class: "quiet" }, check.told.replaceAll("-", "\u2011")))));
}

function facts() {
  const rows = [
    ["module", report.module], ["command", report.command && element("code", {}, report.command)],
    ["seed", report.seed === null ? "" : String(report.seed)], ["dropout flavour", report.module && report.flavour],
    ["mode", report.module && (report.training ? `training, dropout ${config?.dropout ?? 0}` : "evaluation: nothing is dropped")],
    ["text", report.batch > 1 ? `${report.item + 1} of ${report.batch} in the batch` : ""], ["version", `attn ${report.version}`],
  ];
  return element("dl", { class: "facts" }, rows.filter(([, value]) => value).map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function header(host) {
  const notes = [...report.notes];
  if (!report.exact) {
    const weights = blocks[0].step("weights"), vectors = blocks[0].step("queries");
    notes.push(`Too much to hold exactly (more than 128 tokens, or very many heads). The maps show the largest of neighbouring weights, in 8 bits; ` +
      `exact are each row’s ${weights.data.top} largest weights, and every head’s scores. ${vectors ? "Queries, keys, values and contexts are in 8 bits; the" : "The"} other steps are left out.`);
  }
  fill(host, healthList(), shapeChain(), facts(), notes.map((note) => element("p", { class: "note" }, note)));
  document.getElementById("made").textContent = `Made by attn ${report.version}. One file, no network: keep it, mail it, print it.`;
}
