// attn sdpa by mpirun: of files that may be larger than a machine's memory.
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "attn/error.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"
#include "common/json.hpp"
#include "common/outputs.hpp"
#include "common/plans.hpp"
#include "common/ranks.hpp"
#include "common/terminal.hpp"
#include "io/rows_file.hpp"
#include "io/shared_file.hpp"
#include "sdpa/sdpa.hpp"

namespace attn::tool {
namespace {

using distributed::Layout;
using distributed::Transport;
using Runs = std::vector<io::RowsFile::Run>;

Runs runs_of(const Layout& layout, int rank) {
  Runs runs;
  for (const distributed::Run& run : layout.runs(rank)) runs.emplace_back(run.first, run.last);
  return runs;
}

std::string shapes(const io::RowsFile& q, const io::RowsFile& k, const io::RowsFile& v) {
  return formatted("q {}, k {}, v {}", q.shape().str(), k.shape().str(), v.shape().str());
}

// The files by their headers, and who has which rows.
struct Whole {
  io::RowsFile q, k, v;
  Layout queries, keys;
  Shape output, lse;
};

void refuse_what_is_for_one_process(const SdpaFlags& flags) {
  if (flags.output.empty() || flags.output == "-")
    refuse("--output", "a file, into which all ranks write", flags.output.empty() ? "none" : "standard output");
  if (flags.lse == "-") refuse("--lse", "a file, into which all ranks write", "standard output");
  if (!flags.save_weights.empty()) refuse("--save-weights", "one process", "several ranks");
  if (flags.query_offset) refuse("--query-offset", "no offsets: ranks have the whole", "one");
  if (flags.key_offset) refuse("--key-offset", "no offsets: ranks have the whole", "one");
  for (const std::string* path : {&flags.q, &flags.k, &flags.v, &flags.mask, &flags.blocks, &flags.relative_bias}) {
    if (*path == "-") refuse("attn sdpa", "files, which all ranks can read", "standard input");
  }
}

Whole open(const SdpaFlags& flags, int ranks) {
  Whole in{io::RowsFile(flags.q, flags.max_bytes), io::RowsFile(flags.k, flags.max_bytes),
           io::RowsFile(flags.v, flags.max_bytes)};
  const std::size_t rank = in.q.shape().size();
  if (rank > 4 || in.k.shape().size() != rank || in.v.shape().size() != rank || in.k.rows() != in.v.rows()) {
    throw Error(Error::Kind::shape, "attn sdpa", "q, k and v of one rank: (b, h, t, d), (h, t, d) or (t, d)",
                shapes(in.q, in.k, in.v));
  }
  // Under a causal mask ranks then have the same work.
  const auto layout = [&](std::int64_t tokens) {
    return flags.causal.empty() ? Layout::even(tokens, ranks) : Layout::zigzag(tokens, ranks);
  };
  in.queries = layout(in.q.rows()), in.keys = layout(in.k.rows());
  in.output = in.lse = in.q.shape();
  in.output[rank - 1] = in.v.shape()[rank - 1];
  in.lse.erase(rank - 1);
  return in;
}

struct Own {
  Tensor q, k, v;
  AttentionOptions options;
  std::vector<std::string> notes;
};

// Rows of the mask are the queries'; one row is for all of them.
Mask own_mask(const SdpaFlags& flags, const Whole& in, int rank) {
  const io::RowsFile file(flags.mask, flags.max_bytes);
  if (file.rows() == 1) return mask_of(file.load(Runs{{0, 1}}));
  if (file.rows() != in.q.rows()) {
    throw Error(Error::Kind::shape, "--mask", formatted("a row for each of {} queries, or one", in.q.rows()),
                file.shape().str());
  }
  return mask_of(file.load(runs_of(in.queries, rank)));
}

Own load(const SdpaFlags& flags, const Whole& in, int rank) {
  Own own;
  const auto rows = [&](const char* flag, const io::RowsFile& file, const Layout& layout) {
    const Tensor tensor = with_rank_4(file.load(runs_of(layout, rank)));
    if (is_floating(tensor.dtype())) return tensor;
    own.notes.push_back(formatted("{} is {}: converted to float32", flag, name(tensor.dtype())));
    return tensor.to(DType::f32);
  };
  own.q = rows("--q", in.q, in.queries), own.k = rows("--k", in.k, in.keys), own.v = rows("--v", in.v, in.keys);
  own.options = options_of(flags);
  if (!flags.mask.empty()) own.options.mask = own.options.mask & own_mask(flags, in, rank);
  return own;
}

struct OwnResult {
  AttentionResult own;
  distributed::Estimate estimate;
  double seconds = 0;  // of the slowest rank
};

double most_of(Transport& ranks, double own) {
  const std::vector<double> all = ranks.all_values(own);
  return *std::max_element(all.begin(), all.end());
}

OwnResult compute(const SdpaFlags& flags, const Whole& in, const Own& own, Transport& ranks) {
  OwnResult result;
  distributed::Options options;
  options.attention = own.options, options.scheme = distributed::parse_scheme(flags.scheme);
  options.queries = in.queries, options.keys = in.keys;
  alike(&ranks, [&] {
    const distributed::Problem problem{own.q.size(0), own.q.size(1), own.k.size(1), own.q.size(3),
                                       own.v.size(3), own.q.dtype(), in.queries,    in.keys};
    options.costs = measure(ranks, own.q.dtype(), own.q.size(3));
    const auto start = std::chrono::steady_clock::now();
    result.own = attention(ranks, own.q, own.k, own.v, options);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result.estimate = estimate(problem, options);
  });
  result.seconds = most_of(ranks, result.seconds);
  return result;
}

// Rank 0 makes a file, all write into it, and it gets its name when all have. Until then nothing is there.
class Together {
 public:
  Together(const std::string& path, const Shape& shape, DType dtype, std::size_t dim, Transport& ranks)
      : ranks_(ranks) {
    std::string temporary;
    together(&ranks, [&] {
      if (ranks.rank() != 0) return;
      file_ = std::make_unique<io::SharedFile>(path, shape, dtype, dim);
      temporary = file_->temporary();
    });
    temporary = ranks.all_gather(temporary).front();
    together(&ranks, [&] {
      if (ranks.rank() != 0) file_ = std::make_unique<io::SharedFile>(path, temporary, shape, dtype, dim);
    });
  }

  void write(const Runs& runs, const Tensor& rows) {
    together(&ranks_, [&] { file_->write(runs, rows), file_->finish(); });
  }
  void commit() {
    together(&ranks_, [&] {
      if (ranks_.rank() == 0) file_->commit();
    });
  }

 private:
  Transport& ranks_;
  std::unique_ptr<io::SharedFile> file_;
};

// Rank 0 prints before any file is put in place.
void save(const SdpaFlags& flags, const Whole& in, const OwnResult& result, Transport& ranks,
          const std::function<void()>& print) {
  const Runs runs = runs_of(in.queries, ranks.rank());
  const std::size_t dim = in.q.shape().size() - 2, added = 4 - in.q.shape().size();
  std::vector<std::unique_ptr<Together>> files;
  const auto write = [&](const std::string& path, const Shape& shape, const Tensor& rows) {
    if (path.empty()) return;
    files.push_back(std::make_unique<Together>(path, shape, rows.dtype(), dim, ranks));
    files.back()->write(runs, without_leading(rows, added));
  };
  write(flags.output, in.output, result.own.output), write(flags.lse, in.lse, result.own.lse);
  together(&ranks, [&] {
    if (ranks.rank() == 0) print();
  });
  for (const auto& file : files) file->commit();
}

Counts sum_over_ranks(Transport& ranks, const Tensor& own) {
  const std::vector<Counts> all = ranks.all_values(count_nonfinite(own));
  return std::accumulate(all.begin(), all.end(), Counts{}, [](Counts a, const Counts& b) {
    return Counts{a.nan + b.nan, a.inf + b.inf};
  });
}

std::string summary(const Outputs& outputs, const Whole& in, const Own& own, const OwnResult& result,
                    const Counts& counts, int ranks) {
  return formatted("sdpa: {} → {} on {} ranks by {} in {:.3f} s\n", shapes(in.q, in.k, in.v), in.output.str(), ranks,
                   distributed::name(result.estimate.scheme), result.seconds) +
         told(own.notes, counts, outputs.paths());
}

Json report(const Outputs& outputs, const Whole& in, const Own& own, const OwnResult& result, const Counts& counts,
            int ranks) {
  Json json;
  json["shapes"] = {{"q", json_shape(in.q.shape())},
                    {"k", json_shape(in.k.shape())},
                    {"v", json_shape(in.v.shape())},
                    {"output", json_shape(in.output)}};
  json["nonfinite"]["output"] = {{"nan", counts.nan}, {"inf", counts.inf}};
  json["dtype"] = name(result.own.output.dtype());
  json["ranks"] = ranks;
  json["scheme"] = distributed::name(result.estimate.scheme);
  json["reason"] = result.estimate.reason;
  json["seconds"] = result.seconds;
  json["files"] = outputs.paths();
  json["notes"] = own.notes;
  return json;
}

}  // namespace

void run_sdpa_over_ranks(const SdpaFlags& flags, Transport& ranks) {
  std::optional<Whole> in;
  Own own;
  Outputs outputs;
  together(&ranks, [&] {
    refuse_what_is_for_one_process(flags);
    for (const auto& [flag, path] : {std::pair("--output", flags.output), {"--lse", flags.lse}})
      outputs.declare(flag, path, {".npy", ".safetensors"});
    in = open(flags, ranks.size());
  });
  require_alike(&ranks, "the shapes", shapes(in->q, in->k, in->v));
  together(&ranks, [&] { own = load(flags, *in, ranks.rank()); });
  const kernels::PlanRecord record;
  const OwnResult result = compute(flags, *in, own, ranks);
  const Counts counts = sum_over_ranks(ranks, result.own.output);
  save(flags, *in, result, ranks, [&] {
    if (flags.json) {
      Json json = report(outputs, *in, own, result, counts, ranks.size());
      if (flags.explain) json["plans"] = plans_json(record.plans());
      return write_stdout(dump(json));
    }
    write_stdout(summary(outputs, *in, own, result, counts, ranks.size()) +
                 (flags.explain ? plans_text(record.plans()) : ""));
  });
}

}  // namespace attn::tool
