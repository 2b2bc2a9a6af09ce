// attn embed: vectors of sentences by an encoder, and how near they are to each other.
#include <cmath>
#include <nlohmann/json.hpp>

#include "attn/encoder.hpp"
#include "attn/error.hpp"
#include "attn/tokenizer.hpp"
#include "common/format.hpp"
#include "common/json.hpp"
#include "common/table.hpp"
#include "common/terminal.hpp"
#include "core/escape.hpp"
#include "io/file.hpp"
#include "report/figure/text.hpp"
#include "verbs.hpp"

namespace attn::tool {
namespace {

struct EmbedFlags {
  std::string model, tokenizer, pooling, lines;
  std::vector<std::string> texts;
  bool plain = false, json = false;
};

constexpr const char* kEmbedNotes =
    "MODEL is a Hugging Face folder of the family bert, such as sentence-transformers/all-MiniLM-L6-v2, or a GGUF file "
    "of the architecture bert. How hidden states become a vector is what the folder's files of sentence-transformers "
    "say: the mean of all tokens', or the first's, whether the vector is divided by its length, and after how many "
    "tokens a text is cut, which standard error tells. Without such files it is the mean, and a text that is too long "
    "is an error. A GGUF file says which token's it is, and its vectors are divided by their length. A text has the "
    "same vector whatever texts are beside it. The table shows cosines: 1 for the same direction.\n\n"
    "The exit code is 0 when all is done, 2 for wrong usage, and 3 for bad data or files.";

constexpr const char* kEmbedExamples =
    "attn embed --model minilm/ 'A cat sits.' 'A kitten rests.' 'Stocks fell.'\n"
    "attn embed --model minilm/ --lines sentences.txt --json\n"
    "attn embed --model minilm/ --pooling first --raw 'A cat sits.'";

std::vector<std::string> texts_of(const EmbedFlags& flags) {
  if (flags.lines.empty()) return flags.texts;
  const io::Buffer buffer = io::read_file(flags.lines, "--lines");
  std::vector<std::string> texts = lines_of(io::as_text(buffer.bytes()));
  for (std::string& text : texts) {
    if (text.ends_with('\r')) text.pop_back();
  }
  return texts;
}

// Takes rows whose numbers follow each other, as it is called for each pair of texts.
double cosine(const Tensor& a, const Tensor& b) {
  double product = 0, of_a = 0, of_b = 0;
  const float *one = a.data<float>(), *other = b.data<float>();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double x = one[i], y = other[i];
    product += x * y, of_a += x * x, of_b += y * y;
  }
  return of_a == 0 || of_b == 0 ? 0 : product / std::sqrt(of_a * of_b);
}

Json json_of(const std::vector<std::string>& texts, const std::vector<std::vector<std::int64_t>>& ids,
             const Tensor& vectors) {
  Json json;
  json["width"] = vectors.size(1);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Tensor row = vectors.select(0, static_cast<std::int64_t>(i));
    Json vector = Json::array(), cosines = Json::array();
    for (std::int64_t j = 0; j < row.numel(); ++j) vector.push_back(row.data<float>()[j]);
    for (std::int64_t j = 0; j < vectors.size(0); ++j) cosines.push_back(cosine(row, vectors.select(0, j)));
    json["texts"].push_back({{"text", texts[i]}, {"ids", ids[i]}, {"vector", vector}, {"cosines", cosines}});
  }
  return json;
}

// The cosines of all pairs, as many columns beside each other as fit.
std::string cosines_text(const Tensor& vectors) {
  constexpr std::int64_t cosine_columns = 9;
  const std::int64_t count = vectors.size(0), room = static_cast<std::int64_t>(text_columns()),
                     labels = std::ssize(std::to_string(count)),
                     most = std::max<std::int64_t>(1, (room - labels) / cosine_columns);
  std::string all;
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t last = std::min(first + most, count);
    Table table{{""}};
    for (std::int64_t j = first; j < last; ++j) table.front().push_back(std::to_string(j + 1));
    for (std::int64_t i = 0; i < count; ++i) {
      table.push_back({std::to_string(i + 1)});
      for (std::int64_t j = first; j < last; ++j) {
        table.back().push_back(formatted("{:7.4f}", cosine(vectors.select(0, i), vectors.select(0, j))));
      }
    }
    all += first == 0 ? "\ncosines\n" : "\n";
    for (const std::string& line : table_lines(table, std::string(table.front().size(), '>'))) all += line + "\n";
  }
  return all;
}

// A few numbers of each vector, then the cosines.
std::string text_of(const std::vector<std::string>& texts, const Tensor& vectors) {
  constexpr std::int64_t shown = 4;
  constexpr std::size_t widest = 34;
  Table table{{"text", "", ""}};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string numbers;
    for (std::int64_t j = 0; j < std::min(shown, vectors.size(1)); ++j) {
      numbers += formatted("{:8.4f}", vectors.at({static_cast<std::int64_t>(i), j}));
    }
    table.push_back({formatted("{}", i + 1), figure::shortened(escaped(texts[i]), widest),
                     numbers + (vectors.size(1) > shown ? " …" : "")});
  }
  table.front() = {"", "text", formatted("vector of {} numbers", vectors.size(1))};
  std::string all;
  for (const std::string& line : table_lines(table, "><<")) all += line + "\n";
  return texts.size() < 2 ? all : all + cosines_text(vectors);
}

void embed(const EmbedFlags& flags) {
  const std::vector<std::string> texts = texts_of(flags);
  if (texts.empty()) refuse("TEXT", "at least one text, or --lines with one", "none");
  Encoder encoder = load_encoder(flags.model);
  const BPETokenizer tokenizer = BPETokenizer::load(flags.tokenizer.empty() ? flags.model : flags.tokenizer);
  if (tokenizer.vocab_size() > encoder.config().model.vocab_size) {
    throw Error(Error::Kind::data, "--tokenizer",
                formatted("at most the {} tokens of the model", encoder.config().model.vocab_size),
                std::to_string(tokenizer.vocab_size()));
  }
  EmbeddingSettings settings = embedding_settings(flags.model);
  if (!flags.pooling.empty()) settings.pooling = flags.pooling == "mean" ? Pooling::mean : Pooling::first;
  if (flags.plain) settings.normalised = false;
  const std::int64_t most = encoder.config().model.context_length;
  std::vector<std::vector<std::int64_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back(tokenizer.encode(text));
    const std::int64_t tokens = std::ssize(ids.back());
    if (tokens == 0) {
      const std::string which = flags.lines.empty() ? "text" : "line";
      throw Error(Error::Kind::data, flags.lines.empty() ? "TEXT" : "--lines", "texts of at least one token",
                  formatted("none in {} {}, '{}'", which, ids.size(), escaped(texts[ids.size() - 1])), "leave it out");
    }
    if (tokens <= std::min(most, settings.longest)) continue;
    if (settings.longest == kNoLongest) {
      throw Error(Error::Kind::data, "TEXT", formatted("texts of at most {} tokens", most),
                  formatted("{} in text {}", tokens, ids.size()), "shorten it, or cut it in several");
    }
    ids.back() = tokenizer.encode(text, {.most = static_cast<std::size_t>(std::min(most, settings.longest))});
    write_stderr(formatted("attn embed: text {} has {} tokens and is cut to {} of them, as the model's files say\n",
                           ids.size(), tokens, ids.back().size()));
  }
  const Tensor vectors = encoder.embed(ids, settings.pooling, settings.normalised);
  flags.json ? write_stdout(dump(json_of(texts, ids, vectors))) : write_stdout(text_of(texts, vectors));
}

}  // namespace

void define_embed(Verb& verb, int&) {
  const auto flags = std::make_shared<EmbedFlags>();
  const Option& texts = verb.add_option("TEXT", flags->texts, "The texts.").default_is("--lines");
  verb.add_option("--model MODEL", flags->model, "The folder of an encoder, or its GGUF file.").required();
  verb.add_option("--lines FILE", flags->lines, "Take the lines of a file, each a text; - is standard input.")
      .default_is("TEXT")
      .not_beside(texts);
  verb.add_option("--pooling NAME", flags->pooling, "What becomes the vector: the mean of all tokens', or the first's.")
      .one_of({"mean", "first"})
      .default_is("what the model's files say");
  verb.add_flag("--raw", flags->plain, "Do not divide the vector by its length, whatever the files say.");
  verb.add_option("--tokenizer FOLDER", flags->tokenizer, "A folder with a tokenizer.json.")
      .default_is("the model's own");
  verb.add_flag("--json", flags->json, "Print one JSON object, with all numbers, the ids and the cosines.");
  verb.notes(kEmbedNotes);
  verb.examples(kEmbedExamples);
  verb.callback([flags] { embed(*flags); });
}

}  // namespace attn::tool
