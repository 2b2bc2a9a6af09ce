#include "train/conclude.hpp"

#include <unistd.h>

#include <algorithm>

#include "attn/figure.hpp"
#include "attn/generate.hpp"
#include "common/format.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "report/utf8.hpp"

namespace attn::tool {
namespace {

// Lines of at most so many columns, where words are longer, as those of random bytes are.
std::string folded(std::string_view text, std::size_t columns) {
  std::string lines;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t size = std::max<std::size_t>(utf8_length(text), 1);
    column = text.front() == '\n' ? 0 : column + 1;
    if (column > columns) lines += '\n', column = 1;
    lines.append(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

}  // namespace

std::string sample_of(Training& training, const Tokenizer& tokenizer) {
  constexpr std::int64_t prompt = 16, most = 200;
  const Tensor ids = training.text.validation(1).front().ids;
  // Where positions are learned, generate() moves a full context on.
  const std::int64_t context = ids.size(1), begin = std::min(prompt, (context + 1) / 2);
  const std::int64_t room = training.model.config().learned_positions ? most : context - begin;
  const auto* first = ids.data<std::int64_t>();
  const std::vector<std::vector<std::int64_t>> prompts{{first, first + begin}};
  training.model.eval();
  const GenerateOptions options{.tokens = std::min(most, room), .sampling = {.temperature = 0.7, .top_k = 40}};
  if (options.tokens < 1) return {};
  std::vector<std::int64_t> written = generate(training.model, prompts, options, training.settings.seed).front().ids;
  // A model may have more tokens than its tokenizer.
  std::erase_if(written, [&](std::int64_t id) { return id >= tokenizer.vocab_size(); });
  const auto shown = [&](std::span<const std::int64_t> tokens) {
    Utf8Stream characters;  // a token may end within one
    const std::string text = characters.push(tokenizer.decode(tokens));
    return escaped(text + characters.finish(), "\n");
  };
  return formatted("sample, behind the beginning of the held-out part ({}):\n{}|{}\n", begin, shown(prompts.front()),
                   shown(written));
}

void conclude(const Training& training, const Progress& progress, const TrainingFiles& files, bool json,
              const std::string& sample) {
  const Trainer& run = training.trainer;
  const int to = json ? STDERR_FILENO : STDOUT_FILENO;
  const std::size_t width = terminal_width(to), columns = std::clamp<std::size_t>(width, 10, kColumns);
  std::string text = formatted("loss {}\n", figure::sparkline(run.losses(), columns - 5));
  if (!run.validations().empty()) {
    const auto [step, loss] = run.validations().back();
    text += formatted("validation loss {:.4f} nats a {} at step {}\n", loss, training.unit, step);
    const auto [best, lowest] = *lowest_validation(run);
    if (best < run.steps_done() && exists(files.best())) {
      text += formatted("the lowest, {:.4f}, was at step {}: {} has its weights\n", lowest, best,
                        escaped(files.best().string()));
    }
  }
  const bool has_config = files.model().filename() == "model.safetensors";
  text += formatted("step {} of {}, {}, {:.0f} tokens/s\nwrote {}{}, {}, {}\n", run.steps_done(), run.config().steps,
                    duration_text(progress.seconds()), progress.tokens_per_second(), escaped(files.model().string()),
                    has_config ? " with its config.json" : "", escaped(files.checkpoint().string()),
                    escaped(files.curve().string()));
  if (const std::vector<KeptModel> kept = kept_models(files.model()); !kept.empty()) {
    text += formatted("kept the models of {} steps, the last as {}\n", kept.size(), escaped(kept.back().path.string()));
  }
  if (!run.skipped().empty()) {
    text += formatted("skipped {} times, the last at step {}: loss or gradient not finite\n", run.skipped().size(),
                      static_cast<std::int64_t>(run.skipped().back()));
  }
  text += isatty(to) != 0 ? folded(fitted(sample, to), width) : sample;
  if (!run.done()) text += "continue with the same --text and --out, and --resume\n";
  json ? write_stderr(fitted(text, to)) : write_stdout(fitted(text, to));
}

}  // namespace attn::tool
