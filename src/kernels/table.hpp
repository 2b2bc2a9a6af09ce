// The kernels of one instruction set: what each family tells the plan about itself, and its functions.
#pragma once

#include "kernels/model/problem.hpp"
#include "kernels/plan.hpp"
#include "kernels/recurrence/problem.hpp"

namespace attn::kernels {

struct ForwardFunctions {
  std::size_t (*shared)(const Problem&, const ForwardPlan&);   // bytes
  std::size_t (*scratch)(const Problem&, const ForwardPlan&);  // bytes
  void (*run)(const Problem&, const ForwardPlan&, const ForwardResult&, int phase, std::int64_t task, void* shared,
              void* scratch);
};

struct ForwardKernel {
  ForwardFunctions functions;
  int columns;      // queries of a group
  int task_groups;  // groups of a task, at most
  int block_keys;   // keys of a block
  int key_step;     // of which a packed block has a multiple; 0: keys are not packed
  int most_parts;   // of bf16 that a number may be split into; 0: float32
};

struct DecodeKernel {
  ForwardFunctions functions;
  int most_queries;  // of a head; more fill the lanes of tiles
  int chunk_keys;    // of a task
};

struct BackwardFunctions {
  std::size_t (*shared)(const Problem&, const BackwardPlan&);
  std::size_t (*scratch)(const Problem&, const BackwardPlan&);
  void (*run)(const Problem&, const BackwardPlan&, const BackwardInput&, const BackwardResult&, int phase,
              std::int64_t task, void* shared, void* scratch);
};

// How keys and queries are cut.
struct BackwardCut {
  int span_groups;              // groups of queries that a tile holds side by side
  int tile_keys;                // keys that dq takes at once
  int strip_keys;               // of them, those whose dk and dv are taken at once
  std::int64_t cached_numbers;  // of keys and values that stay in L2 with their gradients
};

struct BackwardKernel {
  BackwardFunctions functions;
  int columns, task_groups;  // as of forward, in phases 0 and 2
  int row_step;              // rows of a group's dq that a product takes at once
  int most_parts;
  BackwardCut cuts[3];  // by the number of parts
};

struct ProductFunctions {
  std::size_t (*packed)(const Product&, const ProductPlan&);   // bytes
  std::size_t (*scratch)(const Product&, const ProductPlan&);  // bytes
  void (*pack)(const Product&, const ProductPlan&, void* packed, std::int64_t task);
  // A thread's tasks, as long as there are any: it may read what the next one needs beside the one before. False when
  // a result left the element's range.
  bool (*run)(const Product&, const ProductPlan&, const void* packed, const TaskSource&, void* scratch);
};

struct ProductCut {
  int depth;        // that is taken at once
  int panels;       // of a task
  int height;       // its rows, at most
  int deep_panels;  // the same of a product of many blocks
  int deep_height;
};

struct ProductKernel {
  ProductFunctions functions;
  int columns;  // of a panel
  int height;   // rows of a task, at least
  int strip;    // rows that are multiplied at once
  int most_parts;
  bool works_beside;   // what the next block needs is taken, or on its way, beside the products
  ProductCut cuts[3];  // by the number of parts
};

// The same sums for few rows and any weight, read as it lies; false as above.
struct FewRowsFunctions {
  std::size_t (*scratch)(const FewRows&, const FewRowsPlan&);  // bytes
  bool (*run)(const FewRows&, const FewRowsPlan&, std::int64_t task, void* scratch);
};

struct FewRowsKernel {
  FewRowsFunctions functions;
  int task_outputs;
};

// A language model computes these between its products.
struct ModelKernel {
  void (*narrow)(Element, const float* from, void* to, std::int64_t n);
  void (*layer_norm)(const LayerNormRows&);
  void (*layer_norm_backward)(const LayerNormGradient&);
  void (*rms_norm)(const RmsNormRows&);
  void (*rms_norm_backward)(const RmsNormGradient&);
  void (*gelu)(const GeluRun&);
  void (*gelu_backward)(const GeluRun&);
  void (*gated)(const GatedRun&);
  void (*gated_backward)(const GatedRun&);
  double (*cross_entropy)(const LogitsRow&);
  void (*adamw)(const AdamWStep&);
  double (*sum_of_squares)(std::int64_t n, const float* x);
};

// The processor's limits, to measure kernels by: multiply-adds out of registers, which return how many floating-point
// operations they did, and reading memory. `sink` is one float, near 1.
struct LimitKernel {
  double (*multiply_add)(std::int64_t rounds, float* sink);
  void (*read_memory)(const float* data, std::int64_t count, float* sink);
};

// A null family is none of this instruction set's.
struct Kernels {
  const char* isa;
  const ForwardKernel *forward, *bf16_forward;
  const DecodeKernel *decode, *int8_decode;
  const BackwardKernel *backward, *bf16_backward;
  const ProductKernel *product, *bf16_product;
  const FewRowsKernel *few_rows, *bf16_few_rows;
  const RecurrenceKernel* recurrence;
  const ModelKernel* model;
  const LimitKernel* limits;
  double (*multiply_add_bf16)(std::int64_t rounds, float* sink);  // null: no such instruction
};

}  // namespace attn::kernels
