// The names are llama.cpp's, and the patterns those of the models' own tokenizer.json files. A GGUF file does not say
// whether a text is brought into a normal form: the kinds here that are, are those whose tokenizer.json says so.
#include "text/pre_tokenizers.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace attn::text {
namespace {

enum Trait : unsigned { kNfc = 1, kIgnoreMerges = 2, kBegins = 4 };

struct Kind {
  std::string_view names;  // each between blanks
  std::array<std::string_view, 6> patterns;
  unsigned traits = 0;
};

#define ATTN_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define ATTN_SIGNS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define ATTN_LINES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define ATTN_CAPITALS R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define ATTN_SMALL R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define ATTN_WORDS \
  R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)"

constexpr std::string_view kDigit = R"(\p{N})", kThreeDigits = R"(\p{N}{1,3})";

constexpr std::string_view kLlama3 = ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" ATTN_SIGNS ATTN_LINES;
constexpr std::string_view kQwen = ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" ATTN_SIGNS ATTN_LINES;
constexpr std::string_view kQwen35 =
    ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" ATTN_LINES;
constexpr std::string_view kTekken =
    ATTN_CAPITALS "*" ATTN_SMALL "+|" ATTN_CAPITALS "+" ATTN_SMALL R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" ATTN_LINES;
constexpr std::string_view kGpt4o =
    ATTN_CAPITALS "*" ATTN_SMALL "+" ATTN_CONTRACTION "?|" ATTN_CAPITALS "+" ATTN_SMALL "*" ATTN_CONTRACTION
                  R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" ATTN_LINES;
constexpr std::string_view kYoutu =
    ATTN_CAPITALS "*" ATTN_SMALL "+" ATTN_CONTRACTION "?|" ATTN_CAPITALS "+" ATTN_SMALL "*" ATTN_CONTRACTION
                  R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" ATTN_LINES;
constexpr std::string_view kIdeographs = "[一-龥぀-ゟ゠-ヿ]+", kIdeographsAndHangul = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kLinesApart = R"([^\n]+|[\n]+)";

// The letters of alphabets with two cases, as DeepSeek's first models name them.
constexpr std::string_view kCasedLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

constexpr std::array kKinds{
    Kind{" gpt-2 phi-2 gigachat a.x-4.0 mellum jais trillion granite-docling exaone4 ", {kGpt2Pattern}},
    Kind{" mpt olmo ", {kGpt2Pattern}, kNfc},
    Kind{" smollm starcoder refact codeshell exaone minerva-7b mellum2 ", {kDigit, kGpt2Pattern}},
    Kind{" command-r ", {kDigit, kGpt2Pattern}, kNfc},
    Kind{" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ", {kLlama3}, kIgnoreMerges | kBegins},
    Kind{" smaug-bpe glm4 glm5 ", {kLlama3}, kIgnoreMerges},
    Kind{" dbrx chatglm-bpe ", {kLlama3}},
    Kind{" qwen2 deepseek-r1-qwen megrez ", {kQwen}, kNfc},
    Kind{" stablelm2 hunyuan solar-open grok-2 kormo f2llmv2 ", {kQwen}},
    Kind{" qwen35 ", {kQwen35}},
    Kind{" laguna ", {kLinesApart, kQwen}},
    Kind{" tekken ", {kTekken}, kIgnoreMerges | kBegins},
    Kind{" gpt-4o llama4 kanana2 talkie minimax-m2 ", {kGpt4o}},
    Kind{" tiny_aya cohere2moe ", {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}},
    Kind{" youtu ",
         {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
          kYoutu},
         kIgnoreMerges},
    Kind{" deepseek-coder ", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kIdeographsAndHangul, kDigit}},
    Kind{" deepseek-llm ",
         {R"([\r\n])", kCasedLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kIdeographsAndHangul,
          R"(\p{N}+)"}},
    Kind{" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ",
         {kThreeDigits, kIdeographs, ATTN_WORDS R"([\r\n]*)" ATTN_LINES}},
    Kind{" spark2_5 ", {kDigit, kIdeographs, ATTN_WORDS R"(|[\r\n]|\s+(?!\S)|\s+)"}},
    Kind{" falcon ", {R"([\p{P}$+<=>^~|`]+)", kGpt2Pattern, "[0-9][0-9][0-9]"}},
    Kind{" default ", {R"([\p{P}$+<=>^~|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    Kind{" bloom poro-chat gpt3-finnish ", {kBloom}},
    Kind{" viking ", {kBloom, kDigit}},
    Kind{" jais-2 ",
         {ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" ATTN_SIGNS
                           R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S))"
                           R"(|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
                           R"(|\s{1,2}(?!\S)|\s{1})"}},
    Kind{" superbpe ", {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
    Kind{
        " bailingmoe bailingmoe2 llada-moe ",
        {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
    Kind{" seed-coder ",
         {ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    Kind{" ufakzeka ", {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" ATTN_SIGNS ATTN_LINES}},
    Kind{" exaone-moe ",
         {ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
                           R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}},
    Kind{" minicpm5 ",
         {kThreeDigits, ATTN_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)" ATTN_SIGNS ATTN_LINES},
         kIgnoreMerges},
    Kind{" chameleon ",
         {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", kDigit, R"([\p{P}!-/:-@\[-`{-~])",
          kGpt2Pattern},
         kBegins},
};

}  // namespace

std::optional<PreTokenizer> pre_tokenizer_named(std::string_view name) {
  std::string wanted = " ";
  wanted.append(name).append(" ");
  const bool one_name = !name.empty() && name.find(' ') == std::string_view::npos;
  const auto kind = std::ranges::find_if(kKinds, [&](const Kind& k) { return k.names.find(wanted) != k.names.npos; });
  if (!one_name || kind == kKinds.end()) return {};
  PreTokenizer found{.nfc = (kind->traits & kNfc) != 0,
                     .ignore_merges = (kind->traits & kIgnoreMerges) != 0,
                     .begins = (kind->traits & kBegins) != 0};
  for (const std::string_view pattern : kind->patterns) {
    if (!pattern.empty()) found.splitters.push_back(split_at(pattern));
  }
  return found;
}

}  // namespace attn::text
