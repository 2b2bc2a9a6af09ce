#include "train/settings.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "attn/error.hpp"
#include "attn/pretrained.hpp"
#include "core/escape.hpp"

namespace attn::tool {
namespace {

constexpr const char* kGroup = "What is trained, and how (a resumed run has them already)";

// Visits every setting by the name of its flag: the one list of them.
template <class Settings, class F>
void each_setting(Settings& s, F&& f) {
  f("--layers", s.model.layers, "The number of blocks.");
  f("--heads", s.model.heads, "The number of attention heads in a block.");
  f("--width", s.model.width, "The width of the residual stream, a multiple of --heads.");
  f("--context", s.model.context_length, "The number of tokens that the model sees.");
  f("--dropout", s.model.dropout, "The probability of dropout, from 0 to 1.");
  f("--steps", s.train.steps, "The number of optimizer steps.");
  f("--batch", s.train.batch, "The number of texts in a step, each of --context tokens.");
  f("--lr", s.train.lr, "The highest learning rate.");
  f("--min-lr", s.train.min_lr,
    "What the learning rate falls to after --warmup, along half a cosine that ends one step after the last, as "
    "PyTorch's CosineAnnealingLR.");
  f("--warmup", s.train.warmup, "The number of steps over which the learning rate rises.");
  f("--weight-decay", s.train.optimizer.weight_decay, "The weight decay of matrices.");
  f("--beta2", s.train.optimizer.beta2, "The decay of AdamW's mean of squares, from 0 to below 1.");
  f("--clip", s.train.clip, "The largest norm that the gradient is clipped to; 0 clips nothing.");
  f("--validation", s.validation, "The share of the text, its end, that is validated on and not trained on.");
  f("--eval-every", s.train.eval_every, "The number of steps between validations.");
  f("--seed", s.seed,
    "The seed of initial values, batches and dropout, as torch.manual_seed takes it: its low 32 bits count.");
  f("--rng", s.rng, "How dropout is drawn: philox, native or mkl.");
}

template <class T>
void read(const Json& json, T& value) {
  // Throws for 1e300, which is no number of layers, and whose conversion would be undefined.
  if constexpr (std::is_integral_v<T>) static_cast<void>(json.get_ref<const Json::number_integer_t&>());
  json.get_to(value);
}

}  // namespace

void add_train_settings(Verb& verb, TrainSettings& settings, std::string& precision, std::string& gelu) {
  verb.group(kGroup);
  each_setting(settings, [&](const char* flag, auto& value, const char* what) {
    verb.add_option(
        std::string(flag) + (std::is_arithmetic_v<std::remove_reference_t<decltype(value)>> ? " N" : " NAME"), value,
        what);
  });
  verb.find("--min-lr")->default_is("a tenth of --lr");
  verb.find("--warmup")->default_is("100, or a tenth of --steps where that is less");
  verb.find("--rng")->one_of({"philox", "native", "mkl"});
  verb.find("--dropout")->between(0, 1);
  verb.add_option("--family NAME", settings.family,
                  "The family of the new model: gpt2, or one of those that attn generate reads, with that family's "
                  "defaults.")
      .one_of(language_model_families());
  verb.add_option("--kv-heads N", settings.kv_heads,
                  "The number of key heads, each of which some query heads share. GPT-2 shares none.")
      .default_is("as many as --heads");
  verb.add_option(
      "--mixer LIST", settings.mixer,
      "What mixes the tokens of GPT-2's layers, from the first on and then again: softmax attention, or a "
      "gated delta rule, whose state does not grow with the text. gated-delta:3,softmax:1 is three to one.");
  verb.add_option("--config FILE", settings.config, "A config.json, which says all of what the new model is.")
      .default_is("--family and its sizes");
  verb.add_option("--gelu FORM", gelu, "The form of GELU: tanh, as in GPT-2, or exact.").one_of({"tanh", "exact"});
  verb.add_option(
          "--precision NAME", precision,
          "The precision of products: highest, high (three products of bfloat16, on AMX) or medium (one, on AMX "
          "and AVX-512 BF16). Other processors compute as highest.")
      .one_of({"highest", "high", "medium"});
  verb.add_flag("--reproducible", settings.train.reproducible,
                "Give the same bits on any number of data-parallel ranks that divides --batch: each text's gradient is "
                "computed by itself, and they are added in a fixed order. It is slower.");
}

std::vector<std::string> given_settings(const Verb& verb) { return verb.given_of(kGroup); }

std::vector<Mixer> parse_mixers(const std::string& text, std::optional<std::int64_t> layers) {
  constexpr std::size_t most = 1 << 16;
  std::vector<Mixer> all;
  const auto wrong = [&] {
    refuse("--mixer", "softmax and gated-delta with counts, as gated-delta:3,softmax:1", text);
  };
  for (const std::string& part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const auto count = colon == std::string::npos ? 1 : number_in<std::size_t>(part.substr(colon + 1)).value_or(0);
    if (count == 0 || count > most - all.size() || (name != "softmax" && name != "gated-delta")) wrong();
    all.insert(all.end(), count, name == "softmax" ? Mixer::softmax : Mixer::gated_delta);
  }
  if (layers && std::ssize(all) > *layers) {
    refuse("--mixer", formatted("mixers for at most {} layers, as --layers has", *layers),
           formatted("{} in {}", all.size(), text));
  }
  if (std::ranges::count(all, Mixer::softmax) == std::ssize(all)) all.clear();
  return all;
}

std::string flag_of(std::string_view member) {
  if (member == "TrainRanks::sequence") return "--ranks";
  std::string flag = "--" + std::string(member.substr(member.find("::") + 2));
  std::ranges::replace(flag, '_', '-');
  return flag;
}

Json to_json(const TrainSettings& settings) {
  Json json;
  each_setting(settings, [&](const char* flag, const auto& value, const char*) { json[flag + 2] = value; });
  json["vocab"] = settings.model.vocab_size;
  json["gelu"] = settings.model.gelu == Activation::gelu_tanh ? "tanh" : "exact";
  json["precision"] = name(settings.model.precision);
  if (settings.train.reproducible) json["reproducible"] = true;
  if (!settings.model.mixers.empty()) json["mixer"] = settings.mixer;
  return json;
}

TrainSettings parse_settings(const std::string& text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    TrainSettings settings;
    each_setting(settings, [&](const char* flag, auto& value, const char*) { read(json.at(flag + 2), value); });
    read(json.at("vocab"), settings.model.vocab_size);
    const auto gelu = json.at("gelu").get<std::string>();
    if (gelu != "exact" && gelu != "tanh")
      throw Error(Error::Kind::data, "train", "gelu tanh or exact in " + source, escaped(gelu));
    settings.model.gelu = gelu == "exact" ? Activation::gelu : Activation::gelu_tanh;
    settings.model.precision = parse_precision(json.at("precision").get<std::string>());
    settings.train.reproducible = json.value("reproducible", false);
    settings.mixer = json.value("mixer", settings.mixer);
    settings.model.mixers = parse_mixers(settings.mixer);
    return settings;
  } catch (const Json::exception&) {
    throw Error(Error::Kind::data, "train", "the settings of a training run in " + source, "others");
  }
}

}  // namespace attn::tool
