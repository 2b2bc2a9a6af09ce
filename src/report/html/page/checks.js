// Shows what was looked for in these numbers, and found.

function checksPanel(host) {
  if (!report.health.length) return;
  const list = report.health.map((check) =>
    element("li", { class: check.holds ? "holds" : "fails", "data-check": check.name, "data-value": String(check.value), "data-bound": String(check.bound) },
      element("span", { class: "sign", "aria-hidden": "true" }, check.holds ? "✓" : "✗"),
      element("strong", {}, check.holds ? check.name : `${check.name}: does not hold`), element("span", { class: "quiet" }, check.told.replaceAll("-", "\u2011"))));
  fill(host, lead("The library has looked for what can be wrong with attention weights."),
    element("ul", { class: "health", "aria-label": "Checks" }, list));
}
