// Golden files: make_gguf.py, by the gguf package.
#include "attn/gguf.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "attn/io.hpp"
#include "io/forged.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

using forged::number;

// Bit by bit, but that one NaN is as good as another.
void expect_same_bits(const Tensor& found, const Tensor& expected, const std::string& name) {
  ASSERT_EQ(found.shape(), expected.shape()) << name;
  const auto *a = found.data<float>(), *b = expected.data<float>();
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    if (std::isnan(b[i]) && std::isnan(a[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i])) << name << ", element " << i;
  }
}

TEST(Gguf, EveryTypeIsReadAsLlamaCppReadsIt) {
  const io::Gguf file = io::Gguf::open(data_path("types.gguf"));
  const io::NamedTensors expected = io::load(data_path("types.safetensors"));
  ASSERT_EQ(file.tensors().size(), expected.tensors.size());
  for (const auto& [name, values] : expected.tensors) {
    const io::GgufTensor* tensor = file.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(io::name(tensor->type), name);
    expect_same_bits(file.load(*tensor), values, name);
    expect_same_bits(file.load(*tensor, DType::bf16).to(DType::f32), values.to(DType::bf16).to(DType::f32), name);
  }
  EXPECT_EQ(file.find("none"), nullptr);
}

// A quantised matrix in its blocks has the same numbers, and says that it has none where float16 holds no scale.
TEST(Gguf, BlocksHaveTheNumbersThatTheyStandFor) {
  const io::Gguf file = io::Gguf::open(data_path("types.gguf"));
  for (const auto& [name, values] : io::load(data_path("types.safetensors")).tensors) {
    const io::GgufTensor& tensor = *file.find(name);
    const auto whole = file.load_blocks(tensor, 0, 3),
               turned = file.load_blocks(tensor, 1, 3, [](auto i) { return 3 - i; });
    if (!io::is_quantized(tensor.type) || name == "MXFP4") {
      EXPECT_EQ(whole, nullptr) << name;
      continue;
    }
    ASSERT_NE(whole, nullptr) << name;
    expect_same_bits(whole->read(0, 3), values, name);
    for (std::int64_t i = 0; i < 2; ++i) {
      expect_same_bits(turned->read(i, i + 1), values.slice(0, 2 - i, 3 - i), name);
    }
    EXPECT_LE(whole->bytes(), 16 * 512 * 9.125 / 8) << name;  // a group of 16 rows
  }
}

// Only the file's own tensors are read, or copies of them, and only rows that they have.
TEST(Gguf, WhatIsNotInTheFileIsRefused) {
  const auto refused = [](const std::string& found, const auto& f) {
    expect_error(Error::Kind::argument, {found}, [&] { f(); });
  };
  const io::Gguf file = io::Gguf::open(data_path("types.gguf"));
  io::GgufTensor tensor = *file.find("Q4_1");
  expect_same_bits(file.load(tensor), file.load(*file.find("Q4_1")), "a copy");
  const auto blocks = file.load_blocks(tensor, 0, 3);
  for (const auto& rows : {std::pair{-1, 2}, {0, 4}, {3, 2}}) {
    refused("rows from " + std::to_string(rows.first), [&] { blocks->read(rows.first, rows.second); });
  }
  EXPECT_EQ(blocks->read(1, 1).shape(), (Shape{0, 512}));
  refused("row -1", [&] { file.load_blocks(tensor, -1, 2); });
  refused("row 3", [&] { file.load_blocks(tensor, 1, 4); });
  refused("row 9", [&] { file.load_blocks(tensor, 0, 1, [](auto) { return 9; }); });
  tensor.bytes *= 2;
  refused("\"Q4_1\"", [&] { file.load(tensor); });
  refused("\"Q4_1\"", [&] { file.load_blocks(tensor, 0, 1); });
  tensor.name = "mine", tensor.part = 7;
  refused("\"mine\"", [&] { file.load(tensor); });
}

TEST(Gguf, ValuesOfEveryKind) {
  const io::Gguf file = io::Gguf::open(data_path("types.gguf"));
  const auto is = [&](const char* key, const io::GgufValue& value) {
    const auto found = file.metadata().find(key);
    ASSERT_NE(found, file.metadata().end()) << key;
    EXPECT_EQ(found->second, value) << key;
  };
  is("kind.u8", std::int64_t{200}), is("kind.i8", std::int64_t{-100});
  is("kind.u16", std::int64_t{60000}), is("kind.i16", std::int64_t{-30000});
  is("kind.u32", std::int64_t{4'000'000'000}), is("kind.i32", std::int64_t{-2'000'000'000});
  is("kind.u64", std::int64_t{1} << 62), is("kind.i64", -(std::int64_t{1} << 62));
  is("kind.f32", 0.5), is("kind.f64", 0.1), is("kind.bool", true), is("kind.string", "größer");
  is("list.string", std::vector<std::string>{"a", "", "Ġthe"});
  is("list.i32", std::vector<std::int64_t>{1, -2, 3}), is("list.f32", std::vector<double>{0.25, -8});
  is("list.bool", std::vector<bool>{true, false});
  is("general.architecture", "example");
}

TEST(Gguf, BytesInMemoryAreReadAsAFile) {
  const std::string bytes = read(data_path("types.gguf"));
  const io::Gguf file = io::Gguf::parse(bytes_of(bytes), "memory");
  const io::Gguf same = io::Gguf::open(data_path("types.gguf"));
  for (const io::GgufTensor& tensor : file.tensors()) {
    expect_same_bits(file.load(tensor), same.load(*same.find(tensor.name)), tensor.name);
  }
  const io::NamedTensors all = io::load(data_path("types.gguf"));
  EXPECT_EQ(all.format, io::Format::gguf);
  expect_same_bits(*all.find("Q4_K"), file.load(*file.find("Q4_K")), "Q4_K");
  EXPECT_EQ(all.metadata.at("kind.string"), "größer");
  EXPECT_EQ(all.metadata.at("list.string"), "3 values");
}

// ---- a model in several files ---------------------------------------------------------------

std::string text(const std::string& s) { return number(s.size(), 8) + s; }

struct Part {
  std::uint64_t number = 0, count = 2, tensors = 2;
  std::string tensor = "a";
};

// One tensor of four numbers, the first of them the part's own.
std::string part(const Part& p) {
  std::string file = "GGUF" + number(3, 4) + number(1, 8) + number(3, 8);
  for (const auto& [key, value] :
       {std::pair{"split.no", p.number}, {"split.count", p.count}, {"split.tensors.count", p.tensors}}) {
    file += text(key) + number(10, 4) + number(value, 8);
  }
  file += text(p.tensor) + number(1, 4) + number(4, 8) + number(0, 4) + number(0, 8);
  file.resize((file.size() + 31) / 32 * 32);
  return file + number(std::bit_cast<std::uint32_t>(static_cast<float>(p.number + 1)), 4) + std::string(12, '\0');
}

TEST(Gguf, PartsAreReadByTheFirstOne) {
  const std::string first = testing::TempDir() + "attn-parts-00001-of-00002.gguf",
                    second = testing::TempDir() + "attn-parts-00002-of-00002.gguf";
  write(first, part({})), write(second, part({.number = 1, .tensor = "b"}));
  const io::Gguf file = io::Gguf::open(first);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(values_of(file.load(*file.find("a"))), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(values_of(file.load(*file.find("b"))), (std::vector<double>{2, 0, 0, 0}));
  const auto fails = [&](const std::vector<std::string>& parts, const std::string& path) {
    expect_error(Error::Kind::data, parts, [&] { io::Gguf::open(path); });
  };
  fails({"the first of 2 parts, attn-parts-00001-of-00002.gguf", "part 2"}, second);
  write(second, part({.number = 1}));
  fails({"\"a\" in two parts"}, first);
  write(second, part({.number = 0, .tensor = "b"}));
  fails({"part 2 of 2", "split.no 0", "00002-of-00002"}, first);
  write(second, part({.number = 1, .count = 3, .tensor = "b"}));
  fails({"part 2 of 2", "split.count 3"}, first);
  write(first, part({.tensors = 3})), write(second, part({.number = 1, .tensor = "b"}));
  fails({"the 3 tensors of split.tensors.count", "found 2"}, first);
  std::filesystem::remove(second);
  expect_error(Error::Kind::file, {"attn-parts-00002-of-00002.gguf"}, [&] { io::Gguf::open(first); });
  const std::string other = testing::TempDir() + "attn-parts.gguf";
  write(other, part({}));
  fails({"a name that ends in -00001-of-00002.gguf"}, other);
  const std::string bytes = part({});
  expect_error(Error::Kind::data, {"a whole model", "one of 2 parts"},
               [&] { io::Gguf::parse(bytes_of(bytes), "memory"); });
  std::filesystem::remove(first), std::filesystem::remove(other);
}

// ---- files that claim what they like ------------------------------------------------------

struct Claim {
  std::string name = "t";
  std::vector<std::uint64_t> sizes = {4};
  std::uint64_t type = 0, offset = 0;
};

struct Forgery {
  std::uint64_t version = 3;
  std::vector<Claim> tensors = {{}};
  std::vector<std::string> values = {};
  std::string data = std::string(64, '\0');
  std::uint64_t tensor_count = 0, value_count = 0;  // 0: as many as there are
};

std::string forged_file(const Forgery& f) {
  std::string file = "GGUF" + number(f.version, 4) + number(f.tensor_count ? f.tensor_count : f.tensors.size(), 8) +
                     number(f.value_count ? f.value_count : f.values.size(), 8);
  for (const std::string& value : f.values) file += value;
  for (const Claim& claim : f.tensors) {
    file += text(claim.name) + number(claim.sizes.size(), 4);
    for (const std::uint64_t size : claim.sizes) file += number(size, 8);
    file += number(claim.type, 4) + number(claim.offset, 8);
  }
  file.resize((file.size() + 31) / 32 * 32);
  return file + f.data;
}

std::string value(const std::string& key, std::uint64_t kind, const std::string& bytes) {
  return text(key) + number(kind, 4) + bytes;
}

std::vector<Attack> attacks() {
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const std::string honest = forged_file({});
  const auto with_values = [](std::vector<std::string> values) { return forged_file({.values = std::move(values)}); };
  const auto with = [](std::vector<Claim> tensors) { return forged_file({.tensors = std::move(tensors)}); };
  return {
      {"Empty", "", "begins with GGUF"},
      {"OtherMagic", "GGML" + honest.substr(4), "begins with GGUF"},
      {"Version1", forged_file({.version = 1}), "version 2 or 3"},
      {"BigEndian", forged_file({.version = 0x03000000}), "a big-endian file"},
      {"CountOfTensors", forged_file({.tensor_count = huge}), "no more tensors than"},
      {"CountOfValues", forged_file({.value_count = huge / 4}), "no more values than"},
      {"LengthOfAKey", with_values({number(huge, 8) + "key"}), "no more characters than"},
      {"LengthOfAString", with_values({value("k", 8, number(1 << 20, 8))}), "no more characters than"},
      {"LengthOfAnArray", with_values({value("k", 9, number(0, 4) + number(1 << 20, 8))}), "no more elements than"},
      {"ArrayOfStrings", with_values({value("k", 9, number(8, 4) + number(100, 8))}), "no more elements than"},
      {"ArrayOfArrays", with_values({value("k", 9, number(9, 4) + number(1, 8))}), "an array of arrays"},
      {"UnknownKind", with_values({value("k", 13, "")}), "a kind of value from 0 to 12"},
      {"KindOfAnArray", with_values({value("k", 9, number(99, 4) + number(1, 8))}), "a kind of value"},
      {"Boolean2", with_values({value("k", 7, number(2, 1))}), "a boolean of 0 or 1"},
      {"NumberPast2To63", with_values({value("k", 10, number(huge, 8))}), "below 2^63"},
      {"KeyTwice", with_values({value("k", 0, "a"), value("k", 0, "b")}), "keys that differ"},
      {"NameTwice", with({{}, {.offset = 32}}), "names that differ"},
      {"NoDimensions", with({{.sizes = {}}}), "1 to 4 dimensions"},
      {"FiveDimensions", with({{.sizes = {1, 1, 1, 1, 1}}}), "1 to 4 dimensions"},
      {"OverflowingSize", with({{.sizes = {huge}}}), "fewer than 2^63 elements"},
      {"OverflowingProduct", with({{.sizes = {1ull << 32, 1ull << 32}}}), "fewer than 2^63 elements"},
      {"OverflowHiddenByZero", with({{.sizes = {1ull << 32, 1ull << 32, 0}}}), "fewer than 2^63 elements"},
      {"OverflowingBytes", with({{.sizes = {1ull << 62}}}), "fewer than 2^63 bytes"},
      {"OtherType", with({{.sizes = {256}, .type = 16}}), "type IQ2_XXS for"},
      {"UnknownType", with({{.type = 99}}), "type 99 for"},
      {"HalfABlock", with({{.sizes = {33}, .type = 8}}), "rows of whole blocks of 32"},
      {"PastTheEnd", with({{.sizes = {17}}}), "inside the 64 bytes"},
      {"OffsetPastTheEnd", with({{.offset = 1 << 20}}), "inside the 64 bytes"},
      {"OverflowingOffset", with({{.offset = huge - 31}}), "inside the 64 bytes"},
      {"CrookedOffset", with({{.offset = 4}}), "multiples of 32"},
      {"Overlap", with({{.sizes = {9}}, {.name = "u", .offset = 32}}), "without overlap"},
      {"AlignmentZero", with_values({value("general.alignment", 4, number(0, 4))}), "a power of two"},
      {"AlignmentHuge", with_values({value("general.alignment", 4, number(1u << 31, 4))}), "a power of two"},
      {"AlignmentText", with_values({value("general.alignment", 8, text("32"))}), "a power of two"},
      {"CutOff", honest.substr(0, honest.size() - 49), "inside the 15 bytes"},
      {"CutInTheHeader", honest.substr(0, 40), "no more tensors than"},
      {"CutInTheStart", honest.substr(0, 6), "of 4 bytes"},
  };
}

class GgufAttack : public testing::TestWithParam<Attack> {};

TEST_P(GgufAttack, IsRefused) {
  expect_answer(GetParam(), [](auto bytes) { io::Gguf::parse(bytes_of(bytes), "attack"); });
}

INSTANTIATE_TEST_SUITE_P(Gguf, GgufAttack, testing::ValuesIn(attacks()), name_of);

TEST(Gguf, AnHonestFileIsRead) {
  float numbers[] = {1, -2, 0.5f, 3};
  Forgery f;
  std::memcpy(f.data.data(), numbers, sizeof numbers);
  f.tensors.push_back({.name = "empty", .sizes = {32, 0}, .type = 2, .offset = 32});
  const std::string bytes = forged_file(f);
  const io::Gguf file = io::Gguf::parse(bytes_of(bytes), "memory");
  EXPECT_EQ(values_of(file.load(*file.find("t"))), (std::vector<double>{1, -2, 0.5, 3}));
  EXPECT_EQ(file.load(*file.find("empty")).shape(), (Shape{0, 32}));
  EXPECT_EQ(forged_file({.version = 2}).size(), forged_file({}).size());
  EXPECT_NO_THROW(io::Gguf::parse(bytes_of(forged_file({.version = 2})), "memory"));
}

// A vocabulary makes a header of megabytes, which is read in several steps.
TEST(Gguf, ALongHeaderIsReadWhole) {
  std::string words;
  constexpr int count = 300'000;
  for (int i = 0; i < count; ++i) words += text("word" + std::to_string(i));
  const std::string bytes = forged_file({.values = {value("words", 9, number(8, 4) + number(count, 8) + words)}});
  const auto path = std::filesystem::path(testing::TempDir()) / "long.gguf";
  write(path, bytes);
  const io::Gguf file = io::Gguf::open(path);
  const auto& found = std::get<std::vector<std::string>>(file.metadata().at("words"));
  EXPECT_EQ(found.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(found.back(), "word299999");
  EXPECT_EQ(file.load(file.tensors().front()).numel(), 4);
  // Another program cuts it off meanwhile.
  std::filesystem::resize_file(path, 100);
  expect_error(Error::Kind::file, {"become shorter"}, [&] { static_cast<void>(file.load(file.tensors().front())); });
  std::filesystem::remove(path);
}

TEST(Gguf, LoadsFloatsAlone) {
  const io::Gguf file = io::Gguf::open(data_path("types.gguf"));
  expect_error(Error::Kind::argument, {"float32, bfloat16 or float16"},
               [&] { static_cast<void>(file.load(file.tensors().front(), DType::i8)); });
  expect_error(Error::Kind::file, {"a file to read"}, [] { io::Gguf::open("/nowhere.gguf"); });
}

}  // namespace
}  // namespace attn::test
