#include "options.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "attn/error.hpp"
#include "bind.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

Align align_of(std::string_view name) {
  if (name == "top_left") return Align::top_left;
  if (name == "bottom_right") return Align::bottom_right;
  throw Error(Error::Kind::argument, kOp, "causal_alignment \"top_left\" or \"bottom_right\"",
              "\"" + std::string(name) + "\"");
}

ScoreFunction score_function_of(const Addresses& at) {
  ScoreFunction result;
  result.forward = reinterpret_cast<ScoreForward>(at[0]);
  result.backward = reinterpret_cast<ScoreBackward>(at[1]);
  result.forward64 = reinterpret_cast<ScoreForward64>(at[2]);
  result.backward64 = reinterpret_cast<ScoreBackward64>(at[3]);
  result.user = reinterpret_cast<void*>(at[4]);
  return result;
}

// One option, by its name in Python, and the options that it is to be among.
struct Given {
  nb::handle value;
  const char* name;
  Framework from;
  Options& all;
  AttentionOptions& o = all.options;

  template <class T>
  T as() const {
    return plain<T>(value, kOp, name);
  }
  void take(Tensor& to) const { all.take(to, value, name, from); }
};

void take_dropout_key(const Given& in) {
  if (in.value.is_none()) return;
  if (nb::isinstance<nb::int_>(in.value)) {
    in.o.dropout_key = in.as<std::uint64_t>();
    return;
  }
  Tensor drawn;  // by torch.randint
  in.take(drawn);
  if (drawn.numel() != 1 || drawn.dtype() != DType::i64) {
    throw Error(Error::Kind::dtype, kOp, "dropout's key as one int64", drawn.shape().str());
  }
  in.o.dropout_key = static_cast<std::uint64_t>(*drawn.data<std::int64_t>());
}

void take_window(const Given& in) {
  if (in.value.is_none()) return;
  in.o.mask.window_left = plain<std::int64_t>(in.value[0], kOp, "window's left");
  in.o.mask.window_right = plain<std::int64_t>(in.value[1], kOp, "window's right");
}

void take_block_size(const Given& in) {
  in.o.mask.block_query = plain<std::int64_t>(in.value[0], kOp, in.name);
  in.o.mask.block_key = plain<std::int64_t>(in.value[1], kOp, in.name);
}

void take_score_function(const Given& in) {
  if (in.value.is_none()) return;
  const auto at = in.as<Addresses>();
  in.o.score_function = score_function_of(at);
  in.all.score_failure = reinterpret_cast<ScoreFailure*>(at[5]);
}

// attn/_options.py says of each what Python's callers give, and how that is converted before it comes here.
constexpr std::pair<const char*, void (*)(const Given&)> kOptions[] = {
    {"alibi_slopes", [](const Given& in) { in.take(in.o.alibi_slopes); }},
    {"key_lengths", [](const Given& in) { in.take(in.o.mask.key_lengths); }},
    {"cu_seqlens_q", [](const Given& in) { in.take(in.o.mask.query_starts); }},
    {"cu_seqlens_k", [](const Given& in) { in.take(in.o.mask.key_starts); }},
    {"block_mask", [](const Given& in) { in.take(in.o.mask.block_keep); }},
    {"dropout_key", take_dropout_key},
    {"query_offset", [](const Given& in) { in.all.take_offset(in.o.query_offset, in.value, in.name, in.from); }},
    {"key_offset", [](const Given& in) { in.all.take_offset(in.o.key_offset, in.value, in.name, in.from); }},
    {"dropout_p", [](const Given& in) { in.o.dropout = in.as<double>(); }},
    {"is_causal", [](const Given& in) { in.o.mask.is_causal = in.as<bool>(); }},
    {"scale", [](const Given& in) { in.o.scale = optional_plain<double>(in.value, kOp, in.name); }},
    {"window", take_window},
    {"softcap", [](const Given& in) { in.o.softcap = in.as<double>(); }},
    {"block_size", take_block_size},
    {"causal_alignment", [](const Given& in) { in.o.mask.align = align_of(in.as<std::string_view>()); }},
    {"precision", [](const Given& in) { in.o.precision = parse_precision(in.as<std::string_view>()); }},
    {"score_function", take_score_function},
    {"output_dtype", [](const Given& in) { in.o.output_dtype = optional_dtype(in.value, kOp, in.name); }},
    {"relative_bidirectional", [](const Given& in) { in.o.relative_bias.bidirectional = in.as<bool>(); }},
    {"relative_max_distance", [](const Given& in) { in.o.relative_bias.max_distance = in.as<std::int64_t>(); }},
};

void make(Options* self, int framework, const nb::dict& given) {
  Options result;
  AttentionOptions& o = result.options;
  constexpr std::int64_t kBlock = 64;
  o.mask.block_query = o.mask.block_key = kBlock;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string_view>(key);
    const auto* option = std::ranges::find(kOptions, name, [](const auto& each) { return each.first; });
    if (option == std::end(kOptions)) {
      throw Error(Error::Kind::dtype, kOp, "options that it knows", std::string(name));
    }
    option->second({value, option->first, static_cast<Framework>(framework), result});
  }
  if (!o.mask.block_keep.defined()) {
    if (o.mask.block_query != kBlock || o.mask.block_key != kBlock)
      throw Error(Error::Kind::argument, kOp, "block_mask beside block_size", "none");
    o.mask.block_query = o.mask.block_key = 0;
  }
  if (!o.mask.key_starts.defined()) o.mask.key_starts = o.mask.query_starts;
  if (!(o.dropout > 0)) o.dropout_key.reset();
  new (self) Options(std::move(result));
}

}  // namespace

void Options::take(Tensor& to, nb::handle object, const char* what, Framework from) {
  if (!object.is_none()) to = kept.emplace_back(read(object, kOp, what, from)).tensor;
}

void Options::take_offset(Offset& to, nb::handle object, const char* what, Framework from) {
  Tensor positions;
  if (nb::isinstance<nb::int_>(object)) {
    to = plain<std::int64_t>(object, kOp, what);
  } else {
    take(positions, object, what, from);
  }
  if (!positions.defined()) return;
  const bool is_one = positions.rank() == 0 && positions.dtype() == DType::i64;
  to = is_one ? Offset(*positions.data<std::int64_t>()) : Offset(positions);
}

void Options::take_return_weights(nb::handle wanted, Framework from) {
  options.return_weights = !wanted.is(nb::handle(Py_False));
  if (!nb::isinstance<nb::bool_>(wanted)) take(options.weight_rows, wanted, "return_weights", from);
}

void Options::check_score_function() const {
  if (score_failure == nullptr || score_failure->raised == 0) return;
  const ScoreFailure at = std::exchange(*score_failure, {});
  std::ostringstream found;
  found << "an exception for (score, b, h, i, j) = (" << at.score << ", " << at.batch << ", " << at.head << ", "
        << at.query << ", " << at.key << ')';
  throw Error(Error::Kind::argument, "score_function", "functions that raise nothing", found.str(),
              "call it with these numbers to see which");
}

Options with_inputs(const Options& options, nb::handle attn_mask, nb::handle sinks, nb::handle relative_bias,
                    Framework from) {
  Options result = options;
  Mask& mask = result.options.mask;
  result.take(mask.bias, attn_mask, "attn_mask", from);
  if (mask.bias.defined() && mask.bias.dtype() == DType::boolean) std::swap(mask.bias, mask.keep);
  result.take(result.options.sinks, sinks, "sinks", from);
  RelativeBias& bias = result.options.relative_bias;
  result.take(bias.table, relative_bias, "relative_bias", from);
  const RelativeBias none;
  if (!bias.table.defined() && (bias.bidirectional != none.bidirectional || bias.max_distance != none.max_distance))
    throw Error(Error::Kind::argument, kOp, "relative_bias beside relative_bidirectional and relative_max_distance",
                "none");
  return result;
}

Inputs take_inputs(const nb::tuple& given, const Options& options, const char* op, Framework from) {
  if (given.size() != 6) throw Error(Error::Kind::argument, op, "six inputs", std::to_string(given.size()));
  return {read(given[0], op, "query", from), read(given[1], op, "key", from), read(given[2], op, "value", from),
          with_inputs(options, given[3], given[4], given[5], from)};
}

nb::tuple give_gradients(const AttentionGradient& grad, Framework framework) {
  return nb::make_tuple(give(grad.q, framework), give(grad.k, framework), give(grad.v, framework),
                        give(grad.bias, framework), give(grad.sinks, framework), give(grad.relative_bias, framework));
}

std::optional<DType> optional_dtype(nb::handle object, const char* op, const char* what) {
  if (object.is_none()) return std::nullopt;
  const auto wanted = plain<std::string_view>(object, op, what);
  const auto found = dtype_named(wanted);
  if (found && is_floating(*found)) return found;
  throw Error(Error::Kind::dtype, op, std::string(what) + " float32, float64, bfloat16 or float16",
              std::string(wanted));
}

void bind_options(nb::module_& m) {
  nb::class_<Options>(m, "Options", "The operator's options by name; what is not given is as if it were not there.")
      .def("__init__", &make, nb::arg("framework"), nb::arg("given"));
  nb::list names;
  for (const auto& option : kOptions) names.append(option.first);
  m.attr("OPTIONS") = nb::tuple(names);
}

}  // namespace attn::python
