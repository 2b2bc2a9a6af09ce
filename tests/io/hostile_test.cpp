// Damaged files of every kind: a parser returns or throws Error, and nothing else.
#include <algorithm>
#include <iostream>
#include <random>

#include "attn/io.hpp"
#include "core/seed.hpp"
#include "core/testing.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(ATTN_TEST_DATA)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  EXPECT_GT(files.size(), 40u);
  return files;
}

// Tells whether it parses. Reads every element, so that a sanitizer sees a tensor that reaches too far.
template <class Parse>
bool survives(Parse parse) {
  try {
    const io::NamedTensors found = parse();
    for (const auto& [name, tensor] : found.tensors) values_of(tensor);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data) << error.what();
    return false;
  }
}

// Every parser on the bytes, as a name or a first byte may mislead.
void survive_all(std::string_view text) {
  const auto bytes = bytes_of(text);
  survives([&] { return io::parse(bytes, "x"); });
  survives([&] { return io::parse_npz(bytes, "x"); });
  survives([&] { return io::parse_safetensors(bytes, "x"); });
  survives([&] { return io::NamedTensors{.tensors = {{"", io::parse_npy(bytes, "x")}}}; });
  survives([&] { return io::NamedTensors{.tensors = {{"", io::parse_csv(text, "x")}}}; });
}

TEST(Hostile, EveryPrefixOfABinaryFileIsAnError) {
  for (const auto& file : golden_files()) {
    if (file.extension() == ".csv") continue;
    SCOPED_TRACE(file);
    const std::string bytes = read(file);
    for (std::size_t length = 0; length < bytes.size(); length += shortened() && length > 2048 ? 13 : 1) {
      // A copy of just this length, so that a sanitizer sees the end.
      const std::vector<char> prefix(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      const std::string_view text(prefix.data(), prefix.size());
      EXPECT_FALSE(survives([&] { return io::parse(bytes_of(text), "prefix"); })) << "length " << length;
    }
  }
}

TEST(Hostile, EveryPrefixOfATableParsesOrIsAnError) {
  for (const char* name : {"savetxt.csv", "semicolons.csv"}) {
    const std::string bytes = read(data_path(name));
    for (std::size_t length = 0; length <= bytes.size(); ++length) survive_all(bytes.substr(0, length));
  }
}

TEST(Hostile, RandomDamageIsAnErrorOrATensor) {
  const unsigned seed = drawn_seed();
  std::cout << "seed " << seed << std::endl;  // flushed: a crash must not swallow it
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  for (const auto& file : golden_files()) {
    SCOPED_TRACE(testing::Message() << file << ", seed " << seed);
    const std::string good = read(file);
    for (int round = 0; round < 200; ++round) {
      std::string bytes = good;
      const std::size_t flips = 1 + below(8);
      for (std::size_t i = 0; i < flips; ++i) bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
      survive_all(bytes);
    }
  }
}

TEST(Hostile, AppendedBytesAreAnError) {
  for (const auto& file : golden_files()) {
    if (file.extension() != ".npy" && file.extension() != ".safetensors") continue;
    SCOPED_TRACE(file);
    const std::string bytes = read(file) + "x";
    EXPECT_FALSE(survives([&] { return io::parse(bytes_of(bytes), "appended"); }));
  }
}

TEST(Hostile, ErrorsNameHostileTextHarmlessly) {
  const std::string nasty = "{\"\x1b[31m" + std::string(1000, 'x') + "\":1}";
  const std::string header = std::string{static_cast<char>(nasty.size() & 0xff), static_cast<char>(nasty.size() >> 8)} +
                             std::string(6, '\0') + nasty;
  try {
    io::parse(bytes_of(header), "x");
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\x1b'), std::string_view::npos);
    EXPECT_LT(std::string_view(error.what()).size(), 400u);
  }
}

// Fuzzing and review found these files once. Each fault was mended, so none of them parses.
TEST(Hostile, RejectsPastFindings) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data_path("fuzz"))) {
    SCOPED_TRACE(entry.path());
    const std::string bytes = read(entry.path());
    survive_all(bytes);
    EXPECT_FALSE(survives([&] { return io::parse(bytes_of(bytes), "finding"); }));
    ++count;
  }
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace attn::test
