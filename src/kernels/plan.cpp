#include "kernels/plan.hpp"

#include <algorithm>

#include "kernels/query_rows.hpp"
#include "kernels/rounding.hpp"
#include "kernels/table.hpp"

namespace attn::kernels {
namespace {

constexpr std::int64_t kTasksWanted = 32;  // for the threads to share, where there can be so many
// For each of more than two threads: the last wave is a small part of them, and so is the longest task.
constexpr std::int64_t kTasksAThread = 24;
constexpr std::int64_t kProductsAThread = 10;  // whose tasks are alike, and pack more the smaller they are
constexpr double kLeastTask = 1 << 19;  // multiply-adds, some 5 µs: of less a task is not worth being handed out

// Whether `tasks` keep the threads busy to the end.
bool are_enough(std::int64_t tasks, int threads) { return threads <= 2 || tasks >= kTasksAThread * threads; }

// Says in which parts numbers are multiplied, and why.
struct Choice {
  int parts;  // of bf16; 0: float32
  const char* reason;
};

Choice choose(Element element, Precision precision, int most_parts) {
  if (most_parts == 0) return {0, "this instruction set multiplies float32 alone"};
  if (element == Element::bf16 || element == Element::i8) return {1, "bf16, or int8, is multiplied as it is"};
  if (element == Element::f16) return {0, "f16 is multiplied as float32"};
  switch (precision) {
    case Precision::medium:
      return {1, "medium precision: float32 rounded to bf16"};
    case Precision::high:
      if (most_parts >= 2) return {2, "high precision: two parts hold 16 bits"};
      return {0, "three products of parts would be no faster than float32"};
    case Precision::highest:
      break;
  }
  if (most_parts >= 3) return {3, "highest precision: three parts hold float32"};
  return {0, "highest precision: fewer parts than three do not hold float32"};
}

// Float32 at highest precision is six products of parts: worth their packing when a key meets many queries and a query
// many keys, and a depth is not mostly made up.
Choice choose(const Problem& p, int most_parts) {
  if (p.d == 0 || p.dv == 0) return {0, "a depth or a width of 0 has no tiles"};
  const Choice choice = choose(p.element, p.precision, most_parts);
  if (choice.parts < 3) return choice;
  if (p.tq < 128) return {0, "fewer than 128 queries: not worth splitting in parts"};
  if (p.tk < 128) return {0, "fewer than 128 keys: not worth splitting in parts"};
  if (p.window != 0 && p.window < 256) return {0, "a window of fewer than 256 keys: not worth splitting in parts"};
  if (p.d < 32 || 4 * p.d < 3 * round_up(p.d, 32)) return {0, "a depth of which tiles would be made up too much"};
  return choice;
}

// An element's bits shall not depend on how many rows there are, nor columns: the depth alone decides.
constexpr std::int64_t kLeastDepth = 64;

Choice choose(const Product& p, int most_parts) {
  const bool has_f16 = p.a_element == Element::f16 || p.b_element == Element::f16;
  // Both operands are multiplied as one element: f16 if one of them is f16, else float32 if a is, else b's.
  const Element together = has_f16 ? Element::f16 : p.a_element == Element::f32 ? p.a_element : p.b_element;
  const Choice choice = choose(together, p.precision, most_parts);
  if (choice.parts < 3 || p.k >= kLeastDepth) return choice;
  return {0, "a depth below 64: not worth splitting in parts"};
}

std::int64_t key_heads(const Problem& p) { return p.hkv == 0 ? 0 : p.batch * p.hkv; }

// Fewer rows than a task could have, down to 4 groups, where there would not be enough tasks; for many threads, down to
// one.
QueryTasks query_tasks(const Problem& p, std::int64_t columns, std::int64_t most_groups, int threads) {
  if (p.hkv == 0) return {};
  QueryTasks tasks{most_groups * columns, 0};
  const double keys = static_cast<double>(p.window != 0 ? std::min(p.window, p.tk) : p.tk);
  const double row = keys * static_cast<double>(p.d + p.dv);  // multiply-adds
  const auto per_head = [&] { return ceil_div(rows_per_key_head(p), tasks.rows); };
  while (tasks.rows >= 8 * columns && key_heads(p) * per_head() < kTasksWanted) tasks.rows /= 2;
  while (tasks.rows >= 2 * columns && !are_enough(key_heads(p) * per_head(), threads) &&
         row * static_cast<double>(tasks.rows) >= 2 * kLeastTask)
    tasks.rows /= 2;
  tasks.per_head = per_head();
  return tasks;
}

// Whether the first query of an item sees as many keys as its last one, as without a causal mask.
bool is_even(const Problem& p) {
  const auto seen = [&](std::int64_t i) { return p.last[i] - p.first[i]; };
  return !p.first || p.tq == 0 || seen(0) == seen(p.tq - 1);
}

ForwardPlan plan_decode(const Problem& p, const Kernels& kernels) {
  // Sums of bytes must stay in 32 bits; one query or two are read as fast in float32.
  const bool of_bytes =
      kernels.int8_decode && p.pages && p.pages->element == Element::i8 && p.d <= 65536 && rows_per_key_head(p) > 2;
  const DecodeKernel& kernel = of_bytes ? *kernels.int8_decode : *kernels.decode;
  ForwardPlan plan{};
  plan.isa = kernels.isa, plan.kernel = &kernel.functions;
  plan.family = of_bytes ? Family::int8_decode : Family::float_decode;
  plan.reason = of_bytes ? "an int8 cache, three queries of a key head or more" : "four queries of a head at most";
  plan.chunk_keys = kernel.chunk_keys;
  plan.chunks = std::max<std::int64_t>(ceil_div(p.tk, plan.chunk_keys), 1);
  plan.keys = p.tk;
  plan.phases = 2;
  plan.tasks[0] = key_heads(p) * plan.chunks, plan.tasks[1] = key_heads(p);
  plan.shared = kernel.functions.shared(p, plan), plan.scratch = kernel.functions.scratch(p, plan);
  return plan;
}

// How the keys are cut: by the sizes of one batch item alone.
void cut_keys(const Problem& p, const BackwardKernel& kernel, const BackwardCut& cut, BackwardPlan& plan) {
  // Each chunk costs a partial dq of all the query heads: fewer of them where key heads are shared.
  const std::int64_t most_chunks = p.hq == p.hkv ? 8 : 4, least = round_up(256, cut.tile_keys);
  const std::int64_t heads = std::max<std::int64_t>({p.hkv, p.all_key_heads, 1});
  const std::int64_t wanted = std::clamp<std::int64_t>(kTasksWanted / heads, 1, most_chunks);
  const auto padded = [&](std::int64_t width) { return round_up(width, kernel.columns); };
  plan.heads = key_heads(p);
  plan.chunk = std::max(round_up(ceil_div(p.tk, wanted), cut.tile_keys), least);
  plan.chunks = ceil_div(p.tk, plan.chunk);
  const std::int64_t steps = ceil_div(plan.chunk * (padded(p.d) + padded(p.dv)), cut.cached_numbers);
  const std::int64_t all = round_up(p.tk, 32);  // a multiple of every core's kKeyStep
  plan.step = std::min(round_up(ceil_div(plan.chunk, steps), cut.tile_keys), all);
  plan.width = round_up(p.d, kernel.row_step);
  plan.partial = plan.heads == 0 ? 0 : padded(rows_per_key_head(p)) * plan.width;
}

// Busy share of the threads' time, where chunks of `keys` keys are tasks of `step` keys each. Those of a chunk begin a
// span of queries apart; loading a span takes the time of twenty keys. Of tasks that are not alike the last one may be
// long.
double busy(std::int64_t chunks, std::int64_t keys, std::int64_t step, std::int64_t spans, bool alike, int threads) {
  const std::int64_t parts = ceil_div(keys, step), tasks = chunks * parts;
  const double waits = static_cast<double>(parts - 1) / static_cast<double>(spans);
  const double waves = alike ? static_cast<double>(ceil_div(tasks, threads)) : static_cast<double>(tasks) / threads + 1;
  const double elapsed = static_cast<double>(step + 20) * (waves + waits);
  return static_cast<double>(chunks * keys) / (static_cast<double>(threads) * elapsed);
}

// Shorter steps, a task each, where chunks would not keep many threads busy: as long ones as do so. What a step adds to
// dq is summed in the same order whatever its length, which is a multiple of what every core takes at once.
void take_steps_apart(const Problem& p, int threads, BackwardPlan& plan) {
  constexpr std::int64_t least = 32;  // a multiple of every core's kKeyStep
  constexpr double enough = 0.95;
  const std::int64_t chunks = plan.heads * plan.chunks, keys = std::min(plan.chunk, p.tk);
  if (threads <= 2 || p.distances.data || chunks == 0 || are_enough(chunks, threads)) return;
  const std::int64_t rows = rows_per_key_head(p), spans = ceil_div(rows, plan.span_rows);
  if (static_cast<double>(rows * 2 * least * (p.d + p.dv)) < kLeastTask) return;
  const bool alike = is_even(p) && !p.blocks.keep.data;
  double best = busy(chunks, keys, keys, spans, alike, threads);
  for (std::int64_t parts = 2; best < enough && (parts - 1) * least < keys; ++parts) {
    const std::int64_t step = round_up(ceil_div(keys, parts), least);
    const double found = busy(chunks, keys, step, spans, alike, threads);
    if (found <= best) continue;
    best = found;
    plan.step = step, plan.steps_apart = true;
  }
  if (plan.steps_apart) plan.key_tasks = chunks * ceil_div(plan.chunk, plan.step);
}

BiasPlan plan_bias(const Problem& p, const BackwardResult& result, std::int64_t span_rows, std::int64_t strip_keys) {
  BiasPlan bias{};
  if (!result.bias || p.hkv == 0) return bias;
  bias.task_keys = round_up(768, strip_keys);
  bias.batches = result.bias_batch ? p.batch : 1;
  bias.heads = result.bias_head ? p.hq : 1;
  bias.queries = result.bias_query ? ceil_div(p.tq, span_rows) : 1;
  bias.keys = result.bias_key ? ceil_div(p.tk, bias.task_keys) : 1;
  return bias;
}

struct TaskSize {
  std::int64_t rows, panels;
};

// A wide task reads a less often, and a high one b; but there shall be enough tasks for the threads to share, where
// that can be. A deep product's panels do not stay in L2 from task to task: it is cut into fewer and higher ones.
TaskSize task_size(const Product& p, std::int64_t panels, std::int64_t columns, std::int64_t least_rows,
                   const ProductCut& cut, bool is_deep, int threads) {
  const auto tasks = [&](const TaskSize& size) { return ceil_div(p.m, size.rows) * ceil_div(panels, size.panels); };
  const std::int64_t most_rows = is_deep ? cut.deep_height : cut.height, wanted = kTasksWanted / 2;
  const std::int64_t least_tasks = is_deep ? 6 : wanted;
  TaskSize size{least_rows, is_deep ? cut.deep_panels : cut.panels};
  while (2 * size.rows <= most_rows && tasks({2 * size.rows, size.panels}) >= least_tasks) size.rows *= 2;
  while (size.panels > 8 && tasks(size) < wanted && size.rows == least_rows) size.panels /= 2;
  const auto work = [&] { return static_cast<double>(size.rows * size.panels * columns) * static_cast<double>(p.k); };
  while (threads > 2 && tasks(size) < kProductsAThread * threads && work() >= 2 * kLeastTask &&
         (size.rows > least_rows || size.panels > 1)) {
    (size.rows > least_rows ? size.rows : size.panels) /= 2;
  }
  return size;
}

// Copied rows are read faster, for which few columns do not pay. But rows that are whole pages apart share the sets of
// L1, which keep eight lines each.
bool copies_rows(const Product& p, const ProductKernel& kernel) {
  constexpr std::int64_t few_columns = 128, page = 1024, ways = 8;
  const bool share_sets = p.a_row % page == 0 && kernel.strip > ways;
  return p.n > few_columns || p.a_depth != 1 || p.a_element != Element::f32 || share_sets;
}

}  // namespace

ForwardPlan plan_tiles(const Problem& p, const Kernels& kernels, int threads) {
  const Choice choice = choose(p, kernels.bf16_forward ? kernels.bf16_forward->most_parts : 0);
  const ForwardKernel& kernel = choice.parts > 0 ? *kernels.bf16_forward : *kernels.forward;
  ForwardPlan plan{};
  plan.isa = kernels.isa, plan.kernel = &kernel.functions;
  plan.family = choice.parts > 0 ? Family::bf16_tiles : Family::float_tiles;
  plan.parts = choice.parts, plan.reason = choice.reason;
  plan.columns = kernel.columns;
  plan.queries = query_tasks(p, kernel.columns, kernel.task_groups, threads);
  // So many that their weights, in three parts too, stay in L1.
  plan.block_keys = plan.parts == 3 ? kernel.block_keys / 2 : kernel.block_keys;
  plan.blocks = ceil_div(p.tk, plan.block_keys);
  plan.phases = 2;
  if (kernel.key_step > 0) {
    plan.packed_keys = p.tk < plan.block_keys ? round_up(p.tk, kernel.key_step) : plan.block_keys;
    // Where each of many heads has one task, that packs a block at a time, which then stays in L2.
    plan.packs_first = key_heads(p) < kTasksWanted || plan.queries.per_head > 1;
    plan.tasks[0] = plan.packs_first ? key_heads(p) * plan.blocks : 0;
  }
  plan.tasks[1] = key_heads(p) * plan.queries.per_head;
  if (!are_enough(plan.tasks[1], threads) && !is_even(p)) plan.turns = key_heads(p);
  plan.keys = p.tk;
  plan.shared = kernel.functions.shared(p, plan), plan.scratch = kernel.functions.scratch(p, plan);
  return plan;
}

ForwardPlan plan(const Problem& p, const Kernels& kernels, int threads) {
  const bool needs_tiles = p.score.forward || p.blocks.keep.data;  // decode would pass over these
  const bool is_decode = p.hkv > 0 && p.tq > 0 && p.tq <= kernels.decode->most_queries && !needs_tiles;
  return is_decode ? plan_decode(p, kernels) : plan_tiles(p, kernels, threads);
}

BackwardPlan plan(const Problem& p, const BackwardResult& result, const Kernels& kernels, int threads) {
  constexpr std::int64_t most_partial = 1 << 20;  // floats of dq in a task's own memory: 4 MB
  const Choice choice = choose(p, kernels.bf16_backward ? kernels.bf16_backward->most_parts : 0);
  const BackwardKernel& kernel = choice.parts > 0 ? *kernels.bf16_backward : *kernels.backward;
  const BackwardCut& cut = kernel.cuts[std::max(choice.parts, 1) - 1];
  BackwardPlan plan{};
  plan.isa = kernels.isa, plan.kernel = &kernel.functions;
  plan.family = choice.parts > 0 ? Family::bf16_tiles : Family::float_tiles;
  plan.parts = choice.parts, plan.reason = choice.reason;
  plan.columns = kernel.columns;
  plan.queries = query_tasks(p, kernel.columns, kernel.task_groups, threads);
  cut_keys(p, kernel, cut, plan);
  plan.key_tasks = plan.heads * plan.chunks;
  plan.span_rows = cut.span_groups * kernel.columns;
  take_steps_apart(p, threads, plan);
  plan.whole_heads = plan.chunks == 1 && plan.partial <= most_partial && !plan.steps_apart;
  plan.sums_rows_itself = plan.whole_heads && !result.bias;  // nothing but its own tasks needs them
  plan.bias = plan_bias(p, result, plan.span_rows, cut.strip_keys);
  plan.keys = p.tk;
  plan.phases = 3;
  const std::int64_t of_queries = plan.heads * plan.queries.per_head;
  plan.tasks[0] = plan.sums_rows_itself ? 0 : of_queries;
  plan.tasks[1] = plan.key_tasks + plan.bias.batches * plan.bias.heads * plan.bias.queries * plan.bias.keys;
  plan.tasks[2] = plan.whole_heads ? 0 : of_queries;
  plan.shared = kernel.functions.shared(p, plan), plan.scratch = kernel.functions.scratch(p, plan);
  return plan;
}

ProductPlan plan(const Product& p, const Kernels& kernels, int threads) {
  constexpr std::int64_t most_blocks = 4;  // of more, a product is deep
  constexpr std::int64_t pack_depth = 64;
  const Choice choice = choose(p, kernels.bf16_product ? kernels.bf16_product->most_parts : 0);
  const ProductKernel& kernel = choice.parts > 0 ? *kernels.bf16_product : *kernels.product;
  const ProductCut& cut = kernel.cuts[std::max(choice.parts, 1) - 1];
  ProductPlan plan{};
  plan.isa = kernels.isa, plan.kernel = &kernel.functions;
  plan.family = choice.parts > 0 ? Family::bf16_tiles : Family::float_tiles;
  plan.parts = choice.parts, plan.reason = choice.reason;
  plan.columns = kernel.columns;
  plan.depth = cut.depth;
  plan.panels = ceil_div(p.n, kernel.columns);
  const bool is_deep = p.k > most_blocks * plan.depth;
  const TaskSize size = task_size(p, plan.panels, kernel.columns, kernel.height, cut, is_deep, threads);
  plan.task_rows = size.rows, plan.task_panels = size.panels;
  plan.packs_in_tasks = is_deep && p.m <= 2 * size.rows;      // where b is needed once or twice, and deep
  plan.packs_ahead = kernel.works_beside && plan.parts != 1;  // of one part all is bound by memory as it is
  plan.copies_rows = copies_rows(p, kernel);
  // b is packed in runs along its lines in memory: of a panel, where those are columns, else of pack_depth.
  plan.pack_depth = pack_depth;
  plan.pack_tasks = plan.packs_in_tasks ? 0 : p.b_depth == 1 ? plan.panels : ceil_div(p.k, pack_depth);
  plan.phases = 1;
  plan.tasks[0] = ceil_div(p.m, size.rows) * ceil_div(plan.panels, size.panels);
  plan.packed = kernel.functions.packed(p, plan), plan.scratch = kernel.functions.scratch(p, plan);
  return plan;
}

FewRowsPlan plan(const FewRows& p, const Kernels& kernels, int) {
  Product many{};  // of the same rows, among others
  many.k = p.k, many.precision = p.precision;
  many.a_element = p.a_element, many.b_element = p.element;
  const Choice choice = choose(many, kernels.bf16_product ? kernels.bf16_product->most_parts : 0);
  const FewRowsKernel& kernel = choice.parts > 0 ? *kernels.bf16_few_rows : *kernels.few_rows;
  FewRowsPlan plan{};
  plan.isa = kernels.isa, plan.kernel = &kernel.functions;
  plan.family = choice.parts > 0 ? Family::bf16_tiles : Family::float_tiles;
  plan.parts = choice.parts, plan.reason = choice.reason;
  plan.task_outputs = kernel.task_outputs;
  plan.phases = 1;
  plan.tasks[0] = ceil_div(p.n, plan.task_outputs);
  plan.scratch = kernel.functions.scratch(p, plan);
  return plan;
}

bool rounds_to_bf16(Precision precision, const Kernels& kernels) {
  return precision == Precision::medium && kernels.bf16_product;
}

}  // namespace attn::kernels
