// The steps of training and what is measured between them. state.cpp has what a checkpoint keeps of them.
#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "attn/error.hpp"
#include "attn/gradient_sum.hpp"
#include "attn/train.hpp"
#include "attn/weight_shards.hpp"
#include "core/known.hpp"
#include "train/config.hpp"
#include "train/share.hpp"

namespace attn {
namespace {

const TrainConfig& checked(const TrainConfig& config, const TrainRanks& ranks, const LanguageModelConfig& model,
                           const TrainText& text) {
  check_config(config, ranks, text.context());
  const auto require = [](std::int64_t found, std::int64_t most, const std::string& expected) {
    if (found > most)
      throw Error(Error::Kind::argument, "train", expected + std::to_string(most), std::to_string(found));
  };
  require_known("train", "sharding", ranks.sharding, Sharding::weights);
  require(text.context(), model.context_length, "texts of at most the model's context_length = ");
  require(text.largest_id(), model.vocab_size - 1, "ids of the model's vocabulary, from 0 to ");
  return config;
}

std::shared_ptr<distributed::WeightShards> weight_shards(LanguageModel& model, const TrainRanks& ranks) {
  if (ranks.sharding != Sharding::weights || ranks.size() == 1) return nullptr;
  const auto shards = std::make_shared<distributed::WeightShards>(ranks.transport, model.weight_parts());
  model.set_weights(shards);
  return shards;
}

// Each text is a group where the sum must not depend on the ranks, else the texts that data-parallel ranks have are.
// Null for one process that takes a batch as a whole.
std::unique_ptr<distributed::GradientSum> gradient_sum(const TrainConfig& config, const TrainRanks& ranks,
                                                       LanguageModel& model, distributed::WeightShards* weights) {
  if (!config.reproducible && ranks.size() == 1) return nullptr;
  return std::make_unique<distributed::GradientSum>(
      ranks.transport, model.parameters(),
      distributed::GradientSumOptions{.groups = config.reproducible ? config.batch : ranks.data(),
                                      .sequence_ranks = ranks.sequence,
                                      .sharded = ranks.sharding != Sharding::none,
                                      .weights = weights});
}

bool same(const Tensor& a, const Tensor& b) {
  return std::equal(a.data<std::int64_t>(), a.data<std::int64_t>() + a.numel(), b.data<std::int64_t>());
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

Trainer::Trainer(LanguageModel& model, const Generator& rng, const TrainText& text, const TrainConfig& config,
                 const TrainRanks& ranks)
    : config_(checked(config, ranks, model.config(), text)),
      ranks_(ranks),
      text_(text),
      model_(model),
      dropout_(rng),
      rng_(rng),
      share_(std::make_unique<TextShare>(ranks, text.context())),
      weights_(weight_shards(model, ranks)),
      sum_(gradient_sum(config, ranks, model, weights_.get())),
      optimizer_(sum_ ? sum_->own() : model.parameters(), config.optimizer),
      validation_(text.validation(sum_ ? 1 : config.batch)) {
  model_.set_sequence(share_->part());
  if (!sum_) return;
  rng_ = Generator(0, rng.flavour());  // batches alone, which all ranks draw alike
  rng_.set_state(dropout_.state());
}

Trainer::~Trainer() { model_.set_sequence(nullptr); }  // whose ranks end with this

Trainer::Step Trainer::gradients() {
  const TrainBatch batch = text_.training(rng_, config_.batch);
  Step step{.number = steps_done() + 1, .rate = config_.schedule().rate(steps_done())};
  model_.train();
  model_.zero_grad();
  if (sum_) {
    step.loss = gradients_by_groups(batch);
    step.norm = sum_->norm();
  } else {
    step.loss = model_.loss(batch.ids, batch.targets);
    model_.backward();
    step.norm = gradient_norm(model_.parameters());
  }
  return step;
}

// The mean loss. Each group of texts has a stream of dropout of its own, whose seed is the next one after that of the
// group before; the first is a number of the batches' stream. A model that drops nothing takes none.
double Trainer::gradients_by_groups(const TrainBatch& batch) {
  const Tensor before = rng_.state();
  const std::uint64_t key = rng_.next_u64();
  const std::int64_t groups = sum_->groups(), texts = config_.batch / groups;
  const distributed::Run own = sum_->own_groups();
  std::vector<double> losses;
  bool drops = false;
  for (std::int64_t g = own.first; g < own.last; ++g) {
    dropout_.manual_seed(key + static_cast<std::uint64_t>(g));
    const Tensor seeded = dropout_.state();
    const auto of_group = [&](const Tensor& t) { return t.slice(0, g * texts, (g + 1) * texts); };
    const TrainBatch rows = share_->of({of_group(batch.ids), of_group(batch.targets)});
    losses.push_back(model_.loss(rows.ids, rows.targets));
    drops = drops || !same(dropout_.state(), seeded);
    model_.backward(share_->of_tokens() / static_cast<double>(groups),
                    [&](std::span<Parameter* const> ready) { sum_->take(ready); });
  }
  if (!drops) rng_.set_state(before);
  sum_->finish();
  return sum_of(share_->gathered(losses)) / static_cast<double>(groups);
}

Trainer::Step Trainer::step() {
  Step step = gradients();
  if (!step.finite()) {
    skipped_.push_back(static_cast<double>(step.number));
    return step;
  }
  optimizer_.step(step.rate, clip_factor(step.norm, config_.clip));
  if (sum_) sum_->share_values();
  losses_.push_back(step.loss);
  if (steps_done() % config_.eval_every == 0 || done()) {
    step.validation = validate();
    validations_.emplace_back(steps_done(), *step.validation);
  }
  return step;
}

void Trainer::run(const std::function<void(const Step&)>& after) {
  Divergence divergence;
  while (!done()) {
    const Step one = step();
    if (const auto found = divergence.ends(one)) {
      throw Error(Error::Kind::data, "train", "finite loss, gradient and weights", *found,
                  "train with a smaller lr or clip");
    }
    if (after) after(one);
  }
}

double Trainer::trial() {
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

double Trainer::validate() {
  model_.eval();
  if (sum_) return validate_by_texts();
  double sum = 0, count = 0;
  for (const TrainBatch& batch : validation_) {
    const auto texts = static_cast<double>(batch.ids.size(0));
    sum += model_.evaluate(batch.ids, batch.targets) * texts;
    count += texts;
  }
  return sum / count;
}

double Trainer::validate_by_texts() {
  const auto texts = static_cast<std::int64_t>(validation_.size()), ranks = std::int64_t{ranks_.data()};
  const std::int64_t first = texts * ranks_.data_rank() / ranks, last = texts * (ranks_.data_rank() + 1) / ranks;
  // Ranks that fetch weights from each other compute equally many texts, where need be one whose loss does not count.
  const std::int64_t most = weights_ ? (texts + ranks - 1) / ranks : last - first;
  std::vector<double> losses;
  for (std::int64_t i = first; i < first + most; ++i) {
    const TrainBatch batch = share_->of(validation_[static_cast<std::size_t>(std::min(i, texts - 1))]);
    const double loss = model_.evaluate(batch.ids, batch.targets);
    if (i < last) losses.push_back(loss);
  }
  return sum_of(share_->gathered(losses)) / static_cast<double>(texts);
}

bool Trainer::finite() {
  return std::ranges::all_of(kept(), [](const Parameter* p) {
    const float* value = p->value.data<float>();
    return std::all_of(value, value + p->value.numel(), [](float x) { return std::isfinite(x); });
  });
}

}  // namespace attn
