// Tensors on their way in: read, converted where needed, and looked over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attn/tensor.hpp"
#include "common/options.hpp"

namespace attn::tool {

struct Counts {
  std::int64_t nan = 0, inf = 0;
  bool any() const noexcept { return nan != 0 || inf != 0; }
};

// Elements that are not finite, of a tensor of any dtype.
Counts count_nonfinite(const Tensor& tensor);
// "3 NaN", "3 NaN and 1 inf".
std::string counts_text(const Counts& counts);

struct Input {
  std::string name;  // of the file, "standard input" for "-"
  Tensor tensor;
  Counts counts;
};

// Reads one tensor and converts it to float32; what is worth telling is added to `notes`.
// `tensor_name` chooses among several. Throws Error as io::load_tensor does.
// `mend` says how to choose a tensor of several, of which none is named.
Input load_float32(const std::string& path, const std::string& tensor_name, std::uint64_t max_bytes,
                   std::vector<std::string>& notes, std::string_view mend = {});
// As it is, for the operator, from a file of one tensor; only integers are converted.
Input load_floating(const std::string& path, std::uint64_t max_bytes, std::vector<std::string>& notes);

// The tensor of a file that has no other. The error where it has says how to save one alone.
Tensor load_only(const std::string& path, std::uint64_t max_bytes);

// --max-bytes, for io::load.
void add_limit_flag(Verb& verb, std::uint64_t& max_bytes);

// Throws Error (argument) when standard input is asked for more than once.
void require_one_stdin(std::initializer_list<std::string> paths);
// The bytes of this machine's memory; 0 where the system does not tell.
double machine_memory();
// Throws Error (argument) when `what` needs more than this machine's memory: better than being killed for it.
void require_memory(const std::string& what, double bytes, const std::string& hint);
// The same for work that holds `bytes` for every query and key of every head.
void require_scores_memory(std::int64_t batch, std::int64_t heads, std::int64_t tq, std::int64_t tk, double bytes);

}  // namespace attn::tool
