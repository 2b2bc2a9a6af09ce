#include "common/inputs.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"

namespace attn::tool {
namespace {

std::string name_of(const std::string& path) { return path == "-" ? "standard input" : escaped(path); }

void count_row(const Tensor& row, Counts& counts) {
  // A long row's float64 copy is made piece by piece.
  constexpr std::int64_t piece = 1 << 16;
  for (std::int64_t begin = 0; begin < row.numel(); begin += piece) {
    for (const double value : values_of(row.slice(0, begin, std::min(begin + piece, row.numel())))) {
      counts.nan += std::isnan(value);
      counts.inf += std::isinf(value);
    }
  }
}

// A tensor of a file; where it has several of which none is named, the error ends with `mend`.
Tensor tensor_of(const std::string& path, const std::string& tensor_name, std::uint64_t max_bytes,
                 std::string_view mend) {
  try {
    return io::load_tensor(path, tensor_name, max_bytes);
  } catch (const Error& error) {
    if (error.op() != "load_tensor" || !tensor_name.empty() || mend.empty()) throw;
    const std::string expected = formatted("[{}] expected ", error.op()), found = "; found ", what = error.what();
    const std::size_t begin = expected.size(), end = what.find(found);
    throw Error(error.kind(), error.op(), what.substr(begin, end - begin), what.substr(end + found.size()), mend);
  }
}

// Numbers that are not finite are passed through, and a note tells how many there are.
Input loaded(const std::string& path, Tensor tensor, std::vector<std::string>& notes) {
  Input input{name_of(path), std::move(tensor), {}};
  input.counts = count_nonfinite(input.tensor);
  if (input.counts.any()) {
    notes.push_back(formatted("{} holds {}: passed through", input.name, counts_text(input.counts)));
  }
  return input;
}

// Computes as much as it can in float32: the library's modules take nothing else.
void convert(Input& input, std::vector<std::string>& notes) {
  if (input.tensor.dtype() == DType::f32) return;
  notes.push_back(formatted("{} is {}: converted to float32", input.name, attn::name(input.tensor.dtype())));
  input.tensor = input.tensor.to(DType::f32);
  const Counts before = std::exchange(input.counts, count_nonfinite(input.tensor));
  if (const std::int64_t beyond = input.counts.inf - before.inf; beyond > 0) {
    notes.push_back(
        formatted("{} holds {} beyond float32's largest: inf is computed with", input.name, counted(beyond, "number")));
  }
}

}  // namespace

Counts count_nonfinite(const Tensor& tensor) {
  Counts counts;
  if (!is_floating(tensor.dtype()) || tensor.numel() == 0) return counts;
  count_row(tensor.contiguous().view({tensor.numel()}), counts);
  return counts;
}

std::string counts_text(const Counts& counts) {
  const std::string nan = counts.nan ? formatted("{} NaN", counts.nan) : "";
  const std::string inf = counts.inf ? formatted("{} inf", counts.inf) : "";
  return nan + (counts.nan && counts.inf ? " and " : "") + inf;
}

Input load_float32(const std::string& path, const std::string& tensor_name, std::uint64_t max_bytes,
                   std::vector<std::string>& notes, std::string_view mend) {
  Input input = loaded(path, tensor_of(path, tensor_name, max_bytes, mend), notes);
  convert(input, notes);
  return input;
}

Input load_floating(const std::string& path, std::uint64_t max_bytes, std::vector<std::string>& notes) {
  Input input = loaded(path, load_only(path, max_bytes), notes);
  if (!is_floating(input.tensor.dtype())) convert(input, notes);
  return input;
}

Tensor load_only(const std::string& path, std::uint64_t max_bytes) {
  return tensor_of(path, {}, max_bytes, "save one alone: attn draw FILE --tensor NAME --output one.npy");
}

void add_limit_flag(Verb& verb, std::uint64_t& max_bytes) {
  verb.add_option("--max-bytes N", max_bytes, "The most bytes that an .npz may unpack to.")
      .default_is("1 GB, or 16 times the size of the file where that is more")
      .at_least(1);
}

void require_one_stdin(std::initializer_list<std::string> paths) {
  if (std::count(paths.begin(), paths.end(), "-") <= 1) return;
  refuse("inputs", "standard input (-) for one input", "it for several", "save the others to files");
}

double machine_memory() {
  return std::max(0.0, static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)));
}

void require_memory(const std::string& what, double bytes, const std::string& hint) {
  const double machine = machine_memory();
  if (machine <= 0 || bytes <= machine) return;
  constexpr double giga = 1e9;
  refuse("memory", formatted("at most this machine's {:.1f} GB", machine / giga),
         formatted("{:.4g} GB for {}", bytes / giga, what), hint);
}

void require_scores_memory(std::int64_t batch, std::int64_t heads, std::int64_t tq, std::int64_t tk, double bytes) {
  require_memory(formatted("the weights of {} × {} × {} × {} (batch, heads, queries, keys)", batch, heads, tq, tk),
                 static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(tq) *
                     static_cast<double>(tk) * bytes,
                 "shorten the input, or split its batch");
}

}  // namespace attn::tool
