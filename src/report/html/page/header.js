// The page's head: what attention does, where these numbers come from, and whether their checks hold.

// Explains what the steps below do, in the words of what this module has.
function explanation() {
  const block = openBlock(), has = (name) => block.step(name), heads = block.heads, hidden = has("masked") || block.causal;
  const asks = has("source") ? "Attention lets each word of one text take what it needs from the words of another." : "Attention lets each word take what it needs from the others.";
  const end = [
    "Softmax makes weights of them, which sum to 1 for each query, and the word’s new vector, its context, is the sum of the values, each times its weight.",
    hidden && (block.causal || isCausal() ? "A mask hides the words that come later, so that they have no weight." : "A mask hides some of the words, so that they have no weight."),
    heads > 1 && `Each of the ${heads} heads${blocks.length > 1 ? ` of the ${blocks.length} layers` : ""} does this with numbers of its own.`,
  ];
  if (report.kind?.recurrent) {
    const delta = report.module !== "linear", size = block.step("mapped keys")?.columns ?? 0;
    return ["Attention without softmax: instead of all earlier keys and values a head keeps one state, a matrix of " + `${size} × ${size} numbers, however long the text is. A word reads it by its query; before, it writes its value there by its key.`,
      delta ? "What the state recalls for the key is taken away first, so that the value takes its place: with a beta of 1 all of it, with less a part." : "Queries and keys are made positive, and each word’s result is divided by the sum that softmax would divide by.",
      report.module === "gated-delta" && "Each word also lets the state fade by its decay.",
      "The weights below say the same without a state: how much of each earlier value comes back." + (delta ? " They may be negative, and rows need not sum to 1." : " Rows sum to 1."),
      heads > 1 && `Each of the ${heads} heads has a state of its own.`];
  }
  if (report.module === "average") return ["The plainest attention: each word becomes the mean of itself and the words before it. Nothing is learned, and every word that may be seen has the same weight."];
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

// Weights that nobody trained: what their pattern does not say.
function randomNote() {
  if (!report.randomWeights) return null;
  const seed = report.seed === null ? "" : ` They were drawn with seed ${report.seed}.`;
  return element("p", { class: "note", id: "random" }, element("strong", {}, "These weights are random: nobody has trained this module."), seed +
    ` Who looks at whom below is chance, and says nothing about the words; the arithmetic is the same. ${report.kind?.recurrent ? "" : "Random scores are small, so softmax spreads each row almost evenly. "}Training is what gives a head a pattern.`);
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
  const intro = element("p", { class: "intro" }, say(explanation().filter(Boolean).join(" ")));
  const said = report.notes.map((note) => element("p", { class: "note" }, note));
  const failed = report.health.filter(({ holds }) => !holds), fails = failed.length > 0, checked = verdict(failed);
  const restoreFocus = focusPlace();  // each answer makes it anew
  if (severalLayers()) fill(host, said, fails && checked, element("details", { id: "explained" },
    element("summary", {}, "What attention does, and where these numbers come from"), intro, facts(), !fails && checked));
  else fill(host, intro, randomNote(), said, facts(), checked);
  restoreFocus();
  const more = !byId("engine") && (report.kind || report.repeated > 0);
  fill(byId("made"), `Made by attn ${report.version}. One file, no network: keep it, mail it, print it.`,
    more && [" ", element("code", {}, "attn report --live"), " makes a page that computes: type in it, change its numbers, and try its labs."]);
}
