// A model from its files.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "attn/error.hpp"
#include "attn/pretrained.hpp"
#include "io/bytes.hpp"
#include "io/file.hpp"
#include "lm/hybrid_family.hpp"
#include "lm/latent_family.hpp"
#include "lm/names.hpp"
#include "lm/stored_parameters.hpp"
#include "lm/stored_tensors.hpp"
#include "ops/stored.hpp"

namespace attn {
namespace {

using ByName = std::map<std::string_view, const StoredTensor*>;
using Shapes = std::vector<std::pair<std::string, Shape>>;

// Files whose config has been made fit for the model, and their tensors.
struct Ready {
  PretrainedFiles files;
  ByName tensors;
  io::Origin origin;

  std::string in_file(std::string_view name) const { return own_name(files.names, name); }
};

void require(const Ready& r, const std::string& name, const Shape& shape) {
  const auto found = r.tensors.find(name);
  if (found == r.tensors.end()) r.origin.fail("a tensor " + r.in_file(name), "none");
  if (!(found->second->shape == shape)) {
    r.origin.fail(r.in_file(name) + " of shape " + shape.str() + ", as the config says", found->second->shape.str());
  }
}

void take_by_name(Ready& r) {
  for (const StoredTensor& tensor : r.files.tensors) {
    if (!r.tensors.emplace(tensor.name, &tensor).second) {
      r.origin.fail("every tensor once", io::in_quotes(r.in_file(tensor.name)) + " twice");
    }
  }
}

// The first layer of either kind, or those that there are.
void check_mixers(const Ready& r) {
  const LanguageModelConfig& c = r.files.config;
  const auto first = [&](Mixer mixer) {
    return std::ranges::find(c.layers, mixer, &LayerConfig::mixer) - c.layers.begin();
  };
  const auto softmax = first(Mixer::softmax), recurrent = first(Mixer::gated_delta), none = std::ssize(c.layers);
  const auto prefix = [&](std::ptrdiff_t i) { return names_of(c.family).blocks + std::to_string(i) + "."; };
  if (softmax < none) {
    require(r, prefix(softmax) + "self_attn.o_proj.weight",
            {c.width, c.heads * (c.latent ? c.latent->value : c.head_dim)});
  }
  for (const auto& [name, shape] : recurrent < none && c.gated_delta ? hybrid_shapes(c, prefix(recurrent)) : Shapes{})
    require(r, name, shape);
}

// The config's sizes are those of the files, before memory is taken for them.
void check_sizes(const Ready& r) {
  const LanguageModelConfig& c = r.files.config;
  const ModelNames& names = names_of(c.family);
  require(r, names.embedding, {c.vocab_size, c.width});
  if (c.learned_positions) require(r, names.positions, {c.context_length, c.width});
  if (c.layers.size() > r.tensors.size()) {
    r.origin.fail("the tensors of " + std::to_string(c.layers.size()) + " layers", std::to_string(r.tensors.size()));
  }
  if (c.family == "gpt2") {
    require(r, "h.0.mlp.c_proj.weight", {c.inner_width, c.width});
  } else {
    check_mixers(r);
    require(r, "model.layers.0.mlp.down_proj.weight", {c.width, c.inner_width});
    for (const auto& [name, shape] : c.latent ? latent_shapes(c) : Shapes{}) require(r, name, shape);
  }
}

// As transformers 5 reads tie_word_embeddings: a head that differs from the embedding stays a head of its own, and
// where one of them is there it is both.
void untie(LanguageModelConfig& c, ByName& tensors) {
  const char* const name = names_of(c.family).embedding;
  const auto embedding = tensors.find(name), head = tensors.find(kHeadTensor);
  if (!c.tied || head == tensors.end()) return;
  if (embedding == tensors.end()) {
    tensors.emplace(name, head->second);
  } else if (embedding->second->shape == head->second->shape) {
    const Tensor a = embedding->second->load(DType::f32), b = head->second->load(DType::f32);
    c.tied = std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>());
  } else {
    c.tied = false;
  }
}

// False where the tensor has no blocks.
bool load_blocks(const StoredParameters& stored, const StoredTensor& tensor) {
  if (!tensor.load_blocks || stored.transposed) return false;
  std::int64_t row = 0;
  for (Parameter* part : stored.parts) {
    const std::int64_t rows = part->value.size(0);
    auto blocks = tensor.load_blocks(row, row + rows);
    if (!blocks) return false;
    keep_blocks(*part, std::move(blocks));
    row += rows;
  }
  return true;
}

// Returns the dtype that holds a tensor's numbers exactly, without its blocks: MXFP4's have few bits, and powers of two
// that float16 lacks.
DType dtype_in_file(const StoredTensor& tensor) {
  return tensor.dtype == "BF16" || tensor.dtype == "MXFP4" ? DType::bf16 : DType::f32;
}

void load(const StoredParameters& stored, const StoredTensor& tensor, std::optional<DType> wanted) {
  if (!wanted && load_blocks(stored, tensor)) return;
  const DType weights = wanted.value_or(dtype_in_file(tensor));
  const bool in_bytes = weights == DType::i8;
  Tensor all = tensor.load(tensor.shape.size() == 2 && !in_bytes ? weights : DType::f32);
  if (stored.transposed) all = all.transpose(0, 1).contiguous();
  std::int64_t row = 0;
  for (Parameter* part : stored.parts) {
    const std::int64_t rows = part->value.size(0);
    part->value = stored.parts.size() == 1 ? all : all.slice(0, row, row + rows);
    row += rows;
  }
  if (in_bytes) store_matrices(stored.parts, weights);
}

void check_weights(std::optional<DType> weights) {
  if (!weights || weights == DType::f32 || weights == DType::bf16 || weights == DType::i8) return;
  throw Error(Error::Kind::dtype, kLoadModel, "weights in float32, bfloat16 or int8", name(*weights));
}

// Returns what the model of the config takes. Throws unless that is in the files, and nothing else.
std::vector<StoredParameters> expected(LanguageModel& model, const Ready& r) {
  std::vector<StoredParameters> all = stored_parameters(model);
  std::set<std::string_view> known;
  for (const StoredParameters& stored : all) {
    known.insert(stored.name);
    require(r, stored.name, stored.shape());
  }
  const LanguageModelConfig& c = model.config();
  for (const auto& [name, tensor] : r.tensors) {
    if (known.contains(name) || passed_over(name, c)) continue;
    r.origin.fail("only tensors of a " + c.family + " of " + std::to_string(c.layers.size()) + " layers",
                  io::in_quotes(r.in_file(name)));
  }
  return all;
}

Ready ready(PretrainedFiles files, Precision precision, const io::Origin& origin) {
  Ready r{std::move(files), {}, origin};
  r.files.config.precision = precision;
  take_by_name(r);
  untie(r.files.config, r.tensors);
  check_sizes(r);
  return r;
}

void load_all(LanguageModel& model, const Ready& r, std::optional<DType> weights) {
  for (const StoredParameters& stored : expected(model, r)) load(stored, *r.tensors.at(stored.name), weights);
}

}  // namespace

LanguageModel load_language_model(const std::filesystem::path& path, std::optional<DType> weights, Precision precision,
                                  Generator rng) {
  check_weights(weights);
  return load_language_model(open_pretrained(path), io::source_name(path), weights, precision, rng);
}

LanguageModel load_language_model(PretrainedFiles files, std::string_view source, std::optional<DType> weights,
                                  Precision precision, Generator rng) {
  check_weights(weights);
  const io::Origin origin{kLoadModel, source};
  const Ready r = ready(std::move(files), precision, origin);
  LanguageModel model(r.files.config, rng, Initial::none);
  load_all(model, r, weights);
  return model;
}

GPT load_gpt(const std::filesystem::path& path, Generator rng, Precision precision) {
  const std::string source = io::source_name(path);
  const io::Origin origin{"load_gpt", source};
  const Ready r = ready(open_pretrained(path), precision, origin);
  if (r.files.config.family != "gpt2") origin.fail("a model of the family gpt2", io::in_quotes(r.files.config.family));
  GPT model(gpt_config(r.files.config), rng, Initial::none);
  load_all(model, r, DType::f32);
  return model;
}

}  // namespace attn
