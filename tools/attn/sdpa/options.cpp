// The flags of attn sdpa, and the options that they stand for.
#include "attn/error.hpp"
#include "common/format.hpp"
#include "common/inputs.hpp"
#include "common/module_flags.hpp"
#include "sdpa/sdpa.hpp"

namespace attn::tool {
namespace {

// Ones and zeros of any dtype, so that a CSV file will do.
Mask load_blocks(const std::string& path, std::int64_t size, std::uint64_t max_bytes) {
  const Tensor tensor = load_only(path, max_bytes);
  if (tensor.dtype() == DType::boolean) return Mask::blocks(tensor, size, size);
  const Tensor numbers = tensor.to(DType::f64).contiguous(), keep = Tensor::empty(tensor.shape(), DType::boolean);
  for (std::int64_t i = 0; i < keep.numel(); ++i) {
    const double x = numbers.data<double>()[i];
    if (x != 0 && x != 1) throw Error(Error::Kind::data, "--blocks", "zeros and ones", formatted("{}", x));
    keep.data<bool>()[i] = x == 1;
  }
  return Mask::blocks(keep, size, size);
}

}  // namespace

Tensor with_rank_4(Tensor tensor) {
  while (tensor.rank() < 4) tensor = tensor.unsqueeze(0);
  return tensor;
}

Tensor without_leading(Tensor tensor, std::size_t dims) {
  for (; dims > 0; --dims) tensor = tensor.select(0, 0);
  return tensor;
}

Mask mask_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::boolean) return Mask::boolean(tensor);
  if (is_floating(tensor.dtype())) return Mask::additive(tensor);
  throw Error(Error::Kind::dtype, "--mask", "bool (true: may be seen) or a float dtype (added to the scores)",
              name(tensor.dtype()));
}

AttentionOptions options_of(const SdpaFlags& flags) {
  AttentionOptions options;
  if (!flags.causal.empty())
    options.mask = Mask::causal(flags.causal == "top-left" ? Align::top_left : Align::bottom_right);
  if (!flags.blocks.empty()) options.mask = options.mask & load_blocks(flags.blocks, flags.block_size, flags.max_bytes);
  if (!flags.scale.empty()) options.scale = parse_scale(flags.scale);
  options.softcap = flags.softcap;
  if (!flags.relative_bias.empty()) {
    options.relative_bias = {load_only(flags.relative_bias, flags.max_bytes), !flags.relative_one_sided,
                             flags.relative_max_distance};
  }
  if (flags.query_offset) options.query_offset = *flags.query_offset;
  if (flags.key_offset) options.key_offset = *flags.key_offset;
  options.return_weights = !flags.save_weights.empty();
  return options;
}

}  // namespace attn::tool
