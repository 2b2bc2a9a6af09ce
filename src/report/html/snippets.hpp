// The computation that a page shows as code to take away: PyTorch, and this library.
#pragma once

#include <string>

#include "attn/report.hpp"
#include "report/html/blocks.hpp"

namespace attn::report_page {

// As JSON: [{"title": "PyTorch", "id": "snippet-torch", "file": "attention.py", "type": "text/x-python", "lines": […],
// "few": [before, before a row, behind a row, behind], "many": …, "ending": …}, …]: in the place of the lines "@inputs"
// and
// "@source" the page puts the numbers of these steps, since what is typed changes them. Nothing of a module that is not
// in the list.
std::string snippets(const Block& block, const ReportOptions& options);

}  // namespace attn::report_page
