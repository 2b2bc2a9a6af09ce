// GPT in files, by the tensor names, layouts and config.json of Hugging Face's GPT-2. Its weights load here, and ours
// load there.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "attn/gpt.hpp"
#include "attn/random.hpp"

namespace attn {

// `path` is a .safetensors file, or a folder for its model.safetensors, as GPT2LMHeadModel.save_pretrained() writes it.
// The file carries its config in its metadata ("config"), so it can be moved alone; a file named model.safetensors gets
// a config.json beside it, too, and then from_pretrained(folder) takes the folder. Each file is whole or untouched.
// Throws Error (file), and (argument) for metadata named "config" or "format".
void save_gpt(const std::filesystem::path& path, GPT& model, const std::map<std::string, std::string>& metadata = {});

// Reads what save_gpt() wrote, and Hugging Face's GPT-2 (GPT2LMHeadModel or GPT2Model, with or without the prefix
// "transformer."), of weights in float32, bfloat16 or float16. The config is the file's own, else config.json's beside
// it. The buffers attn.bias and attn.masked_bias are passed over, as are tensors named "training.…", and a tied model's
// lm_head. `rng` is for dropout in train mode, and `precision` is that of its products. Throws Error, naming the tensor
// or the key: (file), and (data) for a missing or unknown tensor, a shape that is not the config's, or a config that this
// GPT cannot be.
GPT load_gpt(const std::filesystem::path& path, Generator rng = Generator(0),
             Precision precision = Precision::highest);

// The file that save_gpt() writes and load_gpt() reads for `path`.
std::filesystem::path gpt_file(const std::filesystem::path& path);

// These write and read config.json as GPT2Config has it. Missing keys have GPT2Config's defaults, and dropout is
// resid_pdrop.
std::string gpt_config_json(const GPTConfig& config);
GPTConfig parse_gpt_config(std::string_view json, std::string_view source);

}  // namespace attn
