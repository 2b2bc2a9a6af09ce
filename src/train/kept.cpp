// The models that a run keeps, by their names.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "attn/train.hpp"

namespace attn {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = ".step-", kExtension = ".safetensors";

fs::path file_of(const fs::path& model) { return fs::is_directory(model) ? model / "model.safetensors" : model; }

}  // namespace

fs::path kept_model(const fs::path& model, std::int64_t step) {
  fs::path file = file_of(model);
  return file.replace_extension(std::string(kStep) + std::to_string(step) + std::string(kExtension));
}

std::vector<KeptModel> kept_models(const fs::path& model) {
  const fs::path file = file_of(model), folder = file.has_parent_path() ? file.parent_path() : ".";
  const std::string prefix = file.stem().string() + std::string(kStep);
  std::vector<KeptModel> all;
  std::error_code unreadable;
  for (fs::directory_iterator at(folder, unreadable), end; !unreadable && at != end; at.increment(unreadable)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kExtension)) continue;
    KeptModel kept{.path = file.parent_path() / name};
    const char* last = name.data() + name.size() - kExtension.size();
    const auto [read, error] = std::from_chars(name.data() + prefix.size(), last, kept.step);
    // Nothing but what kept_model() writes: no sign, no zeros before the number.
    if (error == std::errc{} && read == last && kept.step >= 0 && kept_model(model, kept.step).filename() == name)
      all.push_back(kept);
  }
  std::ranges::sort(all, {}, &KeptModel::step);
  return all;
}

}  // namespace attn
