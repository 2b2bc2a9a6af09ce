// attn bench: the machine's limits, and how near to them the operator comes.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "attn/error.hpp"
#include "bench/explained.hpp"
#include "bench/measure.hpp"
#include "bench/ranks.hpp"
#include "bench/report.hpp"
#include "bench/shapes.hpp"
#include "common/format.hpp"
#include "common/processor.hpp"
#include "common/ranks.hpp"
#include "common/status_line.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "core/suggest.hpp"
#include "io/file.hpp"
#include "kernels/targets.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct BenchFlags {
  std::string list, filter, isa, scheme = "auto";
  std::vector<std::string> threads;
  int repeats = 5;
  double plain = 1;
  bool explain = false, json = false;
};

constexpr const char* kBenchNotes =
    "A list has a row a line: op shape dtype [mask [precision [numbers]]].\n"
    "  op     forward, backward, training (both) and decode take b,h,t,d, where keys\n"
    "         that differ are written hq/hkv, tq/tk, d/dv; cache and cache-paged\n"
    "         (decode from a KVCache, 64 tokens a page) take the same; linear and\n"
    "         linear-training take rows,d_in,d_out; module and module-training\n"
    "         (MultiHeadAttention) take b,t,d,heads\n"
    "  dtype  f32, bf16 or f16; i8 for a cache\n"
    "  mask   none, or parts joined by +: causal, causal-br (bottom right), window=N,\n"
    "         lengths, keep, bias, blocks=P (share of 128 × 128 blocks kept), alibi,\n"
    "         relative (T5's buckets of distances), score (ALiBi as a function of the\n"
    "         scores), sinks, softcap=C, dropout=P, dropout-keep=P (from a mask in\n"
    "         memory); of linear none or no-bias, of module none or causal\n"
    "  precision  highest, high or medium: how products of f32 may be computed\n"
    "  numbers    normal; one-nan or one-inf, one in each tensor; nan or inf, every\n"
    "             22nd; huge, up to the dtype's largest; subnormal\n"
    "On ranks, as in mpirun -n 2 attn bench …, rows are forward or training, none or\n"
    "causal; each rank takes as many threads as OMP_NUM_THREADS says.";

constexpr const char* kBenchExamples =
    "attn bench --filter 'forward f32' --threads 1\n"
    "attn bench --isa scalar --json\n"
    "echo 'training 2,8,512,64 f32 causal' >rows.txt; attn bench --list rows.txt";

std::vector<Row> rows_of(const BenchFlags& flags) {
  std::string list = kDefaultShapes;
  if (!flags.list.empty()) {
    constexpr std::size_t most = 1'000'000;
    list = io::as_text(io::read_file(flags.list, "--list", most).bytes());
  }
  const auto rows = filtered(parse_rows(list, flags.list.empty() ? "shapes.txt" : flags.list), flags.filter);
  if (rows.empty()) {
    refuse("attn bench", "a row to time",
           flags.filter.empty() ? "an empty list" : "none with \"" + flags.filter + "\"");
  }
  return rows;
}

// More threads than the machine has would measure the system's scheduler; plans can be explained for any.
std::vector<int> threads_of(const BenchFlags& flags) {
  constexpr int most_explained = 1024;
  const int all = static_cast<int>(this_processor().threads), most = flags.explain ? most_explained : all;
  if (flags.threads.empty() && flags.explain) return {0};
  if (flags.threads.empty()) return all > 1 ? std::vector<int>{1, all} : std::vector<int>{1};
  std::vector<int> counts;
  for (const std::string& text : flags.threads) {
    const int count = text == "all" ? all : number_in<int>(text).value_or(0);
    if (text != "all" && (count < 1 || count > most)) {
      refuse("--threads", formatted("all, or counts from 1 to {}", most), text);
    }
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const kernels::Target& target : kernels::targets()) {
    if (target.supported) names.emplace_back(target.isa);
  }
  return names;
}

void force(const std::string& isa) {
  const std::vector<std::string> names = isa_names();
  if (std::find(names.begin(), names.end(), isa) == names.end()) {
    refuse("--isa", "an instruction set of this processor: " + joined(names, ", "), isa, did_you_mean(isa, names));
  }
  setenv("ATTN_FORCE_ISA", isa.c_str(), 1);
}

// Times those shapes of the list that ranks can share; the list comes with the command.
void bench_on_ranks(const BenchFlags& flags, distributed::Transport& ranks) {
  std::vector<Row> rows;
  together(&ranks, [&] {
    if (!flags.isa.empty()) force(flags.isa);
    for (const Row& row : rows_of(flags)) {
      try {
        check_for_ranks(row);
        rows.push_back(row);
      } catch (const Error&) {
        if (!flags.list.empty()) throw;
      }
    }
  });
  std::vector<RanksMeasurement> all;
  for (const Row& row : rows)
    all.push_back(measure_on_ranks(row, distributed::parse_scheme(flags.scheme), flags.repeats, ranks));
  if (ranks.rank() == 0) write_stdout(flags.json ? ranks_json(all, ranks.size()) : ranks_text(all, ranks.size()));
}

void bench(const Verb& verb, const BenchFlags& flags) {
  if (distributed::Transport* const ranks = launched_ranks()) {
    for (const char* flag : {"--threads", "--plain", "--explain"}) {
      if (verb.given(flag)) refuse(flag, "one process", "ranks");
    }
    return bench_on_ranks(flags, *ranks);
  }
  require_no_scheme(flags.scheme);
  if (!flags.isa.empty()) force(flags.isa);  // before the rows, whose masks are tried
  const Plan plan{rows_of(flags), threads_of(flags), flags.repeats, flags.plain};
  if (flags.explain) return write_stdout(explained(plan.rows, plan.threads, flags.json));
  StatusLine status;
  const auto measured = measure(plan, [&status, shown = isatty(STDERR_FILENO) != 0](const std::string& text) {
    if (shown) status.show(escaped(text));
  });
  status.clear();
  write_stdout(flags.json ? report_json(measured, flags.repeats) : report_text(measured, flags.repeats));
}

}  // namespace

void define_bench(Verb& verb, int&) {
  constexpr int most_repeats = 10000;
  constexpr double most_plain = 1e6;
  const auto flags = std::make_shared<BenchFlags>();
  verb.add_option("--list FILE", flags->list, "The rows to time; - is standard input.")
      .default_is("the list that comes with the command");
  verb.add_option("--filter TEXT", flags->filter, "Time only rows that hold every word of this text.");
  verb.add_option("--threads N,…", flags->threads, "The numbers of threads, joined by commas, or all.")
      .delimiter(',')
      .default_is("1,all");
  verb.add_option("--isa NAME", flags->isa, "The instruction set to use.").default_is("the fastest of this processor");
  verb.add_option("--scheme NAME", flags->scheme, "How ranks that mpirun or srun started share a row.")
      .one_of({"auto", "ring", "gather", "ulysses"});
  verb.add_option("--repeats N", flags->repeats, "The number of samples of every row.").between(1, most_repeats);
  verb.add_option("--plain S", flags->plain, "Time the plain path too where it takes up to S seconds.")
      .between(0.0, most_plain);
  const Option& explain = verb.add_flag(
      "--explain", flags->explain,
      "Tell which kernels compute a row, how, and why. With --threads, of any numbers, also how the tasks share "
      "out over so many, and the time that follows from the tasks' own, one by one.");
  verb.find("--repeats")->not_beside(explain);
  verb.find("--plain")->not_beside(explain);
  verb.add_flag("--json", flags->json, "Print one JSON object a row, one row a line.");
  verb.notes(kBenchNotes);
  verb.examples(kBenchExamples);
  verb.callback([&verb, flags] { bench(verb, *flags); });
}

}  // namespace attn::tool
