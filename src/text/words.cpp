// The small embedding of words that ships.
#include "attn/words.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_map>

#include "attn/error.hpp"
#include "core/lasting.hpp"
#include "core/utf8.hpp"
#include "text/classes.hpp"
#include "text/normalize.hpp"

namespace attn {
namespace {

// Each list is a kind of words, and neighbouring lists are akin. A word may be on several.
constexpr std::array<std::string_view, 21> kLists{
    ", . : ; ? _ ! \" ( ) ' -- - …",
    "the a an this that these those and or but nor so if because as than to of for not yes no too very just only also "
    "what which how why",
    "is are was were be been am being has have had having will would can could may might must shall should do does did",
    "in on at by from with without over under into onto through between near up down out off behind front around "
    "across here there where inside outside above below left right middle top side away back far",
    "one two three four five six seven eight nine ten hundred thousand many few some all each every first second last "
    "half more most less least none both any several enough number count sum times much whole part",
    "day night year week month hour minute time now then today tomorrow yesterday morning evening noon spring summer "
    "autumn winter early late soon always never ever again once when while clock before after until since old new "
    "young moment future past ago",
    "sun moon star light dark bright shine shone sky cloud wind snow rain storm cold warm hot weather red green blue "
    "white black yellow brown grey gray orange colour color shadow fire winter summer lamp ice",
    "tree flower grass leaf leaves forest garden field hill mountain stone rock earth ground land world seed root grow "
    "grew rose wood plant bush valley sand island nature",
    "river sea lake ocean water wave boat ship swim swam shore bank beach flow wet rain fish sail spring stream deep "
    "drop ice island",
    "cat dog bird fish horse mouse mice rat cow sheep lion wolf wolves bear fox animal pet chase bark fly flew tail "
    "wing rabbit pig duck hen bee ant kitten puppy it its",
    "eat ate eaten drink drank bread apple cheese cook meal food fruit milk tea coffee sugar salt hungry taste dinner "
    "breakfast lunch cake rice egg fish meat soup wine orange banana knife fork spoon plate butter thirsty water "
    "kitchen",
    "house home room door window wall table chair bed mat floor roof kitchen key box cup lamp clock sit sat lie lay "
    "lain sleep slept rest live bag shelf desk carpet garden hat coat dress shoe it",
    "hand eye ear head heart foot feet arm leg face hair nose mouth body blood sick tired pain doctor hospital nurse "
    "health sleep hungry breath ill skin bone brain strong weak",
    "i you he she it we they me him her us them my your his its our their who man men woman women child children boy "
    "girl king queen prince princess mother father son daughter brother sister friend people person family baby "
    "uncle aunt husband wife lady gentleman everyone nobody",
    "love hate like happy sad glad fear afraid hope joy angry want wish need feel felt good better best bad worse "
    "worst beautiful kind smile laugh cry cried dear sweet great nice wonderful terrible lonely proud dream",
    "say said tell told speak spoke ask answer think thought know knew known learn read write wrote book word story "
    "name letter question language idea remember mind see saw seen look hear heard listen teach taught teacher "
    "student school text sentence meaning mean paper song page talk understand understood call poem news",
    "attention query queries key value token model weight score network computer data number program machine compute "
    "train vector matrix softmax head layer mask memory learn code software neural train",
    "work make made build built do done use tool job begin began begun start end finish open close create try help "
    "give gave given put take took taken find found hold held keep kept get got let set cut break broke worker "
    "machine farm farmer engineer",
    "go went gone come came walk run ran step journey road way path travel move turn leave arrive fast slow follow "
    "street car train bus fly flew ride rode drive drove cross jump fall fell stand stood stop pass bring brought "
    "wait return bicycle wheel",
    "buy bought sell sold pay paid money bank price cost coin gold silver rich poor market shop store trade business "
    "company loan account dollar euro cheap expensive save",
    "city town village capital country state nation france paris italy rome germany berlin spain madrid england london "
    "europe america asia africa china japan india government president king queen law war peace street castle church",
};

using Direction = std::vector<double>;

// Divided by its length; one that has none becomes the first axis.
void make_unit(Direction& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  if (sum < 1e-12) {
    v.front() = 1;
    return;
  }
  for (double& x : v) x /= std::sqrt(sum);
}

// The lists that a word is on, a bit each.
std::uint32_t listed(const std::string& word) {
  static const auto& lists = lasting([] {
    std::unordered_map<std::string, std::uint32_t> all;
    for (std::size_t k = 0; k < kLists.size(); ++k) {
      for (std::string_view rest = kLists[k]; !rest.empty();) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        all[std::string(rest.substr(0, end))] |= 1U << k;
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return all;
  });
  const auto found = lists.find(word);
  return found == lists.end() ? 0 : found->second;
}

// The lists of a word, or of what is left of it without an ending.
std::uint32_t lists_of(const std::string& word) {
  static constexpr std::array<std::array<std::string_view, 2>, 9> endings{
      {{"", ""}, {"s", ""}, {"es", ""}, {"ies", "y"}, {"ed", ""}, {"ed", "e"}, {"ing", ""}, {"ing", "e"}, {"ly", ""}}};
  constexpr std::size_t shortest_stem = 3;
  for (const auto& [ending, instead] : endings) {
    if (!word.ends_with(ending) || (!ending.empty() && word.size() < ending.size() + shortest_stem)) continue;
    std::string stem = word.substr(0, word.size() - ending.size()).append(instead);
    if (const std::uint32_t lists = listed(stem)) return lists;
    const bool doubled = (ending == "ed" || ending == "ing") && stem.back() == stem[stem.size() - 2];
    if (doubled) stem.pop_back();  // stopped, running
    if (const std::uint32_t lists = doubled ? listed(stem) : 0) return lists;
  }
  return 0;
}

Direction direction_of(std::uint32_t lists, std::size_t size) {
  Direction sum(size);
  for (; lists != 0; lists &= lists - 1) {
    Direction one(size);
    for (std::size_t j = 1; j <= std::min(size, kLists.size() - 1); ++j) {
      const double k = std::countr_zero(lists);
      one[j - 1] = std::cos(std::numbers::pi * static_cast<double>(j) * (k + 0.5) / double{kLists.size()});
    }
    make_unit(one);
    for (std::size_t j = 0; j < size; ++j) sum[j] += one[j];
  }
  make_unit(sum);
  return sum;
}

// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// SplitMix64's mixing (Steele et al. 2014), as a number from -1 to below 1.
double drawn(std::uint64_t seed) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

// By the letters alone: a direction for each three neighbouring characters of "<word>".
Direction own_direction(const std::string& word, std::size_t size) {
  const std::string text = "<" + word + ">";
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); at += first_character(std::string_view(text).substr(at)).length) {
    starts.push_back(at);
  }
  starts.push_back(text.size());
  Direction sum(size);
  for (std::size_t i = 0; i + 3 < starts.size(); ++i) {
    const std::uint64_t hash = hash_of(std::string_view(text).substr(starts[i], starts[i + 3] - starts[i]));
    for (std::size_t j = 0; j < size; ++j) sum[j] += drawn(hash + j);
  }
  make_unit(sum);
  return sum;
}

void embed(const std::string& word, std::span<float> to) {
  const std::array lower{text::Normalizer{.kind = text::Normalizer::Kind::lowercase}};
  const std::string lowered = text::normalized(word, lower);
  const std::uint32_t lists = lists_of(lowered);
  Direction own = own_direction(lowered, to.size());
  const Direction kind = lists == 0 ? own : direction_of(lists, to.size());
  if (lists != 0) {
    const double along = std::inner_product(own.begin(), own.end(), kind.begin(), 0.0);
    for (std::size_t j = 0; j < own.size(); ++j) own[j] -= along * kind[j];
    make_unit(own);
  }
  const double kinds_share = std::sqrt(lists == 0 ? 0 : 2.5), own_share = std::sqrt(lists == 0 ? 3 : 0.5);
  constexpr double steps = 100;
  for (std::size_t j = 0; j < to.size(); ++j) {
    to[j] = static_cast<float>(std::round((kinds_share * kind[j] + own_share * own[j]) * steps) / steps);
  }
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;  // of a word that goes on
  const auto add = [&](std::string_view part, bool goes_on) {
    inside&& goes_on ? words.back().append(part) : words.emplace_back(part);
    inside = goes_on;
  };
  while (!text.empty()) {
    const Character c = first_character(text);
    const bool dashes = text.starts_with("--");
    const std::string_view part = text.substr(0, dashes ? 2 : c.length);
    constexpr std::string_view marks = ",.:;?_!\"()'";
    const bool control = c.code >= 0x1c && c.code <= 0x1f;  // Python's white space, and not Unicode's
    if (c.valid && (control || text::has(c.code, text::Property::space))) {
      inside = false;
    } else {
      add(part, !dashes && (part.size() > 1 || marks.find(part) == marks.npos));
    }
    text.remove_prefix(part.size());
  }
  return words;
}

Tensor embed_words(std::span<const std::string> words, std::int64_t d_in) {
  constexpr const char* op = "embed_words";
  if (d_in <= 0) throw Error(Error::Kind::argument, op, "a positive d_in", std::to_string(d_in));
  if (words.empty()) throw Error(Error::Kind::argument, op, "a text with at least one word", "none");
  Tensor vectors = Tensor::zeros({static_cast<std::int64_t>(words.size()), d_in});
  const auto size = static_cast<std::size_t>(d_in);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty()) throw Error(Error::Kind::argument, op, "words that are not empty", "an empty one");
    embed(words[i], {vectors.data<float>() + i * size, size});
  }
  return vectors;
}

Tensor embed_words(std::string_view text, std::int64_t d_in) { return embed_words(split_words(text), d_in); }

}  // namespace attn
