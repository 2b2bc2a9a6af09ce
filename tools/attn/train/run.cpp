#include "train/run.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "attn/error.hpp"
#include "attn/io.hpp"
#include "common/fingerprint.hpp"
#include "common/format.hpp"
#include "common/ranks.hpp"

namespace attn::tool {
namespace {

constexpr const char* kModel = "model.";
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kConfig = "config.json";  // of a released model
constexpr const char* kMeans[] = {"exp_avg.", "exp_avg_sq."};

Tensor column(const std::vector<double>& values) {
  return Tensor::from(std::span<const double>(values), {static_cast<std::int64_t>(values.size())});
}

std::vector<double> values(const Tensor& column) {
  const Tensor all = column.to(DType::f64).contiguous();
  return {all.data<double>(), all.data<double>() + all.numel()};
}

// The tensors whose names begin with `prefix`, without it.
StateDict part(const io::NamedTensors& file, std::string_view prefix) {
  StateDict state;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(prefix)) state.emplace(name.substr(prefix.size()), tensor);
  }
  return state;
}

const Tensor& tensor_of(const io::NamedTensors& file, const char* name, const std::string& source) {
  const Tensor* found = file.find(name);
  if (!found) throw Error(Error::Kind::data, "train", std::string("a tensor ") + name + " in " + source, "none");
  return *found;
}

// The largest tensors that the settings speak of, before a model is made of their sizes: a small file that lies about
// them must not take the machine's memory.
void check_sizes(const GPTConfig& config, const StateDict& model, const std::string& source) {
  const auto require = [&](const std::string& name, const Shape& shape) {
    const auto found = model.find(name);
    if (found != model.end() && found->second.shape() == shape) return;
    throw Error(Error::Kind::data, "train", kModel + name + " of shape " + shape.str() + " in " + source,
                found == model.end() ? "none" : found->second.shape().str());
  };
  require("wte.weight", {config.vocab_size, config.width});
  require("wpe.weight", {config.context_length, config.width});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    require("h." + std::to_string(i) + ".mlp.c_fc.weight", {4 * config.width, config.width});
  }
}

// Of AdamW, before it is divided.
void require_mean(const StateDict& state, const std::string& name, const Shape& shape) {
  const auto found = state.find(name);
  if (found != state.end() && found->second.shape() == shape && found->second.dtype() == DType::f32) return;
  throw Error(Error::Kind::data, "train", kOptimizer + name + " of shape " + shape.str() + " in float32",
              found == state.end()
                  ? "none"
                  : formatted("{} in {}", found->second.shape().str(), attn::name(found->second.dtype())));
}

// Each text is a group where the sum must not depend on the ranks, else the texts that data-parallel ranks have are.
// Null for one process that takes a batch as a whole.
std::unique_ptr<distributed::GradientSum> gradient_sum(const TrainSettings& settings, const TrainRanks& ranks,
                                                       Module& module, distributed::WeightShards* weights) {
  if (!settings.reproducible && ranks.size() == 1) return nullptr;
  return std::make_unique<distributed::GradientSum>(
      ranks.transport, module.parameters(),
      distributed::GradientSumOptions{.groups = settings.reproducible ? settings.batch : ranks.data(),
                                      .sequence_ranks = ranks.sequence,
                                      .sharded = ranks.sharding != Sharding::none,
                                      .weights = weights});
}

std::unique_ptr<TrainedModel> gpt_of(const TrainSettings& settings, Generator& dropout, const StateDict& weights) {
  auto model = new_gpt(settings.model, dropout);
  if (!weights.empty()) model->module().load_state_dict(weights);
  return model;
}

std::shared_ptr<distributed::WeightShards> weight_shards(CausalLM& model, const TrainRanks& ranks) {
  if (ranks.sharding != Sharding::weights || ranks.size() == 1) return nullptr;
  const auto shards = std::make_shared<distributed::WeightShards>(ranks.transport, model.weight_parts());
  model.set_weights(shards);
  return shards;
}

// A seed for each group of a step (the last function of SplitMix64, Steele et al. 2014).
std::uint64_t mixed(std::uint64_t key, std::int64_t group) {
  std::uint64_t z = key + 0x9e3779b97f4a7c15u * (static_cast<std::uint64_t>(group) + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

const TrainSettings& checked(const TrainSettings& s, const TrainRanks& ranks) {
  const auto require = [](bool holds, const char* flag, const char* expected, auto found) {
    if (!holds) throw Error(Error::Kind::argument, flag, expected, formatted("{}", found));
  };
  require(s.steps >= 1, "--steps", "at least 1", s.steps);
  require(s.batch >= 1, "--batch", "at least 1", s.batch);
  require(s.eval_every >= 1, "--eval-every", "at least 1", s.eval_every);
  require(s.warmup >= 0, "--warmup", "at least 0", s.warmup);
  require(s.rate > 0 && s.rate < 1e3, "--lr", "a number above 0 and below 1000", s.rate);
  require(s.floor >= 0 && s.floor <= s.rate, "--min-lr", "a number from 0 to --lr", s.floor);
  require(s.clip >= 0, "--clip", "a number of at least 0", s.clip);
  if (s.batch % ranks.data() != 0) {
    throw Error(Error::Kind::argument, "--batch", formatted("a multiple of the {} ranks that share it", ranks.data()),
                std::to_string(s.batch));
  }
  if (ranks.sequence > s.model.context_length) {
    throw Error(Error::Kind::argument, "--ranks",
                formatted("sequence of at most the {} tokens of a text", s.model.context_length),
                std::to_string(ranks.sequence));
  }
  return s;
}

}  // namespace

Run::Run(const TrainSettings& settings, const Text& text, std::unique_ptr<TrainedModel> model, const TrainRanks& ranks,
         const StateDict& weights)
    : settings_(checked(settings, ranks)),
      ranks_(ranks),
      text_(&text),
      rng_(settings.seed, dropout_flavour(settings.rng)),
      dropout_(rng_),
      model_(model ? std::move(model) : gpt_of(settings, dropout_, weights)),
      fingerprint_(ranks.size() > 1 ? tool::fingerprint(model_->module().parameters()) : ""),
      share_(ranks, settings.model.context_length),
      weights_(weight_shards(model_->module(), ranks)),
      sum_(gradient_sum(settings, ranks, model_->module(), weights_.get())),
      optimizer_(sum_ ? sum_->own() : model_->module().parameters(), settings.optimizer),
      validation_(text.validation(sum_ ? 1 : settings.batch)) {
  model_->module().set_sequence(share_.part());
  if (!sum_) return;
  rng_ = Generator(settings.seed, rng_.flavour());  // batches alone, which all ranks draw alike
  rng_.set_state(dropout_.state());
}

Run::Step Run::gradients() {
  const Batch batch = text_->training(rng_, settings_.batch);
  Step step;
  step.rate = settings_.schedule().rate(steps_done());
  CausalLM& model = model_->module();
  model.train();
  model.zero_grad();
  if (sum_) {
    step.loss = gradients_by_groups(batch);
    step.norm = sum_->norm();
    return step;
  }
  step.loss = model.loss(batch.ids, batch.targets);
  model.backward();
  step.norm = gradient_norm(model.parameters());
  return step;
}

double Run::gradients_by_groups(const Batch& batch) {
  const std::uint64_t key = settings_.model.dropout > 0 ? rng_.next_u64() : 0;
  const std::int64_t groups = sum_->groups(), texts = settings_.batch / groups;
  const distributed::Run own = sum_->own_groups();
  std::vector<double> losses;
  for (std::int64_t g = own.first; g < own.last; ++g) {
    dropout_.manual_seed(mixed(key, g));
    const auto of_group = [&](const Tensor& t) { return t.slice(0, g * texts, (g + 1) * texts); };
    const Batch own_rows = share_.of({of_group(batch.ids), of_group(batch.targets)});
    losses.push_back(model_->module().loss(own_rows.ids, own_rows.targets));
    model_->module().backward(share_.of_tokens() / static_cast<double>(groups),
                              [&](std::span<Parameter* const> ready) { sum_->take(ready); });
  }
  sum_->finish();
  losses = share_.gathered(losses);
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(groups);
}

double Run::trial() {
  using Clock = std::chrono::steady_clock;
  constexpr double enough = 1;  // seconds: a step that is longer is taken once
  const Tensor before = rng_.state();
  double fastest = std::numeric_limits<double>::infinity(), all = 0;
  for (int tries = 0; tries < 3 && all < enough; ++tries) {  // the first one waits for its memory
    const auto start = Clock::now();
    gradients();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    rng_.set_state(before);
    fastest = std::min(fastest, seconds);
    all = distributed::all_gather(ranks_.transport, std::vector{all + seconds}).front();
  }
  return fastest;
}

Run::Step Run::step() {
  Step step = gradients();
  if (!step.finite()) {
    skipped_.push_back(static_cast<double>(steps_done() + 1));
    return step;
  }
  optimizer_.step(step.rate, clip_factor(step.norm, settings_.clip));
  if (sum_) sum_->share_values();
  losses_.push_back(step.loss);
  if (steps_done() % settings_.eval_every == 0 || done()) {
    step.validation = validate();
    validations_.emplace_back(steps_done(), *step.validation);
  }
  return step;
}

std::vector<Parameter*> Run::kept() const { return weights_ ? sum_->own() : model_->module().parameters(); }

bool Run::finite() {
  const auto all = kept();
  return std::all_of(all.begin(), all.end(), [](const Parameter* p) {
    const float* value = p->value.data<float>();
    return std::all_of(value, value + p->value.numel(), [](float x) { return std::isfinite(x); });
  });
}

std::shared_ptr<void> Run::whole_weights() {
  if (!weights_) return nullptr;
  weights_->gather(0);
  return {weights_.get(), [](distributed::WeightShards* shards) { shards->divide(); }};
}

double Run::validate_by_texts() {
  const auto texts = static_cast<std::int64_t>(validation_.size()), ranks = std::int64_t{ranks_.data()};
  const std::int64_t first = texts * ranks_.data_rank() / ranks, last = texts * (ranks_.data_rank() + 1) / ranks;
  // Ranks that fetch weights from each other compute equally many texts, where need be one whose loss does not count.
  const std::int64_t most = weights_ ? (texts + ranks - 1) / ranks : last - first;
  std::vector<double> losses;
  for (std::int64_t i = first; i < first + most; ++i) {
    const Batch batch = share_.of(validation_[static_cast<std::size_t>(std::min(i, texts - 1))]);
    const double loss = model_->module().evaluate(batch.ids, batch.targets);
    if (i < last) losses.push_back(loss);
  }
  losses = share_.gathered(losses);
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(texts);
}

double Run::validate() {
  model_->module().eval();
  if (sum_) return validate_by_texts();
  double sum = 0, count = 0;
  for (const Batch& batch : validation_) {
    const auto texts = static_cast<double>(batch.ids.size(0));
    sum += model_->module().evaluate(batch.ids, batch.targets) * texts;
    count += texts;
  }
  return sum / count;
}

// The state as AdamW of all parameters has it, whoever keeps which part.
StateDict Run::optimizer_state() const {
  const StateDict own = optimizer_.state_dict();
  if (!sum_) return own;
  StateDict all{{"steps", own.at("steps")}};
  const auto parameters = model_->module().parameters();
  for (const char* prefix : kMeans) {
    std::vector<Tensor> parts;
    for (const Parameter* p : sum_->own()) parts.push_back(own.at(prefix + p->name));
    const std::vector<Tensor> whole = sum_->gathered(parts);
    for (std::size_t i = 0; i < whole.size(); ++i) all.emplace(prefix + parameters[i]->name, whole[i]);
  }
  return all;
}

void Run::load_optimizer(const StateDict& state) {
  if (ranks_.sharding == Sharding::none || !sum_) return optimizer_.load_state_dict(state);
  const auto parameters = model_->module().parameters();
  for (const char* prefix : kMeans) {
    for (const Parameter* p : parameters) require_mean(state, prefix + p->name, p->value.shape());
  }
  StateDict own;
  if (const auto steps = state.find("steps"); steps != state.end()) own.insert(*steps);
  for (const char* prefix : kMeans) {
    std::vector<Tensor> whole;
    for (const Parameter* p : parameters) whole.push_back(state.at(prefix + p->name));
    const std::vector<Tensor> parts = sum_->own_parts(whole);
    for (std::size_t i = 0; i < parts.size(); ++i) own.emplace(prefix + sum_->own()[i]->name, parts[i]);
  }
  optimizer_.load_state_dict(own);
}

void Run::save(const std::filesystem::path& path) const {
  const StateDict optimizer = optimizer_state();
  together(ranks_.transport, [&] {
    if (ranks_.first()) write(path, optimizer);
  });
}

void Run::write(const std::filesystem::path& path, const StateDict& optimizer) const {
  io::NamedTensors file;
  for (const Parameter* p : model_->module().parameters()) file.tensors.emplace_back(kModel + p->name, p->value);
  for (const auto& [name, tensor] : optimizer) file.tensors.emplace_back(kOptimizer + name, tensor);
  std::vector<double> at, loss;
  for (const auto& [step, value] : validations_) at.push_back(static_cast<double>(step)), loss.push_back(value);
  file.tensors.emplace_back("generator", rng_.state());
  file.tensors.emplace_back("losses", column(losses_));
  file.tensors.emplace_back("skipped", column(skipped_));
  file.tensors.emplace_back("validation.step", column(at));
  file.tensors.emplace_back("validation.loss", column(loss));
  file.metadata["settings"] = to_json(settings_).dump();
  file.metadata["text"] = text_->fingerprint();
  if (const std::string config = model_->config(); !config.empty()) file.metadata[kConfig] = config;
  io::save_safetensors(path, file);
}

std::unique_ptr<Run> Run::resume(const std::filesystem::path& path, const std::vector<std::string>& files,
                                 const Tokenizer& tokenizer, std::optional<Text>& text, const TrainRanks& ranks) {
  const std::string source = path.string();
  const io::NamedTensors file = io::load(path);
  const auto settings = file.metadata.find("settings"), fingerprint = file.metadata.find("text");
  if (settings == file.metadata.end() || fingerprint == file.metadata.end()) {
    throw Error(Error::Kind::data, "train", "a checkpoint of attn train in " + source, "another file");
  }
  TrainSettings mine = parse_settings(settings->second, source);
  mine.model.initialise = false;
  const StateDict state = part(file, kModel);
  std::unique_ptr<TrainedModel> model;
  if (const auto config = file.metadata.find(kConfig); config != file.metadata.end()) {
    model = released_model(config->second, state, mine.model.precision, source);
  } else {
    check_sizes(mine.model, state, source);
  }
  text.emplace(files, tokenizer, mine.validation, mine.model.context_length);
  if (text->fingerprint() != fingerprint->second) {
    throw Error(Error::Kind::data, "train", "the text that " + source + " was trained on", "another",
                "give the same files");
  }
  auto run = std::make_unique<Run>(mine, *text, std::move(model), ranks, state);
  run->load_optimizer(part(file, kOptimizer));
  run->rng_.set_state(tensor_of(file, "generator", source));
  run->losses_ = values(tensor_of(file, "losses", source));
  if (const Tensor* skipped = file.find("skipped")) run->skipped_ = values(*skipped);
  const auto at = values(tensor_of(file, "validation.step", source));
  const auto loss = values(tensor_of(file, "validation.loss", source));
  const auto is_a_step = [&](double step) { return step >= 0 && step <= static_cast<double>(run->steps_done()); };
  if (at.size() != loss.size() || !std::all_of(at.begin(), at.end(), is_a_step) ||
      !std::all_of(run->skipped_.begin(), run->skipped_.end(), [&](double step) { return is_a_step(step - 1); }) ||
      static_cast<std::int64_t>(run->losses_.size()) != run->steps_done()) {
    throw Error(Error::Kind::data, "train", "curves of the steps that " + source + " names", "other ones");
  }
  for (std::size_t i = 0; i < at.size(); ++i) run->validations_.emplace_back(static_cast<std::int64_t>(at[i]), loss[i]);
  return run;
}

}  // namespace attn::tool
