// The page's head: what attention does, where these numbers come from, and whether their checks hold.

// Explains what the steps below do, in the words of what this module has.
function explanation() {
  if (report.explained) return [report.explained];
  const block = openBlock(), has = (name) => block.step(name), heads = block.heads, hidden = has("masked") || block.causal;
  const asks = has("source") ? "Attention lets each word of one text take what it needs from the words of another." : "Attention lets each word take what it needs from the others.";
  const end = [
    "Softmax makes weights of them, which sum to 1 for each query, and the word’s new vector, its context, is the sum of the values, each times its weight.",
    hidden && (block.causal || isCausal() ? "A mask hides the words that come later, so that they have no weight." : "A mask hides some of the words, so that they have no weight."),
    heads > 1 && `Each of the ${heads} heads${blocks.length > 1 ? ` of the ${blocks.length} layers` : ""} does this with numbers of its own.`,
  ];
  if (!has("scores") && !has("scaled") && !has("queries")) {
    return ["Attention lets each word take what it needs from others. These are its weights alone: a row belongs to one word, the query, and says how much of each other word, the key, goes into it. A row sums to 1."];
  }
  if (!has("queries")) return [asks, "Here the words’ own vectors are all there is: the dot product of two of them is their score.", ...end];
  if (has("latents")) {
    const kept = block.step("latents").columns + (sizes?.rotary ?? 0), all = block.heads * (block.step("keys").columns + block.step("values").columns);
    return [asks, `A query is made of each word (what it looks for). Its keys (what it offers) and values (what it gives) are made of a latent, ${block.step("latents").columns} numbers for all heads.`,
      sizes && `So a cache keeps ${kept} numbers of a word, where these keys and values are ${all}.`, "The dot product of a query and a key is their score.", ...end];
  }
  return [report.unit === "byte" && "This model reads its text byte by byte.", asks, "Three projections make a query of each word (what it looks for), a key (what it offers) and a value (what it gives). The dot product of a query and a key is their score.", ...end];
}

// One line while all is well; else what is not. The checks themselves stand at the end of the page.
function verdict(failed) {
  const link = element("a", { href: "#checks", onclick: toChecks }, "the checks"), all = `${report.health.length} checks of these numbers`;
  if (!report.health.length) return null;
  if (!failed.length) return element("p", { class: "verdict quiet" }, `✓ ${report.health.length} of ${all} hold: see `, link, " below.");
  return element("div", { class: "verdict note leaks" }, element("strong", {}, `${failed.length} of ${all} fail.`), ` ${failed.map(({ name, told }) => `${name}: ${told}`).join("; ")}. See `, link, ".");
}

// The address holds the selection, so that the link moves the page itself.
function toChecks(event) {
  event.preventDefault();
  const checks = byId("checks");
  if (checks.matches("details")) checks.open = true;
  checks.scrollIntoView();
}

function header(host) {
  const intro = element("p", { class: "intro" }, say(explanation().filter(Boolean).join(" ")));
  const said = report.notes.map((note) => element("p", { class: "note" }, note));
  const random = report.randomWeights && element("p", { class: "note", id: "random" },
    element("strong", {}, "These weights are random: nobody has trained this module."), report.randomWeights);
  const facts = element("dl", { class: "facts" }, report.facts.map(([name, text]) => element("div", {},
    element("dt", {}, name), element("dd", {}, name === "command" ? element("code", {}, text) : text))));
  const failed = report.health.filter(({ holds }) => !holds), fails = failed.length > 0, checked = verdict(failed);
  const restoreFocus = focusPlace();  // each answer makes it anew
  if (severalLayers()) fill(host, said, fails && checked, element("details", { id: "explained" },
    element("summary", {}, "What attention does, and where these numbers come from"), intro, facts, !fails && checked));
  else fill(host, intro, random, said, facts, checked);
  restoreFocus();
}
