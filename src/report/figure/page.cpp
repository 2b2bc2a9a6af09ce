// One figure as a page, which a browser shows and prints.
#include <string>
#include <string_view>

#include "attn/figure.hpp"
#include "report/figure/svg.hpp"

namespace attn::figure {
namespace {

// It runs nothing and fetches nothing. A figure is on white, and so is the page.
constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<style>
body { margin: 1rem; background: #fff; color: #222; font-family: sans-serif }
svg { display: block; max-width: 100%; height: auto }
pre { overflow-x: auto }
</style>
)";

// Returns the title of a figure, escaped as it stands there.
std::string_view title_of(std::string_view svg) {
  constexpr std::string_view open = "<title>", close = "</title>";
  const std::size_t at = svg.find(open), end = svg.find(close);
  if (at == std::string_view::npos || end == std::string_view::npos) return {};
  return svg.substr(at + open.size(), end - at - open.size());
}

}  // namespace

std::string page(std::string_view svg, std::string_view text) {
  std::string html(kHead);
  html.append("<title>").append(title_of(svg)).append("</title>\n<main>\n").append(svg);
  if (!text.empty()) html.append("<pre tabindex=\"0\">").append(escaped(text)).append("</pre>\n");
  return html.append("</main>\n</html>\n");
}

}  // namespace attn::figure
