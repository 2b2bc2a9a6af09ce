// Training a language model on a text: the loop, and the checkpoint from which it goes on bit for bit.
//
//   attn::Generator rng{1337};
//   attn::GPT model{{.context_length = 64, .layers = 2, .heads = 4, .width = 64}, rng};
//   const attn::TrainText text(attn::ByteTokenizer().encode(book), 64);
//   attn::Trainer trainer(model, rng, text, {.steps = 500});
//   trainer.run();
//   trainer.save("book.training.safetensors");
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attn/distributed.hpp"
#include "attn/language_model.hpp"
#include "attn/optim.hpp"
#include "attn/random.hpp"

namespace attn {

namespace distributed {
class GradientSum;
class WeightShards;
}  // namespace distributed
class TextShare;

struct TrainBatch {
  Tensor ids = {}, targets = {};  // int64 (b, t); a target is the id that follows
};

// Token ids that are trained on, those at their end that are not, and batches of both.
class TrainText {
 public:
  // Texts of a batch have `context` tokens. The last part of the ids, a share of `validation`, is set aside. Throws
  // Error: (argument) for a share that is not between 0 and 1, a context below 1 or an id that is not in [0, 2^31), and
  // (data) when either part is shorter than a text and the token that follows it.
  TrainText(std::span<const std::int64_t> ids, std::int64_t context, double validation = 0.1);
  // Copies share the tokens. Moving copies, too, so that no text is left without them.
  TrainText(const TrainText&) = default;
  TrainText& operator=(const TrainText&) = default;

  // Random places of the first part: one torch.randint(0, n - context, (batch,)).
  TrainBatch training(Generator& rng, std::int64_t batch) const;
  // Places spread evenly over the second part: batches of `batch` texts, at most kTexts in all; always the same.
  std::vector<TrainBatch> validation(std::int64_t batch) const;

  std::int64_t context() const noexcept { return context_; }
  std::int64_t training_tokens() const noexcept { return split_; }
  std::int64_t validation_tokens() const noexcept { return static_cast<std::int64_t>(ids_->size()) - split_; }
  std::int64_t largest_id() const;
  // A run that goes on must have the same of both: a hash of all tokens, and how they are cut, in words.
  std::string fingerprint() const;
  std::string cut() const;

  static constexpr std::int64_t kTexts = 64;

 private:
  TrainBatch at(const std::vector<std::int64_t>& starts) const;

  std::shared_ptr<const std::vector<std::int32_t>> ids_;
  std::int64_t split_ = 0, context_ = 0;
};

// A TrainConfig decides the numbers of a run, beside its model, its text and its generator.
struct TrainConfig {
  std::int64_t steps = 2000;        // of the optimizer
  std::int64_t batch = 16;          // texts in a step
  std::int64_t warmup = 100;        // steps over which the learning rate rises
  std::int64_t eval_every = 100;    // steps between validations
  double lr = 1e-3, min_lr = 1e-4;  // the highest learning rate, and what it falls to, as of CosineSchedule
  double clip = 1;                  // the largest norm of the gradient; 0 clips nothing
  AdamWConfig optimizer = {};
  bool reproducible = false;  // the same bits for any number of data-parallel ranks

  CosineSchedule schedule() const { return {.peak = lr, .floor = min_lr, .warmup = warmup, .steps = steps}; }
};

// Each rank keeps a part of its own of nothing, of the optimizer's state, or of that and the weights.
enum class Sharding { none, state, weights };

// The processes that train together, which make the same calls with equal models, texts and generators. Ranks that
// follow each other share texts, `sequence` of them each.
struct TrainRanks {
  distributed::Transport* transport = nullptr;  // must outlive the trainer; null: one process
  Sharding sharding = Sharding::none;
  int sequence = 1;                                             // divides the number of ranks
  distributed::Scheme scheme = distributed::Scheme::automatic;  // of attention over those that share texts

  int size() const { return transport ? transport->size() : 1; }
  int rank() const { return transport ? transport->rank() : 0; }
  int data() const { return size() / sequence; }  // how many shares a batch has
  int data_rank() const { return rank() / sequence; }
  bool first() const { return rank() == 0; }  // the one that writes
};

// All that a run is at a step. In a file: "model.NAME", "optimizer.exp_avg.NAME", …; the config is JSON in the metadata
// "settings", by the names of attn train's flags.
struct TrainCheckpoint {
  TrainConfig config = {};
  std::string text = {};  // TrainText::fingerprint()
  // TrainText::cut(), and the generator's flavour; empty in files that have neither.
  std::string cut = {}, flavour = {};
  StateDict weights = {}, optimizer = {};
  Tensor generator = {};
  std::vector<double> losses = {}, skipped = {};  // as of Trainer
  std::vector<std::pair<std::int64_t, double>> validations = {};
  // Beside these, for the caller. A JSON object "settings" gets the config's members in place of its own, and "text",
  // "cut" and "flavour" are those above.
  std::map<std::string, std::string> metadata = {};
  std::string source = {};  // the file that it was read from, for errors

  // The file is whole or untouched. Throws Error: (file), and (argument) for metadata "settings" that are no JSON
  // object, or another "text", "cut" or "flavour".
  void save(const std::filesystem::path& path) const;
  // Throws Error: (file), and (data) for what save() does not write.
  static TrainCheckpoint load(const std::filesystem::path& path);
};

class Trainer {
 public:
  // The model and the text must outlive it. Afterwards the model computes whole texts again; weights that are divided
  // stay so. Batches are drawn from `rng`, from which dropout is
  // drawn, too, if the model was made with it. Throws Error (argument) for what makes no run.
  Trainer(LanguageModel& model, const Generator& rng, const TrainText& text, const TrainConfig& config = {},
          const TrainRanks& ranks = {});
  // Goes on bit for bit where a checkpoint was made, with its config and its weights, which the model gets; on one
  // processor or ranks as before. The model must have the same dropout. Throws Error (data) for another text, one that
  // is cut otherwise and a generator of another flavour, and (data, shape, dtype) for another model.
  Trainer(LanguageModel& model, const Generator& rng, const TrainText& text, const TrainCheckpoint& from,
          const TrainRanks& ranks = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  struct Step {
    std::int64_t number = 0;  // 1, 2, …
    double loss = 0, norm = 0,
           rate = 0;  // before the weights changed, in nats a token; of all gradients; learning rate
    std::optional<double> validation = {};  // measured after this step
    bool finite() const noexcept { return std::isfinite(loss) && std::isfinite(norm); }
  };
  // One step. One that is not finite changes nothing but the generator, which draws another batch for the next, and is
  // no step: it is counted in skipped().
  Step step();
  // Steps until all are done, and tells of each. Throws Error (data) where training diverges, as Divergence has it.
  void run(const std::function<void(const Step&)>& after = {});
  // Seconds that a step takes, by one that changes nothing: neither weights nor the generator.
  double trial();
  double validate();  // mean loss, in nats a token
  bool finite();      // whether all weights that this rank keeps are

  std::int64_t steps_done() const noexcept { return optimizer_.steps(); }
  bool done() const noexcept { return steps_done() >= config_.steps; }
  const TrainConfig& config() const noexcept { return config_; }
  const TrainRanks& ranks() const noexcept { return ranks_; }
  std::int64_t tokens_a_step() const noexcept { return config_.batch * text_.context(); }
  const std::vector<double>& losses() const noexcept { return losses_; }  // of every step
  // The steps whose place was taken by another batch; one step may be here several times.
  const std::vector<double>& skipped() const noexcept { return skipped_; }
  // (step, loss) of every measurement.
  const std::vector<std::pair<std::int64_t, double>>& validations() const noexcept { return validations_; }

  // Saves a checkpoint, with metadata as TrainCheckpoint has it. All ranks call it, and the first writes.
  void save(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata = {});
  // The checkpoint of now, whose tensors are the run's own: a step changes them. All ranks call it, while the first has
  // its whole_weights(), and gets the checkpoint; that of the others is not to be saved.
  TrainCheckpoint checkpoint() const;
  // While it lives, the first rank's model has all of its weights, to be saved. All ranks make it.
  std::shared_ptr<void> whole_weights();

 private:
  Step gradients();
  double gradients_by_groups(const TrainBatch& batch);
  double validate_by_texts();
  std::vector<Parameter*> kept() const;
  StateDict optimizer_state() const;
  void load_optimizer(const StateDict& state);

  TrainConfig config_;
  TrainRanks ranks_;
  const TrainText& text_;
  LanguageModel& model_;
  Generator dropout_, rng_;  // one stream, but for groups
  std::unique_ptr<TextShare> share_;
  std::shared_ptr<distributed::WeightShards> weights_;  // null where this rank has all of them
  std::unique_ptr<distributed::GradientSum> sum_;       // of groups; null where a batch is computed as a whole
  AdamW optimizer_;
  std::vector<TrainBatch> validation_;
  std::vector<double> losses_, skipped_;
  std::vector<std::pair<std::int64_t, double>> validations_;
};

// A model that a run has kept beside those that it replaces, as attn train does with --keep-every.
struct KeptModel {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// Where the model of a step is kept: "NAME.step-500.safetensors" beside "NAME.safetensors"; for a folder in it.
std::filesystem::path kept_model(const std::filesystem::path& model, std::int64_t step);
// All that are there, in the order of their steps.
std::vector<KeptModel> kept_models(const std::filesystem::path& model);

// Tells when a run must end since its numbers are not finite.
class Divergence {
 public:
  enum class Then { stop, skip };  // what follows a step whose loss or gradient is not finite

  explicit Divergence(Then then = Then::stop) : then_(then) {}
  // To be called after each step: what was found, in words, if it ends the run. A validation loss that is not finite
  // always does, since the weights have changed, and so do kMost skipped steps in a row.
  std::optional<std::string> ends(const Trainer::Step& step);

  static constexpr int kMost = 10;  // by then it is not the batch

 private:
  Then then_;
  int in_a_row_ = 0;
};

}  // namespace attn
