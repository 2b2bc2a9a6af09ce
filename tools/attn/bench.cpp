// attn bench: the machine's limits, and how near to them the operator comes.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attn/error.hpp"
#include "bench/measure.hpp"
#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/plans.hpp"
#include "common/processor.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"
#include "kernels/targets.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct BenchFlags {
  std::string list, filter, isa;
  std::vector<std::string> threads;
  int repeats = 5;
  double plain = 1;
  bool explain = false, json = false;
};

constexpr const char* kBenchFooter =
    "A list has a row a line: op shape dtype [mask [precision]].\n"
    "  op     forward, backward, training (both), decode: shape b,h,t,d, where keys\n"
    "         differ hq/hkv, tq/tk, d/dv; cache, cache-paged (decode from a KVCache,\n"
    "         paged: 64 tokens a page): the same; linear, linear-training:\n"
    "         rows,d_in,d_out;\n"
    "         module, module-training (MultiHeadAttention): b,t,d,heads\n"
    "  dtype  f32, bf16, f16; i8 for a cache\n"
    "  mask   none, or parts joined by +: causal, causal-br (bottom right), window=N,\n"
    "         lengths, keep, bias, blocks=P (share of 128 × 128 blocks kept), alibi,\n"
    "         score (ALiBi as a function of the scores), sinks, softcap=C, dropout=P,\n"
    "         dropout-keep=P (from a mask in memory)\n"
    "  precision  highest, high or medium: what products of f32 may be made of\n"
    "\n"
    "Examples:\n"
    "  attn bench --filter 'forward f32' --threads 1\n"
    "  attn bench --isa scalar --json\n"
    "  echo 'training 2,8,512,64 f32 causal' >rows.txt; attn bench --list rows.txt";

std::vector<Row> rows_of(const BenchFlags& flags) {
  std::string list = kDefaultShapes;
  if (!flags.list.empty()) {
    constexpr std::size_t most = 1'000'000;
    list = io::as_text(io::read_file(flags.list, "--list", most).bytes());
  }
  const auto rows = filtered(parse_rows(list, flags.list.empty() ? "shapes.txt" : flags.list), flags.filter);
  if (rows.empty()) {
    throw Error(Error::Kind::argument, "attn bench", "a row to time",
                flags.filter.empty() ? "an empty list" : "none with \"" + escaped(flags.filter) + "\"");
  }
  return rows;
}

// More threads than the machine has would measure the system's scheduler.
std::vector<int> threads_of(const BenchFlags& flags) {
  const int all = static_cast<int>(this_processor().threads);
  if (flags.threads.empty()) return all > 1 ? std::vector<int>{1, all} : std::vector<int>{1};
  std::vector<int> counts;
  for (const std::string& text : flags.threads) {
    int count = text == "all" ? all : 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (text != "all" && (error != std::errc{} || end != text.data() + text.size() || count < 1 || count > all)) {
      throw Error(Error::Kind::argument, "--threads", formatted("all, or counts from 1 to {}", all), escaped(text));
    }
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

void force(const std::string& isa) {
  std::string names;
  for (const kernels::Target& target : kernels::targets()) {
    if (!target.supported) continue;
    if (target.isa == isa) {
      setenv("ATTN_FORCE_ISA", isa.c_str(), 1);
      return;
    }
    names.append(names.empty() ? "" : ", ").append(target.isa);
  }
  throw Error(Error::Kind::argument, "--isa", "an instruction set of this processor: " + names, escaped(isa));
}

// One line that is written over; nothing where standard error is not a terminal.
void progress(const std::string& text) {
  if (!isatty(STDERR_FILENO)) return;
  write_stderr("\r\x1b[K" + escaped(text).substr(0, kColumns - 1));
}

// Each row is computed once, untimed.
void explain(const BenchFlags& flags) {
  std::string all;
  for (const Row& row : rows_of(flags)) {
    BenchInputs inputs;
    const Work work = make_work(row, inputs);
    const kernels::PlanListener listener;
    work.run();
    if (flags.json) {
      const Json json{{"op", row.op},     {"shape", row.shape},         {"dtype", row.dtype},
                      {"mask", row.mask}, {"precision", row.precision}, {"plans", plans_json(listener.heard())}};
      all += json.dump() + "\n";
    } else {
      all += row.text() + "\n" + plans_text(listener.heard()) + "\n";
    }
  }
  write_stdout(all);
}

void bench(const BenchFlags& flags) {
  const Plan plan{rows_of(flags), threads_of(flags), flags.repeats, flags.plain};
  if (!flags.isa.empty()) force(flags.isa);
  if (flags.explain) return explain(flags);
  const auto measured = measure(plan, progress);
  progress("");
  write_stdout(flags.json ? report_json(measured, flags.repeats) : report_text(measured, flags.repeats));
}

}  // namespace

void define_bench(Verb& verb, int&) {
  constexpr int most_repeats = 10000;
  constexpr double most_plain = 1e6;
  const auto flags = std::make_shared<BenchFlags>();
  verb.add_option("--list", flags->list, "Rows to time; - is standard input.\nDefault: the list that comes with it")
      .value_name("FILE");
  verb.add_option("--filter", flags->filter, "Only rows that hold every word of this text").value_name("TEXT");
  verb.add_option("--threads", flags->threads, "Counts, or all; joined by commas. Default: 1,all")
      .delimiter(',')
      .value_name("N,…");
  verb.add_option("--isa", flags->isa, "Instruction set to use. Default: the fastest here").value_name("NAME");
  verb.add_option("--repeats", flags->repeats, "Samples of every row. Default: 5")
      .value_name("N")
      .between(1, most_repeats);
  verb.add_option("--plain", flags->plain, "Time the plain path, too, where it takes up to S\nseconds. Default: 1")
      .value_name("S")
      .between(0.0, most_plain);
  verb.add_flag("--explain", flags->explain, "Tell which kernels compute a row, how, and why; time\nnothing");
  verb.add_flag("--json", flags->json, "One JSON object a row, one row a line");
  verb.footer(kBenchFooter);
  verb.callback([flags] { bench(*flags); });
}

}  // namespace attn::tool
