#include "kernels/schedule.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/parallel.hpp"
#include "kernels/query_rows.hpp"
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

// Keys of [low, high) that a row sees by its blocks.
std::int64_t in_blocks(const Problem& p, std::int64_t batch, const Query& at, std::int64_t low, std::int64_t high) {
  const BlockMask& mask = p.blocks;
  const bool* blocks = mask.keep.data + batch * mask.keep.batch + at.head * mask.keep.head +
                       (mask.query_start + at.token) / mask.query * mask.keep.query;
  std::int64_t count = 0;
  for (std::int64_t j = low, next = 0; j < high; j = next) {
    const std::int64_t block = (mask.key_start + j) / mask.key;
    next = std::min(high, (block + 1) * mask.key - mask.key_start);
    if (blocks[block * mask.keep.key]) count += next - j;
  }
  return count;
}

// Keys of [begin, end) that a group of rows is multiplied by. Its first row's blocks are mostly the other rows', too.
std::int64_t keys_of(const Problem& p, std::int64_t head, std::int64_t first, std::int64_t rows, std::int64_t begin,
                     std::int64_t end) {
  std::int64_t low = end, high = begin;
  for (std::int64_t r = first; r < first + rows; ++r) {
    const std::int64_t token = query_of_row(p, 0, r).token, from = p.first ? p.first[token] : 0;
    low = std::min(low, std::max(from, begin));
    high = std::max(high, std::min(p.first ? std::max<std::int64_t>(from, p.last[token]) : p.tk, end));
  }
  if (low >= high) return 0;
  return p.blocks.keep.data ? in_blocks(p, head / p.hkv, query_of_row(p, head % p.hkv, first), low, high) : high - low;
}

// Pairs of a task that has rows [first, first + rows) of a key head, and keys [begin, end).
double pairs(const Problem& p, std::int64_t head, std::int64_t first, std::int64_t rows, int columns,
             std::int64_t begin, std::int64_t end) {
  const std::int64_t last = std::min(first + rows, rows_per_key_head(p));
  double count = 0;
  for (std::int64_t row = first; row < last; row += columns) {
    const std::int64_t held = std::min<std::int64_t>(columns, last - row);
    count += product_of(columns, keys_of(p, head, row, held, begin, end));
  }
  return count;
}

// Returns a phase of `tasks` equal tasks.
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
    const std::int64_t rows = rows_per_key_head(p);
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
  const std::int64_t rows = plan.heads == 0 ? 0 : rows_per_key_head(p);
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
