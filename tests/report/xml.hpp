// A figure read back by an XML parser (expat) that knows nothing of how it was written.
#pragma once

#include <expat.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace attn::test {

struct Element {
  std::string tag;
  std::map<std::string, std::string> attributes;
  std::string text;                // directly inside
  std::string hint;                // of a <title> inside
  std::vector<std::string> above;  // tags around it, outermost first

  double number(const std::string& name) const { return std::stod(attributes.at(name)); }
  bool has(const std::string& name) const { return attributes.count(name) != 0; }
};

// Every element in document order; a test failure when the text is not well-formed.
class Document {
 public:
  explicit Document(const std::string& text) {
    const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(XML_ParserCreate("UTF-8"),
                                                                              XML_ParserFree);
    XML_SetUserData(parser.get(), this);
    XML_SetElementHandler(parser.get(), start, end);
    XML_SetCharacterDataHandler(parser.get(), characters);
    const auto status = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE);
    EXPECT_EQ(status, XML_STATUS_OK) << XML_ErrorString(XML_GetErrorCode(parser.get())) << " in line "
                                     << XML_GetCurrentLineNumber(parser.get()) << "\n"
                                     << text.substr(0, 2000);
  }

  std::vector<Element> all(const std::string& tag) const {
    std::vector<Element> found;
    for (const Element& e : elements_) {
      if (e.tag == tag) found.push_back(e);
    }
    return found;
  }
  const Element& root() const { return elements_.front(); }
  const std::vector<Element>& elements() const { return elements_; }
  // Returns the texts that are written in the picture.
  std::vector<std::string> texts() const {
    std::vector<std::string> found;
    for (const Element& e : all("text")) found.push_back(e.text);
    return found;
  }

 private:
  static void start(void* self, const XML_Char* name, const XML_Char** attributes) {
    auto& d = *static_cast<Document*>(self);
    Element element{.tag = name, .attributes = {}, .text = {}, .hint = {}, .above = {}};
    for (; *attributes; attributes += 2) element.attributes[attributes[0]] = attributes[1];
    for (const std::size_t i : d.open_) element.above.push_back(d.elements_[i].tag);
    d.open_.push_back(d.elements_.size());
    d.elements_.push_back(std::move(element));
  }
  static void end(void* self, const XML_Char*) {
    auto& d = *static_cast<Document*>(self);
    const std::size_t index = d.open_.back();
    d.open_.pop_back();
    if (d.elements_[index].tag == "title" && !d.open_.empty())
      d.elements_[d.open_.back()].hint = d.elements_[index].text;
  }
  static void characters(void* self, const XML_Char* text, int length) {
    auto& d = *static_cast<Document*>(self);
    d.elements_[d.open_.back()].text.append(text, static_cast<std::size_t>(length));
  }

  std::vector<Element> elements_;
  std::vector<std::size_t> open_;
};

// Nothing is cut by the picture's edge: no shape, and no level text, of letters of half their height, as in narrow
// fonts.
inline void expect_inside(const std::string& svg) {
  const Document d(svg);
  const double width = d.root().number("width"), height = d.root().number("height");
  const auto expect = [&](double left, double top, double right, double bottom) {
    EXPECT_GE(left, 0);
    EXPECT_GE(top, 0);
    EXPECT_LE(right, width);
    EXPECT_LE(bottom, height);
  };
  for (const Element& e : d.elements()) {
    if (e.has("transform") || std::ranges::count(e.above, "pattern") > 0) continue;
    SCOPED_TRACE(e.tag + " " + e.text + e.hint);
    if (e.tag == "rect" && e.has("x")) {
      const double x = e.number("x"), y = e.number("y");
      expect(x, y, x + e.number("width"), y + e.number("height"));
    } else if (e.tag == "circle") {
      const double x = e.number("cx"), y = e.number("cy"), r = e.number("r");
      expect(x - r, y - r, x + r, y + r);
    } else if (e.tag == "line") {
      const auto [left, right] = std::minmax({e.number("x1"), e.number("x2")});
      const auto [top, bottom] = std::minmax({e.number("y1"), e.number("y2")});
      expect(left, top, right, bottom);
    } else if (e.tag == "text") {
      const double font = e.has("font-size") ? e.number("font-size") : 11, x = e.number("x"), y = e.number("y");
      const double columns = static_cast<double>(std::count_if(
          e.text.begin(), e.text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
      const std::string anchor = e.has("text-anchor") ? e.attributes.at("text-anchor") : "start";
      const double wide = 0.5 * font * columns, before = anchor == "end" ? wide : 0;
      expect(x - before, y - 0.9 * font, anchor == "start" ? x + wide : x, y + 0.2 * font);
    }
  }
}

}  // namespace attn::test
