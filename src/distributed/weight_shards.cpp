#include "attn/weight_shards.hpp"

#include <algorithm>
#include <deque>
#include <string>

#include "attn/error.hpp"
#include "core/memory.hpp"
#include "core/rows.hpp"
#include "distributed/division.hpp"
#include "distributed/exchange.hpp"
#include "ops/weights.hpp"

namespace attn::distributed {
namespace {

constexpr const char* kOp = "WeightShards";
constexpr int kWeights = 7;  // a tag: gradients, which travel at the same time, have others

Division division_of(const std::vector<Parameter*>& parameters, int ranks) {
  return {{parameters.rbegin(), parameters.rend()}, ranks};  // in the order of gradients
}

void make_absent(const std::vector<Parameter*>& parameters) noexcept {
  for (Parameter* p : parameters) p->value = absent(p->value.shape());
}

}  // namespace

class WeightShards::State {
 public:
  // A part of the model: this rank's run of its elements, and all of them while they are here or on their way.
  struct Part {
    Division division;
    Tensor own, whole;
    bool here = false;
    std::vector<Request> under_way;  // last: they are given up before the memory that they read and write
  };

  State(Transport* transport, WeightParts parts) : transport_(transport), parts_(std::move(parts)) {
    for (const auto& parameters : parts_) {
      for (const Parameter* p : parameters) {
        require_present(*p);
        require_float32(kOp, p->name.c_str(), p->value);
      }
    }
    if (!divided()) return;
    for (const auto& parameters : parts_) divide(parameters);
    give_back_kept_memory();
  }

  bool divided() const { return transport_ && transport_->size() > 1; }
  const WeightParts& parts() const { return parts_; }
  const Part& at(std::size_t part) const { return all_.at(part); }
  std::size_t bytes() const;

  void begin(std::size_t part, std::optional<int> on = {});
  void take(std::size_t part);
  void release(std::size_t part) noexcept;
  void gather(std::optional<int> on);
  void divide() noexcept;

 private:
  void divide(const std::vector<Parameter*>& parameters);
  void require_in_step() const;
  Part& receive_first();
  void drop_first() { receive_first().whole = {}; }

  Transport* transport_;
  WeightParts parts_;
  std::vector<Part> all_;               // none where nothing is divided
  std::deque<std::size_t> on_the_way_;  // parts, in the order in which all ranks began them
  bool gathered_ = false;
  bool failed_ = false;  // a message, or room for it: this rank is out of step from then on
};

void WeightShards::State::divide(const std::vector<Parameter*>& parameters) {
  Part part{division_of(parameters, transport_->size()), {}, {}, false, {}};
  const Division& division = part.division;
  part.own = Tensor::empty({division.elements_of(transport_->rank()).length()});
  std::int64_t at = 0;
  for (const Parameter* p : division.parameters()) require_present(*p);  // in two parts
  for (const Piece& piece : division.pieces(transport_->rank())) {
    const Tensor from = division.parameters()[piece.parameter]->value.contiguous();
    part.own.slice(0, at, at + piece.count).copy_from(run_of(from.view({from.numel()}), piece));
    at += piece.count;
  }
  make_absent(part.division.parameters());
  all_.push_back(std::move(part));
}

std::size_t WeightShards::State::bytes() const {
  std::size_t sum = 0;
  for (const Part& part : all_) sum += static_cast<std::size_t>(part.own.numel()) * sizeof(float);
  if (divided()) return sum;
  for (const auto& parameters : parts_) {
    for (const Parameter* p : parameters) sum += static_cast<std::size_t>(p->value.numel()) * sizeof(float);
  }
  return sum;
}

void WeightShards::State::require_in_step() const {
  if (failed_) throw Error(Error::Kind::data, kOp, "ranks that are in step", "a call before this one that failed");
}

// Each rank's run goes straight to all others, or to `on` alone.
void WeightShards::State::begin(std::size_t number, std::optional<int> on) {
  if (!divided() || gathered_) return;
  Part& part = all_.at(number);
  require_in_step();
  if (part.whole.defined()) return;
  failed_ = true;  // until all is under way
  const int own = transport_->rank(), ranks = transport_->size();
  const bool receives = !on || *on == own;
  part.whole = receives ? Tensor::empty({part.division.elements()}) : part.own;
  for (int step = 1; step < ranks; ++step) {
    const int from = (own + ranks - step) % ranks, to = (own + step) % ranks;
    const Run theirs = part.division.elements_of(from);
    if (receives && !theirs.empty()) {
      const Tensor room = part.whole.slice(0, theirs.first, theirs.last);
      part.under_way.push_back(transport_->receive(from, room_of(room), kWeights));
    }
    if ((!on || *on == to) && part.own.numel() > 0) {
      part.under_way.push_back(transport_->send(to, bytes_of(part.own), kWeights));
    }
  }
  const Run mine = part.division.elements_of(own);
  if (receives) part.whole.slice(0, mine.first, mine.last).copy_from(part.own);
  on_the_way_.push_back(number);
  failed_ = false;
}

// A message that was begun and is not wanted after all has to arrive too, as they come in one order; take() drops it.
WeightShards::State::Part& WeightShards::State::receive_first() {
  require_in_step();
  Part& part = all_[on_the_way_.front()];
  failed_ = true;
  for (Request& request : part.under_way) request.wait();
  part.under_way.clear();
  on_the_way_.pop_front();
  failed_ = false;
  return part;
}

void WeightShards::State::take(std::size_t number) {
  if (!divided() || gathered_) return;
  Part& part = all_.at(number);
  if (part.here) return;
  begin(number);
  while (on_the_way_.front() != number) drop_first();
  receive_first();
  for (std::size_t i = 0; i < part.division.parameters().size(); ++i) {
    part.division.parameters()[i]->value = part.division.in_row(part.whole, i);
  }
  part.here = true;
}

void WeightShards::State::release(std::size_t number) noexcept {
  if (!divided() || gathered_ || number >= all_.size()) return;
  Part& part = all_[number];
  if (!part.here) return;
  make_absent(part.division.parameters());
  part.whole = {}, part.here = false;
}

void WeightShards::State::gather(std::optional<int> on) {
  if (!divided() || gathered_) return;
  if (on && (*on < 0 || *on >= transport_->size())) {
    throw Error(Error::Kind::argument, kOp, "a rank below " + std::to_string(transport_->size()), std::to_string(*on));
  }
  while (!on_the_way_.empty()) drop_first();
  const bool receives = !on || *on == transport_->rank();
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].here) continue;  // on all ranks alike
    begin(i, on);
    receives ? take(i) : drop_first();
  }
  gathered_ = true;
}

void WeightShards::State::divide() noexcept {
  if (!gathered_) return;
  gathered_ = false;
  for (std::size_t i = 0; i < all_.size(); ++i) release(i);
}

WeightShards::WeightShards(Transport* ranks, WeightParts parts)
    : state_(std::make_unique<State>(ranks, std::move(parts))) {}
WeightShards::~WeightShards() = default;

void WeightShards::begin(std::size_t part) { state_->begin(part); }
void WeightShards::take(std::size_t part) { state_->take(part); }
void WeightShards::release(std::size_t part) noexcept { state_->release(part); }
void WeightShards::gather(std::optional<int> on) { state_->gather(on); }
void WeightShards::divide() noexcept { state_->divide(); }
const WeightParts& WeightShards::parts() const noexcept { return state_->parts(); }
bool WeightShards::divided() const noexcept { return state_->divided(); }
const Tensor& WeightShards::own(std::size_t part) const { return state_->at(part).own; }
std::size_t WeightShards::bytes() const noexcept { return state_->bytes(); }

}  // namespace attn::distributed
