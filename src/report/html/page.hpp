// The page's own text: what lies in the folder page, put into the library when it is built.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attn::report_page {

std::string_view page_html() noexcept;  // with {{…}} where the rest goes
std::string_view page_style() noexcept;
// The script's files in order; together they are one script, whose SHA-256 in hexadecimal is script_sha256().
std::span<const std::string_view> page_scripts() noexcept;
// A page that computes has more: the ends of its script and its style, which make their hashes other ones, the script
// by which it calls the library, the rest of what a worker runs, and src/web/attn.wasm.gz.
std::span<const std::string_view> page_live_scripts() noexcept;
std::string_view live_script_sha256() noexcept;
std::string_view page_live_style() noexcept;
std::string_view live_style_sha256() noexcept;
std::string_view page_library() noexcept;
std::string_view library_sha256() noexcept;
std::string_view page_worker() noexcept;
std::string page_engine();
std::string_view style_sha256() noexcept;
std::string_view script_sha256() noexcept;

}  // namespace attn::report_page
