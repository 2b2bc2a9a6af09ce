// attn bench by mpirun: rows of attention over ranks, and where each rank's time goes.
#pragma once

#include <string>
#include <vector>

#include "attn/distributed.hpp"
#include "bench/row.hpp"

namespace attn::tool {

// One row by one scheme. Seconds are of the median of the repeats by the slowest rank's time; parts of it are means
// over the ranks.
struct RanksMeasurement {
  Row row;
  std::string scheme;
  double median = 0, fastest = 0;
  double computing = 0, sending = 0, waiting = 0;  // waiting: for messages that had not arrived
  double bytes = 0, messages = 0;                  // that the busiest rank sent
  double operations = 0;                           // of all ranks
  double processors = 0;                           // seconds of processors, of all ranks; the least of the repeats
  double estimated = 0;                            // seconds by the cost model; of a forward pass on several ranks
  distributed::Costs costs;                        // as they were measured for it
};

// Rows may be `forward` or `training`, of one batch item or more, with the mask none or causal. Throws Error (data) for
// others.
void check_for_ranks(const Row& row);

// All ranks make this call; under a causal mask the layout is zigzag.
RanksMeasurement measure_on_ranks(const Row& row, distributed::Scheme scheme, int repeats,
                                  distributed::Transport& ranks);

std::string ranks_text(const std::vector<RanksMeasurement>& all, int ranks);
std::string ranks_json(const std::vector<RanksMeasurement>& all, int ranks);

}  // namespace attn::tool
