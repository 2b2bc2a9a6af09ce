"""The tour of a live page, by keyboard alone."""

from live_case import TEXT, LivePage
from overview_case import MODEL

# The part that is shown, as much of it as the tour's own words do not cover.
SEEN = """(() => {
  const part = document.querySelector(".toured").getBoundingClientRect(), note = document.getElementById("tour-note").getBoundingClientRect();
  return part.top < note.top && part.bottom > 0 && note.bottom <= innerHeight && note.left >= 0 && note.right <= innerWidth;
})()"""


class LiveTour(LivePage):
    def module(self, *arguments):
        page = self.open(*arguments, "--live")
        self.wait(page, "live.ready")
        return page

    def take(self, page, parts):
        page.run("document.getElementById('tour').focus()")
        page.key("Enter")
        for at, part in enumerate(parts):
            self.assertTrue(page.text("#tour-says").startswith(f"{at + 1} of {len(parts)} "), page.text("#tour-says"))
            self.assertEqual(page.run("document.activeElement.id"), "tour-next")
            self.assertTrue(page.run(f"document.querySelector('.toured').contains(document.getElementById('{part}'))"), part)
            self.assertTrue(page.run(SEEN), f"{part} at {page.run('innerWidth')}")
            page.key("Enter")
        self.assertEqual(page.run("[document.activeElement.id, document.getElementById('tour-note')]"), ["tour", None])

    def test_six_stops_of_a_model(self):
        for width in (1400, 390):
            page = self.open("--live", "--model", MODEL, "--text", TEXT, width=width)
            self.take(page, ["live", "live-next", "overview", "steps", "edit-value", "experiments"])

    def test_six_stops_of_a_module(self):
        page = self.module("multihead", "--d-out", 4, "--heads", 2)
        self.take(page, ["live", "live-options", "steps", "edit-value", "lines", "checks"])

    def test_to_and_fro_and_away(self):
        page = self.module("simple")
        page.run("document.getElementById('tour').focus()")
        for key, at in (("Enter", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("ArrowLeft", 1), ("ArrowRight", 2), ("ArrowRight", 3)):
            page.key(key)
            self.assertIn(f"{at} of ", page.text("#tour-says"))
        page.key("Escape")
        self.assertEqual(page.run("[document.activeElement.id, document.getElementById('tour-note'), document.querySelectorAll('.toured').length]"), ["tour", None, 0])
