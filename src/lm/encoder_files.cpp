// Encoders in folders and in GGUF files.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "attn/encoder.hpp"
#include "attn/error.hpp"
#include "attn/gguf.hpp"
#include "io/file.hpp"
#include "lm/gguf_encoder.hpp"
#include "lm/stored_tensors.hpp"

namespace attn {
namespace {

namespace files = std::filesystem;

std::string json_in(const files::path& path) {
  return std::string(io::as_text(io::read_file(path, kLoadEncoder).bytes()));
}

// None where it cannot be read: what reads a language model then says why.
nlohmann::json json_or_none(const files::path& path) {
  try {
    return nlohmann::json::parse(json_in(path), nullptr, false);
  } catch (const Error&) {
    return {};
  }
}

EncoderFiles open_folder(const files::path& folder) {
  const files::path config = folder / "config.json";
  if (std::error_code ignored; !files::exists(config, ignored)) {
    throw Error(Error::Kind::file, kLoadEncoder,
                "an encoder at " + folder.string() + ": a folder with config.json, or a GGUF file",
                files::is_directory(folder, ignored)
                    ? files::is_empty(folder, ignored) ? "an empty folder" : "a folder without it"
                : files::exists(folder, ignored) ? "a file of another kind"
                                                 : "nothing there");
  }
  return {parse_encoder_config(json_in(config), io::source_name(config)), stored_tensors(folder)};
}

}  // namespace

bool is_encoder(const files::path& path) {
  if (io::is_gguf(path)) return is_gguf_encoder(io::Gguf::open(path));
  std::error_code ignored;
  if (!files::is_regular_file(path / "config.json", ignored)) return false;
  const nlohmann::json json = json_or_none(path / "config.json");
  return json.is_object() && json.contains("model_type") && json["model_type"] == "bert";
}

Encoder load_encoder(const files::path& path) {
  const std::string source = io::source_name(path);
  const auto files = [&] {
    if (!io::is_gguf(path)) return open_folder(path);
    return open_gguf_encoder(std::make_shared<const io::Gguf>(io::Gguf::open(path)), source);
  };
  return encoder_of(files(), {kLoadEncoder, source});
}

}  // namespace attn
