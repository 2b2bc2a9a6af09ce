// A model in one file: safetensors with its config, and GGUF.
#include "attn/pretrained.hpp"

#include <algorithm>
#include <memory>
#include <set>

#include "attn/gguf.hpp"
#include "io/safetensors_file.hpp"
#include "lm/gguf_model.hpp"
#include "lm/hybrid_family.hpp"
#include "lm/stored_parameters.hpp"
#include "lm/stored_tensors.hpp"

namespace attn {
namespace {

constexpr const char* kConfigMetadata = "config";

// A tensor that is asked for is of a floating dtype; buffers that nobody reads may be of any.
StoredTensor stored(const std::shared_ptr<const io::SafetensorsFile>& file, const io::SafetensorsEntry& entry) {
  const auto load = [file, entry](DType dtype) {
    if (!is_floating(entry.dtype)) {
      io::Origin{kLoadModel, file->source()}.fail(entry.name + " of a floating dtype", name(entry.dtype));
    }
    return file->load(entry).to(dtype);
  };
  return {entry.name, std::string(io::safetensors_name(entry.dtype)), entry.extent.shape, entry.extent.bytes, load};
}

}  // namespace

void add_shard(std::vector<StoredTensor>& tensors, const std::shared_ptr<const io::SafetensorsFile>& file,
               std::set<std::string> named) {
  for (const io::SafetensorsEntry& entry : file->entries()) {
    tensors.push_back(stored(file, entry));
    named.erase(entry.name);
  }
  if (named.empty()) return;
  io::Origin{kLoadModel, file->source()}.fail("the tensor " + *named.begin() + ", as the index says", "none");
}

namespace {

// As transformers' base models are saved, which have no head: without what the whole model has before these names.
bool is_bare(std::string_view name) {
  return name.starts_with("embed_tokens.") || name.starts_with("layers.") || name.starts_with("norm.");
}

}  // namespace

// Files come with the prefix of the whole model and without it, OLMo-Hybrid's with older and newer names, and
// Qwen3.5's text part with the names that it has in the whole.
PretrainedFiles with_tensors(LanguageModelConfig config, std::vector<StoredTensor> tensors) {
  constexpr std::string_view prefix = "transformer.", within = "model.language_model.";
  for (StoredTensor& tensor : tensors) {
    if (config.family == "gpt2" && tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
    if (config.family != "gpt2" && is_bare(tensor.name)) tensor.name.insert(0, "model.");
    if (config.family == "qwen3_5_text" && tensor.name.starts_with(within)) {
      tensor.name.replace(0, within.size(), "model.");
    }
    if (config.family == "olmo_hybrid") tensor.name = stored_name(tensor.name, config.family);
  }
  if (config.family == "olmo_hybrid") join_convolutions(tensors);
  return {std::move(config), "safetensors", std::move(tensors)};
}

PretrainedFiles open_one(const std::shared_ptr<const io::SafetensorsFile>& file,
                         const std::function<LanguageModelConfig()>& beside) {
  const auto own = file->metadata().find(kConfigMetadata);
  std::vector<StoredTensor> tensors;
  add_shard(tensors, file);
  return with_tensors(own == file->metadata().end()
                          ? beside()
                          : parse_language_model_config(own->second, "the metadata of " + file->source()),
                      std::move(tensors));
}

PretrainedFiles open_pretrained(std::span<const std::byte> bytes, std::string_view config, std::string_view source) {
  if (io::as_text(bytes).starts_with("GGUF")) {
    return open_gguf_model(std::make_shared<const io::Gguf>(io::Gguf::parse(bytes, source)), std::string(source));
  }
  const auto memory = std::make_shared<const io::RandomAccessFile>(bytes, source);
  return open_one(std::make_shared<const io::SafetensorsFile>(memory), [&] {
    if (config.empty())
      io::Origin{kLoadModel, source}.fail("a config in its metadata, or a config.json beside it", "none");
    return parse_language_model_config(config, "config.json");
  });
}

}  // namespace attn
