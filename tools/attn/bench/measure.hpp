// Timing: every row once, then every row once more, … so that a disturbance falls on all rows and not on one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/row.hpp"
#include "bench/work.hpp"

namespace attn::tool {

// Seconds of a call, one entry a repeat.
struct Timing {
  std::vector<double> seconds;

  bool empty() const noexcept { return seconds.empty(); }
  double median() const;
  double fastest() const;
};

struct Measurement {
  Row row;
  int threads = 1;
  Work work;
  Timing time, plain;  // plain: empty when it was not timed

  bool is_limit() const { return row.op == "limit"; }
  // Operations or bytes a second, by what bounds the row; of a limit's fastest repeat, of the others' median.
  double rate() const;
};

struct Plan {
  std::vector<Row> rows;
  std::vector<int> threads;
  int repeats = 5;
  double plain_seconds = 1;  // the plain path is timed, too, where it takes about so long at most
};

// Seconds of a call, the mean of `count` of them.
double seconds_of(const std::function<void()>& call, std::int64_t count = 1);

// The machine's limits first, then the rows, for each number of threads. `progress` is told what comes next.
std::vector<Measurement> measure(const Plan& plan, const std::function<void(const std::string&)>& progress);

// The rate of the limit that bounds `of`, at its number of threads. Without a bf16 limit float32's is taken: there
// bf16 is widened.
double limit_of(const Measurement& of, const std::vector<Measurement>& all);

}  // namespace attn::tool
