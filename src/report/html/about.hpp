// Writes what a page tells beside the numbers, of its text and of what computed it.
#pragma once

#include <string>
#include <vector>

#include "attn/report.hpp"
#include "report/html/blocks.hpp"
#include "report/html/health.hpp"
#include "report/html/json.hpp"

namespace attn::report_page {

// The page's labels say this.
struct Words {
  std::vector<std::string> queries, keys;
  std::string title, unit;
  std::string explained;  // what is computed, where the steps alone do not tell it
};

// Throws Error (shape) where there is not one label for each row.
Words words_of(const Block& block, const ReportOptions& options);

// The first names and values of the page's data; `options` say which head of which layer comes first.
void write_about(Json& json, std::int64_t batch, const Words& words, const std::vector<Check>& checks,
                 const ReportOptions& options);

}  // namespace attn::report_page
