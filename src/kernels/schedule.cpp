#include "kernels/schedule.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/parallel.hpp"
#include "kernels/rounding.hpp"
#include "kernels/table.hpp"

namespace attn::kernels {
namespace {

constexpr double kMove = 8;  // multiply-adds in whose time a number is packed, or summed up

double product_of(std::int64_t a, std::int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

struct Thread {
  double free_at;
  int number;
  std::int64_t done;

  bool operator>(const Thread& other) const {
    return free_at > other.free_at || (free_at == other.free_at && number > other.number);
  }
};

// When a task ends that a thread begins at `start`; it waits for the one before it at every span.
double end_of(const PhaseWork& phase, std::int64_t task, double start, const std::vector<double>& ends) {
  const auto work = [&](std::int64_t i) { return phase.tasks[static_cast<std::size_t>(i)]; };
  if (phase.behind == 0 || task < phase.behind) return start + work(task);
  const std::int64_t before = task - phase.behind;
  const double end = ends[static_cast<std::size_t>(before)], spans = static_cast<double>(phase.spans);
  return std::max(
      {start + work(task), end - work(before) + work(before) / spans + work(task), end + work(task) / spans});
}

// When the last of `threads` is free, all of them beginning at 0, and the most tasks that one has done.
std::pair<double, std::int64_t> run(const PhaseWork& phase, int threads) {
  std::priority_queue<Thread, std::vector<Thread>, std::greater<>> waiting;
  for (int i = 0; i < threads; ++i) waiting.push({0, i, 0});
  std::vector<double> ends;
  const auto tasks = static_cast<std::int64_t>(phase.tasks.size());
  double elapsed = 0;
  std::int64_t most = 0;
  for (std::int64_t first = 0, last = 0; first < tasks; first = last) {
    last = first + (phase.by_runs ? TaskQueue::run_length(tasks - first, threads) : 1);
    Thread next = waiting.top();
    waiting.pop();
    for (std::int64_t task = first; task < last; ++task) {
      ends.push_back(next.free_at = end_of(phase, task, next.free_at, ends));
    }
    next.done += last - first;
    elapsed = std::max(elapsed, next.free_at), most = std::max(most, next.done);
    waiting.push(next);
  }
  return {elapsed, most};
}

// Keys that some row of [first, first + rows) of a key head sees: rows are laid out as tasks take them.
class Pairs {
 public:
  explicit Pairs(const Problem& p) : p_(p) {}

  std::int64_t rows_of_head() const { return p_.hq / p_.hkv * p_.tq; }

  // Keys of [begin, end) that a group of rows is multiplied by.
  std::int64_t keys(std::int64_t batch, std::int64_t key_head, std::int64_t first, std::int64_t rows,
                    std::int64_t begin, std::int64_t end) const {
    std::int64_t low = end, high = begin;
    for (std::int64_t r = first; r < first + rows; ++r) {
      const auto [from, to] = seen(batch, r % p_.tq);
      low = std::min(low, std::max(from, begin)), high = std::max(high, std::min(to, end));
    }
    if (low >= high) return 0;
    return p_.blocks.data ? in_blocks(batch, key_head, first, low, high) : high - low;
  }

 private:
  std::pair<std::int64_t, std::int64_t> seen(std::int64_t batch, std::int64_t token) const {
    if (!p_.first) return {0, p_.tk};
    const std::int64_t at = batch * p_.interval_batch + token;
    return {p_.first[at], std::max(p_.first[at], p_.last[at])};
  }

  // By the blocks of the group's first row, which are mostly its other rows' too.
  std::int64_t in_blocks(std::int64_t batch, std::int64_t key_head, std::int64_t row, std::int64_t low,
                         std::int64_t high) const {
    const std::int64_t head = key_head * (p_.hq / p_.hkv) + row / p_.tq, query = row % p_.tq;
    const bool* blocks = p_.blocks.data + batch * p_.blocks.batch + head * p_.blocks.head +
                         (p_.block_query_start + query) / p_.block_query * p_.blocks.query;
    std::int64_t count = 0;
    for (std::int64_t j = low, next = 0; j < high; j = next) {
      const std::int64_t block = (p_.block_key_start + j) / p_.block_key;
      next = std::min(high, (block + 1) * p_.block_key - p_.block_key_start);
      if (blocks[block * p_.blocks.key]) count += next - j;
    }
    return count;
  }

  const Problem& p_;
};

// Pairs of a task that has rows [first, first + rows) of a key head, and keys [begin, end).
double pairs(const Problem& p, std::int64_t head, std::int64_t first, std::int64_t rows, int columns,
             std::int64_t begin, std::int64_t end) {
  const Pairs seen(p);
  const std::int64_t last = std::min(first + rows, seen.rows_of_head());
  double count = 0;
  for (std::int64_t row = first; row < last; row += columns) {
    const std::int64_t held = std::min<std::int64_t>(columns, last - row);
    count += product_of(columns, seen.keys(head / p.hkv, head % p.hkv, row, held, begin, end));
  }
  return count;
}

// Of `tasks` alike.
PhaseWork alike(std::int64_t tasks, double each, bool by_runs = true) {
  return {std::vector<double>(static_cast<std::size_t>(tasks), each), by_runs};
}

template <class Each>
PhaseWork each_of(std::int64_t tasks, Each&& each) {
  PhaseWork phase;
  for (std::int64_t task = 0; task < tasks; ++task) phase.tasks.push_back(each(task));
  return phase;
}

}  // namespace

double Schedule::speed_up() const { return elapsed > 0 ? total / elapsed : 1; }

Schedule simulate(std::span<const PhaseWork> phases, int threads) {
  Schedule all;
  for (const PhaseWork& phase : phases) {
    const auto tasks = static_cast<std::int64_t>(phase.tasks.size());
    if (tasks == 0) continue;
    const auto [elapsed, most] = run(phase, static_cast<int>(std::min<std::int64_t>(threads, tasks)));
    all.tasks += tasks, all.waves += most, all.elapsed += elapsed;
    all.total = std::accumulate(phase.tasks.begin(), phase.tasks.end(), all.total);
  }
  return all;
}

std::vector<PhaseWork> work(const Problem& p, const ForwardPlan& plan) {
  const double width = static_cast<double>(p.d + p.dv);
  if (plan.decodes()) {
    const std::int64_t rows = Pairs(p).rows_of_head();
    const auto chunk = [&](std::int64_t task) {
      const std::int64_t begin = task % plan.chunks * plan.chunk_keys, end = std::min(p.tk, begin + plan.chunk_keys);
      const double seen = pairs(p, task / plan.chunks, 0, rows, static_cast<int>(rows), begin, end);
      return width * (seen + kMove * seen / static_cast<double>(rows));  // read once for all rows
    };
    return {each_of(plan.tasks[0], chunk), alike(plan.tasks[1], kMove * product_of(plan.chunks * rows, p.dv))};
  }
  const int columns = plan.columns;
  const auto queries = [&](std::int64_t i) {
    const std::int64_t task = plan.begun(1, i);
    const std::int64_t at = plan.queries.per_head - 1 - task % plan.queries.per_head;
    const double moved = kMove * product_of(plan.queries.rows, p.d + p.dv);
    return moved +
           width * pairs(p, task / plan.queries.per_head, at * plan.queries.rows, plan.queries.rows, columns, 0, p.tk);
  };
  return {alike(plan.tasks[0], kMove * width * static_cast<double>(plan.packed_keys)), each_of(plan.tasks[1], queries)};
}

std::vector<PhaseWork> work(const Problem& p, const BackwardPlan& plan) {
  constexpr double products = 2.5;  // of the forward pass's two, five
  const double width = static_cast<double>(p.d + p.dv);
  const std::int64_t rows = plan.heads == 0 ? 0 : Pairs(p).rows_of_head();
  const auto keys = [&](std::int64_t task) {
    if (task >= plan.key_tasks) {  // of the bias: the share of its elements, of three products
      const double all = product_of(p.batch * p.hq * p.tq, p.tk);
      return 1.5 * width * all / static_cast<double>(plan.tasks[1] - plan.key_tasks);
    }
    const std::int64_t chunk = task / plan.heads % plan.chunks * plan.chunk, end = std::min(p.tk, chunk + plan.chunk);
    const std::int64_t begin = std::min(end, chunk + task / plan.heads / plan.chunks * plan.step);
    const std::int64_t last = plan.steps_apart ? std::min(begin + plan.step, end) : end;
    if (begin == last) return 0.0;
    return products * width * pairs(p, task % plan.heads, 0, rows, plan.columns, begin, last) +
           kMove * width * static_cast<double>(rows + last - begin);
  };
  PhaseWork tasks = each_of(plan.tasks[1], keys);
  if (plan.steps_apart) {
    tasks.by_runs = false;
    tasks.behind = plan.heads * plan.chunks, tasks.spans = ceil_div(rows, plan.span_rows);
  }
  const double task_rows = static_cast<double>(std::min(plan.queries.rows, rows));
  return {alike(plan.tasks[0], kMove * task_rows * static_cast<double>(p.dv)), std::move(tasks),
          alike(plan.tasks[2], kMove * task_rows * product_of(plan.chunks, p.d))};
}

std::vector<PhaseWork> work(const Product& p, const ProductPlan& plan) {
  const std::int64_t down = ceil_div(p.m, plan.task_rows);
  const auto task = [&](std::int64_t i) {
    const std::int64_t row = i % down * plan.task_rows, panel = i / down * plan.task_panels;
    const std::int64_t panels = std::min(plan.panels - panel, plan.task_panels);
    return product_of(std::min(p.m - row, plan.task_rows) * panels * plan.columns, p.k);
  };
  PhaseWork tasks = each_of(plan.tasks[0], task);
  tasks.by_runs = false;
  const double packed = plan.pack_tasks == 0 ? 0 : kMove * product_of(p.n, p.k) / static_cast<double>(plan.pack_tasks);
  return {alike(plan.pack_tasks, packed), std::move(tasks)};
}

std::vector<PhaseWork> work(const FewRows& p, const FewRowsPlan& plan) {
  return {each_of(plan.tasks[0], [&](std::int64_t task) {
    const std::int64_t outputs = std::min(plan.task_outputs, p.n - task * plan.task_outputs);
    return static_cast<double>(outputs) * product_of(p.m, p.k);
  })};
}

}  // namespace attn::kernels
