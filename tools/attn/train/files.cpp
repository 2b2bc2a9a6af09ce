#include "train/files.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/io.hpp"
#include "attn/pretrained.hpp"
#include "common/format.hpp"
#include "common/ranks.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"
#include "io/output_folder.hpp"
#include "io/safetensors_file.hpp"
#include "train/progress.hpp"

namespace attn::tool {
namespace {

namespace fs = std::filesystem;

constexpr const char *kSteps = "steps", *kCurve = "curve", *kConfig = "config";  // of a model's metadata

fs::path beside(fs::path model, const char* extension) { return model.replace_extension(extension); }

std::string curve_svg(const Training& of) {
  const Trainer& run = of.trainer;
  figure::Series training{"training", {}, run.losses()}, validation{"validation", {}, {}};
  for (std::size_t i = 0; i < training.y.size(); ++i) training.x.push_back(static_cast<double>(i + 1));
  for (const auto& [step, loss] : run.validations()) {
    validation.x.push_back(static_cast<double>(step));
    validation.y.push_back(loss);
  }
  const figure::Series all[] = {training, validation};
  return figure::line_chart(all, {.title = "Loss", .x = "step", .y = "nats a " + of.unit});
}

// The metadata of a model that a run has written; none of any other file.
std::map<std::string, std::string> told_by_run(const fs::path& file) {
  try {
    const io::SafetensorsFile model(file);
    if (model.metadata().contains(kSteps)) return model.metadata();
  } catch (const Error&) {  // it is no such file, or is not there
  }
  return {};
}

// The curve of the run that wrote this model: beside it, unless it names another; empty where no run wrote it.
fs::path curve_of(const fs::path& model) {
  const auto told = told_by_run(model);
  if (told.empty()) return {};
  const auto curve = told.find(kCurve);
  return curve == told.end() ? beside(model, ".svg") : (model.parent_path() / curve->second).lexically_normal();
}

}  // namespace

TrainingFiles::TrainingFiles(const std::string& out, bool is_folder, const std::string& curve)
    : folder_(is_folder ? io::place_of_folder(out) : fs::path()),
      model_(is_folder ? folder_ / "model.safetensors" : fs::path(out)),
      checkpoint_(beside(model_, ".training.safetensors")),
      curve_(curve.empty() ? beside(model_, ".svg") : fs::path(curve)),
      best_(beside(model_, ".best.safetensors")),
      curve_named_(!curve.empty()) {
  if (!is_folder) return;
  if (fs::path(out).extension() == ".safetensors") {
    refuse("--out", "a folder for the model of --from", out);
  }
  if (io::place_of_folder(curve_.parent_path()) == folder_) curve_ = folder_ / curve_.filename();
}

// A run that goes on replaces the curve that it has written, and no other file.
void TrainingFiles::require_own_curve(const fs::path& written) const {
  if (curve_.lexically_normal() == written.lexically_normal() || !fs::is_regular_file(curve_)) return;
  refuse("--curve", formatted("no file there yet, or this run's curve \"{}\"", written.string()),
         formatted("\"{}\"", curve_.string()), "give another name, or leave it out");
}

void TrainingFiles::reserve(bool resume, bool replace, const Inputs& inputs) {
  const fs::path written = resume ? curve_of(model_) : fs::path();
  if (!written.empty() && !curve_named_) curve_ = written;
  const bool makes_folder = !folder_.empty() && !resume;
  require_no_input(makes_folder, inputs);
  if (!written.empty()) require_own_curve(written);
  if (makes_folder) {
    const io::OutputFolder probe(folder_, "--out");
    io::remove_abandoned(folder_);
  } else {
    require_checkpoint(resume);
    outputs_.declare("--out", model_.string(), {".safetensors"});
    outputs_.declare("the checkpoint", checkpoint_.string(), {".safetensors"});
  }
  if (!folder_.empty()) io::remove_abandoned(folder_.parent_path());
  if (!makes_folder || curve_.parent_path() != folder_) {
    if (io::Destination(curve_, "--curve").is_standard_output())
      refuse("--curve", "a file, which every checkpoint replaces", "standard output");
    outputs_.declare("--curve", curve_.string(), {".svg"});
  }
  if (folder_.empty()) {
    const io::Destination model(model_, "--out");
    if (model.is_stream()) refuse("--out", "a file", "a stream");
    lock_.emplace(beside(model.path(), ".training.lock"), model.path());
  } else {
    lock_.emplace(folder_.string() + ".training.lock", folder_);
  }
  if (resume) return;
  if (!replace) require_new();
  if (folder_.empty()) require_kept_by_runs();
  if (makes_folder) require_replaceable();
}

void TrainingFiles::require_checkpoint(bool resume) const {
  if (!resume || fs::exists(checkpoint_)) return;
  throw Error(Error::Kind::file, "--resume", formatted("a checkpoint at \"{}\"", escaped(checkpoint_.string())), "none",
              "start the run again without --resume");
}

// A file model.safetensors has its config.json beside it, as folders have it that others read (save_language_model()),
// and takes the place of weights in several files.
std::vector<fs::path> TrainingFiles::beside_model() const {
  if (!folder_.empty() || model_.filename() != "model.safetensors") return {};
  return {model_.parent_path() / "config.json", model_.parent_path() / "model.safetensors.index.json"};
}

void TrainingFiles::require_new() const {
  std::vector<fs::path> taken = folder_.empty() ? std::vector{model_, checkpoint_, best_} : std::vector{folder_};
  if (folder_.empty()) {
    for (const KeptModel& kept : kept_models(model_)) taken.push_back(kept.path);
    for (const fs::path& path : beside_model()) taken.push_back(path);
  }
  for (const fs::path& path : taken) {
    if (!fs::exists(path) || (fs::is_directory(path) && fs::is_empty(path))) continue;
    refuse("--out", "no model there yet", formatted("\"{}\"", path.string()),
           "continue it by --resume, or replace it by --force");
  }
  if (!fs::is_regular_file(curve_)) return;  // what a stream has got cannot be lost
  refuse("--curve", "no file there yet", formatted("\"{}\"", curve_.string()),
         "give another name, or replace it by --force");
}

// The older run's kept models go, too, so that these may hold nothing that somebody else has written.
void TrainingFiles::require_kept_by_runs() const {
  std::vector<fs::path> old{best_};
  for (const KeptModel& kept : kept_models(model_)) old.push_back(kept.path);
  const auto refuse_foreign = [](const fs::path& path) {
    refuse("--force", "only what attn train wrote, in place of which the models of this run come",
           formatted("\"{}\"", path.string()), "move it to another place");
  };
  for (const fs::path& path : old) {
    if (fs::exists(path) && told_by_run(path).empty()) refuse_foreign(path);
  }
  // A run has written config.json behind its checkpoint, and no index.
  const bool of_a_run = !told_by_run(model_).empty() || fs::exists(checkpoint_);
  for (const fs::path& path : beside_model()) {
    if (fs::exists(path) && !(of_a_run && path.filename() == "config.json")) refuse_foreign(path);
  }
}

// By whatever name, and whether or not something may be replaced.
void TrainingFiles::require_no_input(bool makes_folder, const Inputs& inputs) const {
  const auto same = [](const fs::path& one, const fs::path& other) {
    std::error_code none;  // where one of them is not there
    return fs::equivalent(one, other, none) && (fs::is_regular_file(one) || fs::is_directory(one));
  };
  const auto refuse_output = [](const char* output, const std::string& input, const fs::path& path) {
    refuse(output, formatted("a place other than that of {}, which is read", input),
           formatted("\"{}\"", path.string()));
  };
  for (const auto& [flag, input] : inputs) {
    if (input.empty()) continue;
    std::vector<fs::path> outputs{model_, checkpoint_, best_};
    std::ranges::copy(beside_model(), std::back_inserter(outputs));
    for (const fs::path& output : outputs) {
      if (same(output, input)) refuse_output("--out", flag, output);
    }
    if (same(curve_, input)) refuse_output("--curve", flag, curve_);
    if (makes_folder && (same(folder_, input) || same(folder_, input.parent_path()))) {
      refuse_output("--out", flag, folder_);
    }
  }
}

// All of the old folder goes, so that it may hold nothing that somebody would miss.
void TrainingFiles::require_replaceable() const {
  if (!fs::exists(folder_)) return;
  const std::vector<KeptModel> kept = kept_models(model_);
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (is_companion(entry.path())) continue;
    if (!entry.is_directory() &&
        (name == "config.json" || name == model_.filename() || name == checkpoint_.filename() ||
         name == curve_.filename() || name == best_.filename() ||
         std::ranges::find(kept, entry.path(), &KeptModel::path) != kept.end())) {
      continue;
    }
    refuse("--force", "a folder with the files of a model that attn train wrote, all of which it replaces", name,
           "move that away, or give another --out");
  }
}

// A run that goes on writes config.json anew, and would take back what somebody has changed in it. The weights beside
// it have the same text, in whichever order a killed run has left them.
void TrainingFiles::require_own_config() const {
  const fs::path file = model_.parent_path() / "config.json";
  const auto told = told_by_run(model_);
  if (model_.filename() != "model.safetensors" || !told.contains(kConfig) || !fs::exists(file)) return;
  const io::Buffer found = io::read_file(file, "--resume");
  if (io::as_text(found.bytes()) == told.at(kConfig)) return;
  throw Error(Error::Kind::data, "--resume", formatted("\"{}\" as the run wrote it", escaped(file.string())),
              "another text", "move it away: the checkpoint has the model's config, and it is written again");
}

void TrainingFiles::resumed(Training& training) {
  if (training.trainer.ranks().first()) require_own_config();
  kept_ = training.trainer.steps_done();
  measured(training);
}

void TrainingFiles::measured(Training& training) {
  const Trainer& run = training.trainer;
  const auto lowest = lowest_validation(run);
  if (!lowest || lowest->first != run.steps_done()) return;
  const auto whole = training.trainer.whole_weights();
  if (!run.ranks().first()) return;
  best_weights_.clear();
  for (const Parameter* p : training.model.parameters()) best_weights_.push_back(p->value.clone());
}

// The checkpoint first: the model and the curve can be written again from it.
void TrainingFiles::save(Training& training, bool keep) {
  Trainer& run = training.trainer;
  distributed::Transport* const ranks = run.ranks().transport;
  together(ranks, [&] {
    if (!run.finite()) throw diverged(formatted("other weights after step {}", run.steps_done()));
  });
  const auto whole = run.whole_weights();
  const TrainCheckpoint checkpoint = training.checkpoint();
  together(ranks, [&] {
    if (run.ranks().first()) write(training, checkpoint, keep);
  });
  kept_ = saved_ = run.steps_done();
}

// The model has those weights meanwhile.
void TrainingFiles::write_best(Training& training, const fs::path& path) {
  const auto exchange = [&] {
    std::size_t i = 0;
    for (Parameter* p : training.model.parameters()) std::swap(p->value, best_weights_[i++]);
  };
  exchange();
  try {
    save_language_model(path, training.model, {{kSteps, std::to_string(lowest_validation(training.trainer)->first)}});
  } catch (...) {
    exchange();
    throw;
  }
  exchange();
  best_weights_.clear();
}

void TrainingFiles::remove_kept(std::int64_t but) const {
  for (const KeptModel& kept : kept_models(model_)) {
    if (kept.step != but) fs::remove(kept.path);
  }
}

// The model that is kept comes before the checkpoint: a run that is killed between the two goes on before this step,
// and keeps it again.
void TrainingFiles::write(Training& training, const TrainCheckpoint& checkpoint, bool keep) {
  const std::int64_t step = training.trainer.steps_done();
  std::optional<io::OutputFolder> fresh;  // for the first step that is saved
  if (!folder_.empty() && kept_ < 0) fresh.emplace(folder_, "--out");
  const auto place = [&](const fs::path& file) {
    return fresh && file.parent_path() == folder_ ? fresh->path() / file.filename() : file;
  };
  // A checkpoint that is there has the best model beside it, from which the run no longer comes by.
  const auto lowest = lowest_validation(training.trainer);
  const bool best_is_older = lowest && lowest->first < step;
  if (best_is_older && !best_weights_.empty()) write_best(training, place(best_));
  std::map<std::string, std::string> told{{kSteps, std::to_string(step)}};
  if (curve_.lexically_normal() != beside(model_, ".svg").lexically_normal()) {
    told.emplace(kCurve, fs::absolute(curve_).lexically_relative(fs::absolute(model_).parent_path()).string());
  }
  if (keep) save_language_model(place(kept_model(model_, step)), training.model, told);
  checkpoint.save(place(checkpoint_));
  if (folder_.empty() && kept_ < 0) remove_kept(keep ? step : -1);
  if (!fresh) kept_ = step;
  save_language_model(place(model_), training.model, told);
  io::save_text(place(curve_), curve_svg(training));
  if (!best_is_older && !fresh) fs::remove(best_);  // an older run's, or no longer the best
  if (!fresh) return;
  for (const auto& [name, content] : companions_) {
    const fs::path file = fresh->path() / name;
    fs::create_directories(file.parent_path());
    io::save_text(file, content);
  }
  fresh->commit();
}

Error TrainingFiles::diverged(const std::string& found, std::string_view advice) const {
  const std::string kept =
      kept_ < 0 ? "nothing was saved yet"
                : formatted("\"{}\" is still the checkpoint of step {}", escaped(checkpoint_.string()), kept_);
  return {Error::Kind::data, "train", "finite loss, gradient and weights", found,
          formatted("{}; train with a smaller --lr or --clip{}", kept, advice)};
}

}  // namespace attn::tool
