#include <algorithm>
#include <limits>

#include "attn/error.hpp"
#include "attn/train.hpp"
#include "ops/input.hpp"
#include "train/config.hpp"

namespace attn {

TrainText::TrainText(std::span<const std::int64_t> ids, std::int64_t context, double validation) : context_(context) {
  const auto refuse = [](const char* expected, const std::string& found) {
    throw Error(Error::Kind::argument, "train", expected, found);
  };
  if (!(validation > 0 && validation < 1)) refuse("a validation share between 0 and 1", number(validation));
  if (context < 1) refuse("a context of at least 1 token", std::to_string(context));
  std::vector<std::int32_t> all;
  all.reserve(ids.size());
  for (const std::int64_t id : ids) {
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) refuse("ids from 0 to 2^31 - 1", std::to_string(id));
    all.push_back(static_cast<std::int32_t>(id));
  }
  ids_ = std::make_shared<const std::vector<std::int32_t>>(std::move(all));
  const auto count = static_cast<std::int64_t>(ids_->size());
  split_ = count - static_cast<std::int64_t>(validation * static_cast<double>(count));
  if (validation_tokens() <= context || training_tokens() <= context) {
    throw Error(Error::Kind::data, "train",
                "more than " + std::to_string(context) + " tokens to train on and to validate by",
                std::to_string(training_tokens()) + " and " + std::to_string(validation_tokens()),
                "give more text, or a shorter context");
  }
}

TrainBatch TrainText::at(const std::vector<std::int64_t>& starts) const {
  const auto batch = static_cast<std::int64_t>(starts.size());
  TrainBatch result{Tensor::empty({batch, context_}, DType::i64), Tensor::empty({batch, context_}, DType::i64)};
  auto* id = result.ids.data<std::int64_t>();
  auto* target = result.targets.data<std::int64_t>();
  for (const std::int64_t start : starts) {
    const auto first = ids_->begin() + static_cast<std::ptrdiff_t>(start);
    id = std::copy_n(first, context_, id);
    target = std::copy_n(first + 1, context_, target);
  }
  return result;
}

TrainBatch TrainText::training(Generator& rng, std::int64_t batch) const {
  require_positive("train", "a batch", batch);
  const Tensor starts = rng.randint(0, split_ - context_, {batch});
  return at({starts.data<std::int64_t>(), starts.data<std::int64_t>() + batch});
}

std::vector<TrainBatch> TrainText::validation(std::int64_t batch) const {
  require_positive("train", "a batch", batch);
  const std::int64_t room = validation_tokens() - context_ - 1;  // the last text's start
  const std::int64_t texts = std::min(kTexts, room / context_ + 1);
  std::vector<TrainBatch> batches;
  for (std::int64_t first = 0; first < texts; first += batch) {
    std::vector<std::int64_t> starts;
    for (std::int64_t i = first; i < std::min(texts, first + batch); ++i) {
      starts.push_back(split_ + (texts == 1 ? 0 : room * i / (texts - 1)));
    }
    batches.push_back(at(starts));
  }
  return batches;
}

std::int64_t TrainText::largest_id() const { return *std::ranges::max_element(*ids_); }

std::string TrainText::cut() const {
  return "texts of " + std::to_string(context_) + " tokens, and " + std::to_string(split_) + " tokens to train on";
}

// FNV-1a, 64 bits.
std::string TrainText::fingerprint() const {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::int32_t id : *ids_) hash = (hash ^ static_cast<std::uint32_t>(id)) * 1099511628211u;
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
  return text;
}

}  // namespace attn
