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
#include "ops/stored.hpp"

namespace attn {
namespace {

constexpr const char* kLoadModel = "load_language_model";

using ByName = std::map<std::string_view, const StoredTensor*>;
using Shapes = std::vector<std::pair<std::string, Shape>>;

const StoredTensor& required(const ByName& tensors, const std::string& name, const Shape& shape,
                             const io::Origin& origin) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) origin.fail("a tensor " + name, "none");
  if (!(found->second->shape == shape)) {
    origin.fail(name + " of shape " + shape.str() + ", as the config says", found->second->shape.str());
  }
  return *found->second;
}

ByName by_name(const PretrainedFiles& files, const io::Origin& origin) {
  ByName tensors;
  for (const StoredTensor& tensor : files.tensors) {
    if (!tensors.emplace(tensor.name, &tensor).second) {
      origin.fail("every tensor once", io::in_quotes(tensor.name) + " twice");
    }
  }
  return tensors;
}

// The first layer of either kind, or those that there are.
void check_mixers(const LanguageModelConfig& c, const ByName& tensors, const io::Origin& origin) {
  const auto first = [&](Mixer mixer) {
    return std::ranges::find(c.layers, mixer, &LayerConfig::mixer) - c.layers.begin();
  };
  const auto softmax = first(Mixer::softmax), recurrent = first(Mixer::gated_delta), none = std::ssize(c.layers);
  const auto prefix = [&](std::ptrdiff_t i) { return names_of(c.family).blocks + std::to_string(i) + "."; };
  if (softmax < none) {
    required(tensors, prefix(softmax) + "self_attn.o_proj.weight",
             {c.width, c.heads * (c.latent ? c.latent->value : c.head_dim)}, origin);
  }
  for (const auto& [name, shape] : recurrent < none && c.gated_delta ? hybrid_shapes(c, prefix(recurrent)) : Shapes{})
    required(tensors, name, shape, origin);
}

// The config's sizes are those of the files, before memory is taken for them.
void check_sizes(const LanguageModelConfig& c, const ByName& tensors, const io::Origin& origin) {
  const ModelNames& names = names_of(c.family);
  required(tensors, names.embedding, {c.vocab_size, c.width}, origin);
  if (c.learned_positions) required(tensors, names.positions, {c.context_length, c.width}, origin);
  if (c.layers.size() > tensors.size()) {
    origin.fail("the tensors of " + std::to_string(c.layers.size()) + " layers", std::to_string(tensors.size()));
  }
  if (c.family == "gpt2") {
    required(tensors, "h.0.mlp.c_proj.weight", {c.inner_width, c.width}, origin);
  } else {
    check_mixers(c, tensors, origin);
    required(tensors, "model.layers.0.mlp.down_proj.weight", {c.width, c.inner_width}, origin);
    for (const auto& [name, shape] : c.latent ? latent_shapes(c) : Shapes{}) required(tensors, name, shape, origin);
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

// What holds a tensor's numbers exactly, apart from its blocks: MXFP4's have few bits, and powers of two that float16
// lacks.
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

// What the model of the config takes is in the files, and nothing else.
std::vector<StoredParameters> expected(LanguageModel& model, const ByName& tensors, const io::Origin& origin) {
  std::vector<StoredParameters> all = stored_parameters(model);
  std::set<std::string_view> known;
  for (const StoredParameters& stored : all) {
    known.insert(stored.name);
    required(tensors, stored.name, stored.shape(), origin);
  }
  const LanguageModelConfig& c = model.config();
  for (const auto& [name, tensor] : tensors) {
    if (known.contains(name) || passed_over(name, c)) continue;
    origin.fail("only tensors of a " + c.family + " of " + std::to_string(c.layers.size()) + " layers",
                io::in_quotes(name));
  }
  return all;
}

// Files whose config has been made fit for the model.
struct Ready {
  PretrainedFiles files;
  ByName tensors;
};

Ready ready(PretrainedFiles files, Precision precision, const io::Origin& origin) {
  Ready r{std::move(files), {}};
  r.files.config.precision = precision;
  r.tensors = by_name(r.files, origin);
  untie(r.files.config, r.tensors);
  check_sizes(r.files.config, r.tensors, origin);
  return r;
}

void load_all(LanguageModel& model, const ByName& tensors, std::optional<DType> weights, const io::Origin& origin) {
  for (const StoredParameters& stored : expected(model, tensors, origin)) {
    load(stored, *tensors.at(stored.name), weights);
  }
}

}  // namespace

LanguageModel load_language_model(const std::filesystem::path& path, std::optional<DType> weights, Precision precision,
                                  Generator rng) {
  check_weights(weights);
  return load_language_model(open_pretrained(path), io::source_name(path), weights, precision, std::move(rng));
}

LanguageModel load_language_model(PretrainedFiles files, std::string_view source, std::optional<DType> weights,
                                  Precision precision, Generator rng) {
  check_weights(weights);
  const io::Origin origin{kLoadModel, source};
  const Ready r = ready(std::move(files), precision, origin);
  LanguageModel model(r.files.config, rng, Initial::none);
  load_all(model, r.tensors, weights, origin);
  return model;
}

GPT load_gpt(const std::filesystem::path& path, Generator rng, Precision precision) {
  const std::string source = io::source_name(path);
  const io::Origin origin{"load_gpt", source};
  const Ready r = ready(open_pretrained(path), precision, origin);
  if (r.files.config.family != "gpt2") origin.fail("a model of the family gpt2", io::in_quotes(r.files.config.family));
  GPT model(gpt_config(r.files.config), rng, Initial::none);
  load_all(model, r.tensors, DType::f32, origin);
  return model;
}

}  // namespace attn
