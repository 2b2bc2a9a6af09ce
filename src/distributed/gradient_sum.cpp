#include "attn/gradient_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>

#include "attn/error.hpp"
#include "attn/weight_shards.hpp"
#include "core/rows.hpp"
#include "distributed/bucket.hpp"
#include "distributed/exchange.hpp"
#include "kernels/targets.hpp"

namespace attn::distributed {
namespace {

constexpr const char* kOp = "GradientSum";
constexpr int kValues = 8;            // the tag of whole tensors
constexpr std::size_t kUnderWay = 2;  // buckets whose memory is kept, where weights are divided

Ranks checked(Transport* transport, const GradientSumOptions& options) {
  const Ranks ranks{transport && transport->size() > 1 ? transport : nullptr, options.groups, options.sequence_ranks};
  const int sequence = options.sequence_ranks;
  if (sequence < 1 || ranks.size() % sequence != 0) {
    throw Error(Error::Kind::argument, kOp, "sequence_ranks that divide " + std::to_string(ranks.size()) + " ranks",
                std::to_string(sequence));
  }
  const std::int64_t data = ranks.size() / sequence;
  if (options.groups < 1 || options.groups % data != 0) {
    throw Error(Error::Kind::argument, kOp, "groups that " + std::to_string(data) + " data-parallel ranks share evenly",
                std::to_string(options.groups));
  }
  return ranks;
}

// Null where nothing is divided. Throws Error (argument) for weights of other parameters.
const WeightShards* checked(const WeightShards* weights, const std::vector<Parameter*>& all) {
  if (!weights) return nullptr;
  std::vector<Parameter*> theirs;
  for (const auto& part : weights->parts()) theirs.insert(theirs.end(), part.begin(), part.end());
  if (theirs != all) {
    throw Error(Error::Kind::argument, kOp, "the parameters of the divided weights, in their order",
                std::to_string(all.size()) + " others");
  }
  return weights->divided() ? weights : nullptr;
}

}  // namespace

class GradientSum::State {
 public:
  State(Transport* transport, std::vector<Parameter*> parameters, const GradientSumOptions& options)
      : ranks_(checked(transport, options)),
        all_(std::move(parameters)),
        weights_(checked(options.weights, all_)),
        sharded_((options.sharded || weights_) && ranks_.transport) {
    for (const Parameter* p : all_) {
      if (!p->requires_grad) throw Error(Error::Kind::argument, kOp, "parameters that require a gradient", p->name);
    }
    weights_ ? make_buckets_of_parts() : make_buckets(options.bucket);
    if (!sharded_) {
      own_ = all_;
      return;
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const Piece& piece : buckets_[b].division().pieces(ranks_.own())) {
        const Parameter& whole = *buckets_[b].parameters()[piece.parameter];
        shards_.push_back({b, piece, std::make_unique<Parameter>()});
        shards_.back().parameter->name = whole.name + "[" + std::to_string(piece.first) + "]";
        shards_.back().parameter->value = value_of(b, piece);
        own_.push_back(shards_.back().parameter.get());
      }
    }
  }

  const Ranks& ranks() const { return ranks_; }
  const std::vector<Parameter*>& own() const { return own_; }
  void take(std::span<Parameter* const> ready);
  void finish();
  void share_values();
  double norm() const;
  std::vector<Tensor> gathered(const std::vector<Tensor>& own) const;
  std::vector<Tensor> own_parts(const std::vector<Tensor>& whole) const;

 private:
  struct Shard {
    std::size_t bucket = 0;
    Piece piece;
    std::unique_ptr<Parameter> parameter;
  };

  void make_buckets(std::int64_t least);
  void make_buckets_of_parts();
  void add_bucket(std::vector<Parameter*> parameters);
  // This rank's piece of a bucket: a view of the parameter, or of the divided weights.
  Tensor value_of(std::size_t bucket, const Piece& piece) const;
  void receive_until(std::size_t under_way);
  double sum_of_squares(const Bucket& bucket, const Piece& piece) const;
  // Visits the pieces of a rank's shards, in their order.
  template <class F>
  void each_piece(int rank, F&& f) const {
    for (const Bucket& bucket : buckets_) {
      for (const Piece& piece : bucket.division().pieces(rank)) f(bucket, piece);
    }
  }

  Ranks ranks_;
  std::vector<Parameter*> all_, own_;
  const WeightShards* weights_;  // null where all ranks have all of them
  bool sharded_;
  std::vector<Bucket> buckets_;
  std::vector<Shard> shards_;
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  std::vector<std::size_t> ready_;       // parameters of each bucket
  std::size_t taken_ = 0;                // parameters of this group
  std::size_t sent_ = 0, received_ = 0;  // buckets of this step
  std::int64_t groups_taken_ = 0;
};

// The last parameters come first: that is how a backward pass finishes them.
void GradientSum::State::make_buckets(std::int64_t least) {
  std::vector<Parameter*> some;
  std::int64_t elements = 0;
  for (std::size_t i = all_.size(); i-- > 0;) {
    require_float32(kOp, all_[i]->name.c_str(), all_[i]->value);
    some.push_back(all_[i]), elements += all_[i]->value.numel();
    if (elements < least && i > 0) continue;
    add_bucket(std::move(some));
    some.clear(), elements = 0;
  }
}

void GradientSum::State::make_buckets_of_parts() {
  const WeightParts& parts = weights_->parts();
  for (std::size_t i = parts.size(); i-- > 0;) {
    add_bucket({parts[i].rbegin(), parts[i].rend()});
    if (weights_->own(i).numel() != buckets_.back().division().elements_of(ranks_.own()).length()) {
      throw Error(Error::Kind::argument, kOp, "the ranks of the divided weights", "others");
    }
  }
}

void GradientSum::State::add_bucket(std::vector<Parameter*> parameters) {
  for (const Parameter* p : parameters) bucket_of_[p] = buckets_.size();
  buckets_.emplace_back(std::move(parameters), ranks_);
  ready_.push_back(0);
}

Tensor GradientSum::State::value_of(std::size_t bucket, const Piece& piece) const {
  const Tensor& whole = buckets_[bucket].parameters()[piece.parameter]->value;
  if (!weights_) return run_of(whole, piece);
  const std::int64_t first = buckets_[bucket].in_share(piece);
  return as_parameter(weights_->own(buckets_.size() - 1 - bucket).slice(0, first, first + piece.count), whole.rank());
}

// Adds up buckets that were sent, the first ones first, until so many are left.
void GradientSum::State::receive_until(std::size_t under_way) {
  for (; received_ + under_way < sent_; ++received_) {
    buckets_[received_].receive();
    if (ranks_.transport && !sharded_) buckets_[received_].send_share();
  }
}

void GradientSum::State::take(std::span<Parameter* const> ready) {
  const std::int64_t group = ranks_.groups_of(ranks_.own()).first + groups_taken_;
  for (const Parameter* p : ready) {
    const std::size_t b = bucket_of_.at(p);
    if (++ready_[b] == buckets_[b].parameters().size()) buckets_[b].take(group);
  }
  if (ranks_.transport && groups_taken_ + 1 == ranks_.groups_of(ranks_.own()).length()) {
    while (sent_ < buckets_.size() && ready_[sent_] == buckets_[sent_].parameters().size()) buckets_[sent_++].send();
    if (weights_) receive_until(kUnderWay);  // their memory is free then
    ranks_.transport->progress();
  }
  if ((taken_ += ready.size()) < all_.size()) return;
  taken_ = 0, ++groups_taken_;
  std::ranges::fill(ready_, 0);
}

void GradientSum::State::finish() {
  const Run own = ranks_.groups_of(ranks_.own());
  if (groups_taken_ != own.length() || taken_ != 0) {
    throw Error(Error::Kind::argument, kOp, "all gradients of " + std::to_string(own.length()) + " groups",
                std::to_string(groups_taken_) + " groups and " + std::to_string(taken_) + " gradients");
  }
  groups_taken_ = 0, sent_ = buckets_.size();
  receive_until(0);
  sent_ = received_ = 0;
  if (!sharded_) {
    for (Bucket& bucket : buckets_) {
      if (ranks_.transport) bucket.receive_whole();
    }
    return;
  }
  for (const Shard& shard : shards_) {
    const Bucket& bucket = buckets_[shard.bucket];
    Parameter& p = *shard.parameter;
    p.value = value_of(shard.bucket, shard.piece);  // a state dict may replace it
    const std::int64_t first = bucket.in_share(shard.piece);
    p.grad = bucket.share().slice(0, first, first + shard.piece.count).view(p.value.shape());
  }
}

void GradientSum::State::share_values() {
  if (!sharded_ || weights_) return;
  std::vector<Request> under_way;
  for (int step = 1; step < ranks_.size(); ++step) {
    const int from = (ranks_.own() + ranks_.size() - step) % ranks_.size(), to = (ranks_.own() + step) % ranks_.size();
    each_piece(from, [&](const Bucket& bucket, const Piece& piece) {
      const Tensor run = run_of(bucket.parameters()[piece.parameter]->value, piece);
      under_way.push_back(ranks_.transport->receive(from, room_of(run), kValues));
    });
    for (const Shard& shard : shards_) {
      under_way.push_back(ranks_.transport->send(to, bytes_of(shard.parameter->value), kValues));
    }
  }
  for (Request& request : under_way) request.wait();
}

double GradientSum::State::sum_of_squares(const Bucket& bucket, const Piece& piece) const {
  const float* gradient = nullptr;
  if (sharded_) {
    gradient = bucket.share().data<float>() + bucket.in_share(piece);
  } else {
    gradient = bucket.parameters()[piece.parameter]->grad.data<float>() + piece.first;
  }
  return kernels::active().model->sum_of_squares(piece.count, gradient);
}

// A unit's sum is one rank's, and the sums are added in their order.
double GradientSum::State::norm() const {
  double all = 0;
  for (const Bucket& bucket : buckets_) {
    std::vector<double> sums;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      if (sharded_ && rank != ranks_.own()) continue;
      const std::vector<Piece> units = bucket.division().pieces(rank, Division::kUnit);
      const std::size_t before = sums.size();
      sums.resize(before + units.size());
      for_runs(
          static_cast<std::int64_t>(units.size()), 2.0 * Division::kUnit,
          [&](std::int64_t first, std::int64_t count) {
            for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(first + count); ++i) {
              sums[before + i] = sum_of_squares(bucket, units[i]);
            }
          },
          16);
    }
    for (const double sum : all_gather(sharded_ ? ranks_.transport : nullptr, sums)) all += sum;
  }
  return std::sqrt(all);
}

std::vector<Tensor> GradientSum::State::gathered(const std::vector<Tensor>& own) const {
  if (!sharded_) return own;
  std::vector<Request> under_way;
  if (ranks_.own() != 0) {
    for (const Tensor& t : own) under_way.push_back(ranks_.transport->send(0, bytes_of(t), kValues));
    for (Request& request : under_way) request.wait();
    return {};
  }
  std::unordered_map<const Parameter*, Tensor> whole;
  for (const Parameter* p : all_) whole[p] = Tensor::empty(p->value.shape());
  std::size_t next = 0;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    each_piece(rank, [&](const Bucket& bucket, const Piece& piece) {
      const Tensor run = run_of(whole[bucket.parameters()[piece.parameter]], piece);
      if (rank == 0) return run.copy_from(own.at(next++));
      under_way.push_back(ranks_.transport->receive(rank, room_of(run), kValues));
    });
  }
  for (Request& request : under_way) request.wait();
  std::vector<Tensor> in_order;
  for (const Parameter* p : all_) in_order.push_back(whole[p]);
  return in_order;
}

std::vector<Tensor> GradientSum::State::own_parts(const std::vector<Tensor>& whole) const {
  if (!sharded_) return whole;
  std::unordered_map<const Parameter*, Tensor> of;
  for (std::size_t i = 0; i < all_.size(); ++i) of[all_[i]] = whole.at(i).contiguous();
  std::vector<Tensor> parts;
  each_piece(ranks_.own(), [&](const Bucket& bucket, const Piece& piece) {
    parts.push_back(run_of(of[bucket.parameters()[piece.parameter]], piece).clone());
  });
  return parts;
}

GradientSum::GradientSum(Transport* ranks, std::vector<Parameter*> parameters, const GradientSumOptions& options)
    : state_(std::make_unique<State>(ranks, std::move(parameters), options)) {}
GradientSum::~GradientSum() = default;

std::int64_t GradientSum::groups() const noexcept { return state_->ranks().groups; }
Run GradientSum::own_groups() const noexcept { return state_->ranks().groups_of(state_->ranks().own()); }
void GradientSum::take(std::span<Parameter* const> ready) { state_->take(ready); }
void GradientSum::finish() { state_->finish(); }
const std::vector<Parameter*>& GradientSum::own() const noexcept { return state_->own(); }
void GradientSum::share_values() { state_->share_values(); }
double GradientSum::norm() const { return state_->norm(); }
std::vector<Tensor> GradientSum::gathered(const std::vector<Tensor>& own) const { return state_->gathered(own); }
std::vector<Tensor> GradientSum::own_parts(const std::vector<Tensor>& whole) const { return state_->own_parts(whole); }

std::vector<double> all_gather(Transport* ranks, std::span<const double> own) {
  if (!ranks) return {own.begin(), own.end()};
  const std::string text(reinterpret_cast<const char*>(own.data()), own.size_bytes());
  std::vector<double> all;
  for (const std::string& part : ranks->all_gather(text)) {
    const std::size_t before = all.size();
    all.resize(before + part.size() / sizeof(double));
    if (!part.empty()) std::memcpy(all.data() + before, part.data(), part.size());
  }
  return all;
}

}  // namespace attn::distributed
