#include "train/text.hpp"

#include "attn/error.hpp"
#include "common/format.hpp"
#include "io/file.hpp"

namespace attn::tool {

Text::Text(const std::vector<std::string>& files, const Tokenizer& tokenizer, double validation, std::int64_t context)
    : context_(context) {
  if (!(validation > 0 && validation < 1)) {
    throw Error(Error::Kind::argument, "--validation", "a part between 0 and 1", std::to_string(validation));
  }
  for (const std::string& file : files) {
    const io::Buffer content = io::read_file(file, "--text");
    bytes_ += content.bytes().size();
    const auto ids = tokenizer.encode({reinterpret_cast<const char*>(content.bytes().data()), content.bytes().size()});
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  const auto count = static_cast<std::int64_t>(ids_.size());
  split_ = count - static_cast<std::int64_t>(validation * static_cast<double>(count));
  if (validation_tokens() <= context || training_tokens() <= context) {
    throw Error(Error::Kind::data, "--text", formatted("more than {} tokens to train on and to validate by", context),
                formatted("{} and {}", training_tokens(), validation_tokens()), "more text, or a smaller --context");
  }
}

Batch Text::at(const std::vector<std::int64_t>& starts) const {
  const auto batch = static_cast<std::int64_t>(starts.size());
  Batch result{Tensor::empty({batch, context_}, DType::i64), Tensor::empty({batch, context_}, DType::i64)};
  auto* id = result.ids.data<std::int64_t>();
  auto* target = result.targets.data<std::int64_t>();
  for (const std::int64_t start : starts) {
    for (std::int64_t i = 0; i < context_; ++i) {
      *id++ = ids_[static_cast<std::size_t>(start + i)];
      *target++ = ids_[static_cast<std::size_t>(start + i + 1)];
    }
  }
  return result;
}

Batch Text::training(Generator& rng, std::int64_t batch) const {
  const Tensor starts = rng.randint(0, split_ - context_, {batch});
  return at({starts.data<std::int64_t>(), starts.data<std::int64_t>() + batch});
}

std::vector<Batch> Text::validation(std::int64_t batch) const {
  const std::int64_t room = validation_tokens() - context_ - 1;  // the last text's start
  const std::int64_t texts = std::min(kTexts, room / context_ + 1);
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < texts; first += batch) {
    std::vector<std::int64_t> starts;
    for (std::int64_t i = first; i < std::min(texts, first + batch); ++i) {
      starts.push_back(split_ + (texts == 1 ? 0 : room * i / (texts - 1)));
    }
    batches.push_back(at(starts));
  }
  return batches;
}

// FNV-1a, 64 bits.
std::string Text::fingerprint() const {
  std::uint64_t hash = 14695981039346656037u;
  for (const std::int32_t id : ids_) hash = (hash ^ static_cast<std::uint32_t>(id)) * 1099511628211u;
  return formatted("{:016x}", hash);
}

}  // namespace attn::tool
