// The same computation to take away, as the library has written it, in PyTorch and with this library.

// The numbers of a step in code, or the name of a file with them where they are many.
function inputLines(step, name, { few: [open, begin, end, close], many, ending }) {
  const number = (x) => (/[.e]/.test(exactly(x)) ? exactly(x) : `${exactly(x)}.0`) + ending;
  const row = (_, i) => begin + step.row(0, i).map(number).join(", ") + end;
  const written = step?.exact && step.rows > 0 && step.rows * step.columns <= 96 && step.values.every(Number.isFinite);
  const lines = written ? [open, ...Array.from({ length: step.rows }, row), close] : [many];
  return lines.map((line) => line.replace("NAME", name).replace("NAME", name));
}

function codeOf(snippet) {
  const inputs = { "@inputs": "x", "@source": "source" };
  const text = snippet.lines.flatMap((line) => (inputs[line] ? inputLines(stepAt(line.slice(1)), inputs[line], snippet) : line)).join("\n") + "\n";
  return text.includes("numpy.load") ? `import numpy\n${text}` : text;
}

function snippetsPanel(host) {
  if (!report.snippets.length) return;
  const shown = report.snippets.map(({ title, id, file, type, ...snippet }) => {
    const text = codeOf(snippet);
    return element("div", {}, element("h3", {}, title), element("pre", { id, tabindex: 0 }, element("code", {}, text)),
      element("div", { class: "exports" }, button(null, `save ${file}`, () => save(file, new Blob([text], { type })), { class: "export" })));
  });
  const files = shown.some((one) => one.textContent.includes(".npy")) ? " The .npy file is the report’s input." : "";
  fill(host, lead(`The same computation in code: run it, and it prints this report’s result.${files}`), element("div", { class: "snippets" }, shown));
}
