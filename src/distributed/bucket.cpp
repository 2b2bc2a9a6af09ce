#include "distributed/bucket.hpp"

#include "attn/error.hpp"
#include "core/rows.hpp"
#include "distributed/exchange.hpp"

namespace attn::distributed {
namespace {

constexpr int kParts = 8, kShares = 9;  // tags: attention's own messages have others

void add(const Tensor& to, const Tensor& from) {
  auto* sum = to.data<float>();
  const auto* more = from.data<float>();
  for_runs(to.numel(), 1, [=](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) sum[i] += more[i];
  });
}

void add_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
  for (std::size_t i = 0; i < to.size(); ++i) add(to[i], from[i]);
}

// The gradients one after the other; a single one is such a row.
Tensor in_a_row(const std::vector<Tensor>& gradients, std::int64_t elements) {
  if (gradients.size() == 1) return gradients[0].view({elements});
  const Tensor row = Tensor::empty({elements});
  auto* to = row.data<float>();
  for (const Tensor& g : gradients) {
    const auto* from = g.data<float>();
    for_runs(g.numel(), 1,
             [=](std::int64_t first, std::int64_t count) { std::copy_n(from + first, count, to + first); });
    to += g.numel();
  }
  return row;
}

Tensor gradient_of(Parameter& p) {
  if (!p.grad.defined()) return Tensor::zeros(p.value.shape());
  if (!(p.grad.shape() == p.value.shape()) || p.grad.dtype() != DType::f32) {
    throw Error(Error::Kind::shape, "GradientSum",
                "a float32 gradient of the shape of " + p.name + ", " + p.value.shape().str(), p.grad.shape().str());
  }
  return std::exchange(p.grad, {}).contiguous();
}

void wait_for(std::vector<Request>& requests) {
  for (Request& request : requests) request.wait();
  requests.clear();
}

}  // namespace

Run Ranks::groups_of(int rank) const {
  const std::int64_t data = size() / sequence, each = groups / data, first = rank / sequence * each;
  return {first, first + each};
}

Bucket::Bucket(std::vector<Parameter*> parameters, const Ranks& ranks)
    : division_(std::move(parameters), ranks.size()), ranks_(ranks), own_(ranks.groups) {}

void Bucket::take(std::int64_t group) {
  std::vector<Tensor> gradients;
  for (Parameter* p : parameters()) gradients.push_back(gradient_of(*p));
  own_.push({group, group + 1}, std::move(gradients), add_all);
}

// Each rank's elements of each node go to that rank.
void Bucket::send() {
  for (auto& [run, gradients] : own_.nodes()) sent_.emplace_back(run, in_a_row(gradients, division_.elements()));
  own_.nodes().clear();
  const Run own = division_.elements_of(ranks_.own());
  received_.resize(at(ranks_.size()));
  for (int step = 1; step < ranks_.size(); ++step) {
    const int from = (ranks_.own() + ranks_.size() - step) % ranks_.size(), to = (ranks_.own() + step) % ranks_.size();
    for (const Run& run : nodes_of(ranks_.groups_of(from), ranks_.groups)) {
      const Tensor& part = received_[at(from)].emplace_back(run, Tensor::empty({own.length()})).second;
      if (!own.empty()) arriving_.push_back(ranks_.transport->receive(from, room_of(part), kParts));
    }
    const Run theirs = division_.elements_of(to);
    for (const auto& [run, row] : sent_) {
      if (theirs.empty()) continue;
      leaving_.push_back(ranks_.transport->send(to, bytes_of(row.slice(0, theirs.first, theirs.last)), kParts));
    }
  }
  for (const auto& [run, row] : sent_) received_[at(ranks_.own())].emplace_back(run, row.slice(0, own.first, own.last));
}

void Bucket::receive() {
  if (!ranks_.transport) {
    const std::vector<Tensor>& sums = own_.nodes().front().second;
    for (std::size_t i = 0; i < sums.size(); ++i) parameters()[i]->grad = sums[i];
    own_.nodes().clear();
    return;
  }
  wait_for(arriving_);
  share_ = sum_of_parts();
  wait_for(leaving_);
  received_.clear(), sent_.clear();
}

// It sums each part of the sequences by the tree, and then these parts in their order.
Tensor Bucket::sum_of_parts() {
  Tensor sum;
  for (int part = 0; part < ranks_.sequence; ++part) {
    TreeSum<Tensor> tree(ranks_.groups);
    for (int rank = part; rank < ranks_.size(); rank += ranks_.sequence) {
      for (auto& [run, row] : received_[at(rank)]) tree.push(run, row, add);
    }
    const Tensor& root = tree.nodes().front().second;
    part == 0 ? void(sum = root) : add(sum, root);
  }
  return sum.clone();  // own rows hold all elements
}

void Bucket::send_share() {
  whole_ = Tensor::empty({division_.elements()});
  for (int step = 1; step < ranks_.size(); ++step) {
    const int from = (ranks_.own() + ranks_.size() - step) % ranks_.size(), to = (ranks_.own() + step) % ranks_.size();
    const Run theirs = division_.elements_of(from);
    if (!theirs.empty()) {
      arriving_.push_back(
          ranks_.transport->receive(from, room_of(whole_.slice(0, theirs.first, theirs.last)), kShares));
    }
    if (share_.numel() > 0) leaving_.push_back(ranks_.transport->send(to, bytes_of(share_), kShares));
  }
  const Run own = division_.elements_of(ranks_.own());
  whole_.slice(0, own.first, own.last).copy_from(share_);
}

void Bucket::receive_whole() {
  wait_for(arriving_), wait_for(leaving_);
  for (std::size_t i = 0; i < parameters().size(); ++i) parameters()[i]->grad = division_.in_row(whole_, i);
  share_ = whole_ = {};
}

}  // namespace attn::distributed
