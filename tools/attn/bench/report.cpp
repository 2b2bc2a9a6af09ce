#include "bench/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/format.hpp"
#include "common/json.hpp"
#include "common/processor.hpp"
#include "common/table.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "kernels/targets.hpp"

namespace attn::tool {
namespace {

constexpr double kGiga = 1e9, kMilli = 1e3;

// "6.3 ms", four digits at most.
std::string time_text(double seconds) {
  const auto digits = [](double x) { return x < 10 ? 2 : x < 100 ? 1 : 0; };
  if (seconds < 1e-3) return fixed(seconds * 1e6, digits(seconds * 1e6)) + " µs";
  if (seconds < 1) return fixed(seconds * 1e3, digits(seconds * 1e3)) + " ms";
  return fixed(seconds, digits(seconds)) + " s ";
}

// Two decimals where one would show nothing.
std::string rate_text(double rate) { return fixed(rate / kGiga, rate < kGiga ? 2 : 1); }

std::string limit_name(const Measurement& m) {
  return m.work.bound == Bound::read ? "reads, GB/s" : formatted("{} multiply-adds, GFLOP/s", m.row.dtype);
}

// One line a limit, one column a number of threads.
std::string limits_table(const std::vector<Measurement>& all, const Style& style) {
  std::vector<const Measurement*> limits;
  Table table{{"limit"}};
  for (const Measurement& m : all) {
    if (!m.is_limit()) continue;
    limits.push_back(&m);
    const std::string threads = counted(m.threads, "thread");
    if (table[0].back() != threads) table[0].push_back(threads);
  }
  const std::size_t columns = table[0].size() - 1, kinds = limits.size() / columns;
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    table.push_back({limit_name(*limits[kind])});
    for (std::size_t t = 0; t < columns; ++t) {
      table.back().push_back(formatted("{:.1f}", limits[t * kinds + kind]->rate() / kGiga));
    }
  }
  std::vector<std::string> lines = table_lines(table, "<" + std::string(columns, '>'));
  lines[0] = style.heading(lines[0]);
  return joined(lines, "\n") + "\n";
}

std::string mask_text(const Row& row) { return row.numbers == "normal" ? row.mask : row.mask + " " + row.numbers; }

std::vector<std::string> row_cells(const Measurement& m, const std::vector<Measurement>& all) {
  const std::string dtype = m.row.precision == "highest" ? m.row.dtype : m.row.dtype + " " + m.row.precision;
  const double share = m.rate() / limit_of(m, all);
  const std::string plain = m.plain.empty() ? "-" : formatted("{:.3g}×", m.plain.median() / m.time.median());
  return {m.row.shape,
          dtype,
          mask_text(m.row),
          time_text(m.time.median()),
          time_text(m.time.fastest()),
          rate_text(m.rate()),
          formatted("{:.0f} %", share * 100),
          plain};
}

std::string rows_table(const std::string& op, int threads, const std::vector<Measurement>& all, const Style& style) {
  Table table{{"shape", "dtype", "mask", "median", "fastest", "GFLOP/s", "share", "plain"}};
  for (const Measurement& m : all) {
    if (m.row.op != op || m.threads != threads) continue;
    if (m.work.bound == Bound::read) table[0][5] = "GB/s";
    table.push_back(row_cells(m, all));
  }
  std::vector<std::string> lines = table_lines(table, "<<<>>>>>");
  lines[0] = style.faint(lines[0]);
  return style.heading(formatted("{}, {}", op, counted(threads, "thread"))) + "\n" + joined(lines, "\n") + "\n";
}

// The promise that the fused path is never slower than the plain one, where both were timed.
std::string promise_text(const std::vector<Measurement>& all) {
  std::string slower;
  int timed = 0;
  for (const Measurement& m : all) {
    if (m.plain.empty()) continue;
    ++timed;
    if (m.time.median() <= m.plain.median()) continue;
    slower += formatted("  {}, {}: {} against {}\n", m.row.text(), counted(m.threads, "thread"),
                        time_text(m.time.median()), time_text(m.plain.median()));
  }
  if (timed == 0) return {};
  if (slower.empty()) return formatted("\nNever slower than the plain path, in the {} rows that timed it.\n", timed);
  return slower.insert(0, "\nSlower than the plain path:\n");
}

Json row_json(const Measurement& m, const std::vector<Measurement>& all, int repeats) {
  const bool reads = m.work.bound == Bound::read;
  const double limit = m.is_limit() ? m.rate() : limit_of(m, all);
  Json json = row_json(m.row);
  json["isa"] = kernels::active().isa;
  json["threads"] = m.threads;
  json["ms"] = json_number(m.time.median() * kMilli);
  json["fastest_ms"] = json_number(m.time.fastest() * kMilli);
  json["plain_ms"] = m.plain.empty() ? Json(nullptr) : json_number(m.plain.median() * kMilli);
  json["gflops"] = m.work.operations > 0 ? json_number(m.work.operations / m.time.median() / kGiga) : Json(nullptr);
  json["gbps"] = reads ? json_number(m.work.bytes / m.time.median() / kGiga) : Json(nullptr);
  json["bound"] = reads ? "read" : m.work.bound == Bound::bf16 ? "bf16" : "f32";
  json["limit"] = json_number(limit / kGiga);
  json["share"] = json_number(m.rate() / limit);
  json["repeats"] = repeats;
  return json;
}

}  // namespace

std::string report_text(const std::vector<Measurement>& all, int repeats) {
  const Style style = Style::of_stdout();
  const std::string processor = this_processor().name;
  std::string text = formatted(
      "{}, {}; median and fastest of {}.\n"
      "A causal mask is counted half, a backward pass as 2.5 forward passes.\n"
      "The column share is the part of the limit that a row reaches. The column plain\n"
      "is the time of the plain path, divided by ours.\n\n",
      processor.empty() ? "processor unknown" : escaped(processor), kernels::active().isa, repeats);
  text = fitted(text, STDOUT_FILENO) + limits_table(all, style);
  std::vector<std::pair<std::string, int>> told;
  for (const Measurement& m : all) {
    const std::pair<std::string, int> key{m.row.op, m.threads};
    if (m.is_limit() || std::find(told.begin(), told.end(), key) != told.end()) continue;
    told.push_back(key);
    text.append("\n").append(rows_table(m.row.op, m.threads, all, style));
  }
  return text + promise_text(all);
}

std::string report_json(const std::vector<Measurement>& all, int repeats) {
  std::string text;
  for (const Measurement& m : all) {
    text += row_json(m, all, repeats).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

}  // namespace attn::tool
