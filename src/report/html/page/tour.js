// A tour of a page that computes: what its parts are for, one after the other. Enter goes on, arrow keys go to and fro,
// Escape ends it.

// Those whose part the page shows.
const tourStops = [
  ["live", "Type here. The page computes everything below anew for each text, by the library itself. Nothing leaves this computer."],
  ["live-options", "The module’s options, such as the scale, the mask and dropout. Change one, and see which steps it moves."],
  ["live-next", "What the model finds likely next, with its chances. A click takes a token and goes on from there; Continue draws one."],
  ["live-source", "A second text: the page tells how near the vectors of both are to each other."],
  ["overview", "The heads: a row is a layer. A name says what a head was seen to do, such as looking at the token before. Choose one, and the steps beside are its own."],
  ["steps", "One pass, step by step, from the inputs to the output: Play shows them in turn. Choose a cell, and its arithmetic is written out."],
  ["edit-value", `Write another number over the selected one${live.isModule ? " or" : ","} mask a key${live.isModule ? "" : ", or switch a head off"}. All later steps follow, and Undo takes it back.`],
  ["experiments", "Questions to the model: which heads its loss needs, what each layer would say next, and which part of it carries what differs from a second text."],
  live.isModule && ["lines", "Who looks at whom: each word’s lines go to the words that it takes from, the stronger the more."],
  live.isModule && ["checks", "What must be true of these numbers, such as weights that sum to 1, and how far from it they may lie."],
];

const leaveStop = () => document.querySelector(".toured")?.classList.remove("toured");
function endTour() {
  if (!byId("tour-note")) return;
  leaveStop();
  byId("tour-note").remove();
  byId("tour").focus({ preventScroll: true });
}

function tourStop(stops, at) {
  const [id, says] = stops[at], part = byId(id), go = (to) => (to === stops.length ? endTour() : to >= 0 && tourStop(stops, to));
  const shown = part.matches("input") ? part.closest(".controls") : part, note = byId("tour-note");
  leaveStop();
  if (part.matches("details")) part.open = true;
  shown.classList.add("toured");
  shown.scrollIntoView({ block: shown.offsetHeight > innerHeight / 2 ? "start" : "center" });
  const next = button("tour-next", at + 1 < stops.length ? "Next" : "Done", () => go(at + 1));
  fill(note, element("p", { id: "tour-says" }, element("strong", {}, `${at + 1} of ${stops.length} `), says),
    controls(next, button("tour-back", "Back", () => go(at - 1), { disabled: at === 0 }), button("tour-end", "End the tour", endTour)));
  const keys = { Escape: endTour, ArrowRight: () => at + 1 < stops.length && go(at + 1), ArrowLeft: () => go(at - 1) };
  note.onkeydown = ({ key }) => { keys[key]?.(); };
  next.focus({ preventScroll: true });
}

function startTour() {
  endTour();
  document.body.append(element("section", { id: "tour-note", role: "dialog", "aria-label": "Tour", "aria-describedby": "tour-says" }));
  tourStop(tourStops.filter((stop) => stop && byId(stop[0])?.checkVisibility()), 0);
}
window.addEventListener("beforeprint", endTour);
