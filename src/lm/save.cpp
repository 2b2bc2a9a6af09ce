// A model into its files.
#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "io/file.hpp"
#include "io/json_object.hpp"
#include "io/output_file.hpp"
#include "io/writers.hpp"
#include "lm/hybrid_family.hpp"
#include "lm/stored_parameters.hpp"
#include "ops/weights.hpp"

namespace attn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSave = "save_language_model";
constexpr const char *kConfig = "config", *kFormat = "format";

// In the dtype that the weights have now.
std::string config_of(const LanguageModel& model) {
  const std::string& json = model.config().json;
  auto config = nlohmann::ordered_json::parse(json.empty() ? config_json(model.config()) : json);
  config.erase("torch_dtype");
  // transformers' own padding token, where the key is absent, may lie beyond a small vocabulary: it reads no such
  // model.
  config.emplace("pad_token_id", nullptr);
  config["dtype"] = model.embedding.value.dtype() == DType::bf16 ? "bfloat16" : "float32";
  return config.dump(2) + "\n";
}

// As the files have them: several on top of each other, and transposed.
Tensor whole(const StoredParameters& stored) {
  std::vector<Tensor> columns;
  for (const Parameter* part : stored.parts) {
    require_present(*part);
    columns.push_back(part->value.rank() == 2 ? part->value.transpose(0, 1) : part->value);
  }
  const Tensor all = columns.size() == 1 ? columns[0] : concat_last(columns);
  return all.rank() == 2 && !stored.transposed ? all.transpose(0, 1) : all;
}

void remove_old(const fs::path& path) {
  std::error_code failed;
  fs::remove(path, failed);
  if (!failed) return;
  throw Error(Error::Kind::file, kSave, "a folder whose files can be replaced",
              io::source_name(path) + " (" + failed.message() + ")");
}

bool has_text(const fs::path& path, const std::string& text) {
  return fs::exists(path) && io::as_text(io::read_file(path, kSave).bytes()) == text;
}

// Old weights go before another config comes, and the new weights come last: no reader finds the weights of one model
// under the config of another.
void save_set(const fs::path& folder, const std::string& config, const io::NamedTensors& tensors) {
  const io::Destination weights_at(folder / "model.safetensors", kSave), config_at(folder / "config.json", kSave);
  io::OutputFile weights(weights_at), text(config_at);
  io::write_safetensors(weights, tensors);
  weights.finish();
  text.write(config);
  text.finish();
  remove_old(folder / "model.safetensors.index.json");  // of older weights in several files
  if (!has_text(config_at.path(), config)) remove_old(weights_at.path());
  text.commit();
  weights.commit();
}

}  // namespace

void save_language_model(const fs::path& path, LanguageModel& model,
                         const std::map<std::string, std::string>& metadata) {
  for (const char* key : {kConfig, kFormat}) {
    if (metadata.contains(key)) throw Error(Error::Kind::argument, kSave, "metadata of other names", key);
  }
  if (model.embedding.scales.defined() || model.embedding.value.dtype() == DType::i8) {
    throw Error(Error::Kind::dtype, kSave, "weights in float32 or bfloat16", "int8 or blocks of a file",
                "save the model that was loaded");
  }
  const std::string config = config_of(model);
  io::NamedTensors file;
  file.metadata = metadata;
  file.metadata.emplace(kConfig, config);
  file.metadata.emplace(kFormat, "pt");  // from_pretrained() asks for it
  const bool prefixed = model.config().family == "gpt2";
  for (const StoredParameters& stored : stored_parameters(model)) {
    const std::string name = prefixed && stored.name != kHeadTensor ? "transformer." + stored.name : stored.name;
    if (model.config().family == "olmo_hybrid" && name.ends_with(".conv1d.weight")) {
      std::ranges::move(split_convolution(name, whole(stored), *model.config().gated_delta),
                        std::back_inserter(file.tensors));
      continue;
    }
    file.tensors.emplace_back(name, whole(stored));
  }
  const bool alone = path.extension() == ".safetensors" && path.filename() != "model.safetensors";
  if (alone) return io::save_safetensors(path, file);
  save_set(path.extension() == ".safetensors" ? path.parent_path() : path, config, file);
}

}  // namespace attn
