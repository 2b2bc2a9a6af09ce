// The page's own text: what lies in the folder page, put into the library when it is built.
#pragma once

#include <span>
#include <string_view>

namespace attn::report_page {

std::string_view page_html() noexcept;  // with {{…}} where the rest goes
std::string_view page_style() noexcept;
// The script's files in order; together they are one script, whose SHA-256 in hexadecimal is script_sha256().
std::span<const std::string_view> page_scripts() noexcept;
std::string_view style_sha256() noexcept;
std::string_view script_sha256() noexcept;

}  // namespace attn::report_page
