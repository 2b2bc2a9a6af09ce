
#include "attn/io.hpp"
#include "io/forged.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

using namespace forged;

io::NamedTensors parse(std::string_view bytes) { return io::parse_safetensors(bytes_of(bytes), "test.safetensors"); }

void expect_bad(const std::string& bytes, const std::vector<std::string>& parts) {
  expect_error(Error::Kind::data, parts, [&] { parse(bytes); });
}

TEST(Safetensors, ReadsEveryType) {
  const auto found = parse(read(data_path("dtypes.safetensors")));
  EXPECT_EQ(found.format, io::Format::safetensors);
  EXPECT_THAT(found.metadata, testing::ElementsAre(testing::Pair("format", "pt"), testing::Pair("note", "größe")));
  EXPECT_EQ(found.tensors.size(), 9u);
  const std::vector<std::pair<const char*, DType>> expected{
      {"f64", DType::f64}, {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16},   {"i64", DType::i64},
      {"i32", DType::i32}, {"i8", DType::i8},   {"u8", DType::u8},   {"bool", DType::boolean}};
  for (const auto& [name, dtype] : expected) {
    SCOPED_TRACE(name);
    ASSERT_NE(found.find(name), nullptr);
    expect_golden(*found.find(name), dtype, {2, 3});
  }
}

TEST(Safetensors, KeepsTheOrderOfTheData) {
  const auto found = parse(read(data_path("unaligned_header.safetensors")));
  ASSERT_EQ(found.tensors.size(), 2u);
  EXPECT_EQ(found.tensors[0].first, "wide");  // second in the header, first in the data
  expect_golden(found.tensors[0].second, DType::f64, {2});
  expect_golden(found.tensors[1].second, DType::i8, {3});
}

TEST(Safetensors, ReadsEveryRank) {
  const auto found = parse(read(data_path("shapes.safetensors")));
  expect_golden(*found.find("scalar"), DType::f32, {});
  expect_golden(*found.find("none"), DType::f32, {0, 3});
  expect_golden(*found.find("rank8"), DType::u8, {1, 2, 1, 3, 1, 1, 2, 1});
  EXPECT_TRUE(parse(read(data_path("empty.safetensors"))).tensors.empty());
  expect_bad(file("{" + entry("x", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", "1234"), {"at most 8 dimensions"});
}

TEST(Safetensors, NormalisesBooleans) {
  const auto found = parse(file("{" + entry("m", "[4]", "[0,4]", "BOOL") + "}", std::string("\x00\x01\x02\xff", 4)));
  const auto* raw = static_cast<const unsigned char*>(found.tensors[0].second.raw());
  EXPECT_THAT(std::vector<int>(raw, raw + 4), testing::ElementsAre(0, 1, 1, 1));
}

TEST(Safetensors, RejectsLengthsThatLie) {
  expect_bad("", {"8 bytes", "0 bytes"});
  expect_bad("1234567", {"8 bytes", "7 bytes"});
  expect_bad(with_length(3, "{}"), {"3 bytes", "2 bytes"});
  expect_bad(with_length(100'000'001, "{}"), {"100 MB"});
  expect_bad(with_length(~std::uint64_t{0}, "{}"), {"100 MB", "18446744073709551615"});
  expect_bad(with_length(0, "{}"), {"begins with {"});
  expect_bad(with_length(1, "{}"), {"JSON"});
}

TEST(Safetensors, RejectsOffsetsThatLie) {
  const std::string data(24, 'x');
  expect_bad(file("{" + entry("a", "[3]", "[0,12]") + "," + entry("b", "[3]", "[8,20]") + "}", data), {"overlap", "8"});
  expect_bad(file("{" + entry("a", "[3]", "[0,12]") + "," + entry("b", "[2]", "[16,24]") + "}", data), {"gap", "16"});
  expect_bad(file("{" + entry("a", "[3]", "[0,12]") + "," + entry("b", "[3]", "[0,12]") + "}", data), {"overlap"});
  expect_bad(file("{" + entry("a", "[3]", "[12,24]") + "}", data), {"begin 0", "12"});
  expect_bad(file("{" + entry("a", "[3]", "[0,12]") + "}", data), {"at 12", "24 bytes"});
  expect_bad(file("{" + entry("a", "[9]", "[0,36]") + "}", data), {"24 bytes of data", "36", "cut off"});
  expect_bad(file("{" + entry("a", "[3]", "[12,0]") + "}", data), {"12 bytes apart"});
  expect_bad(file("{" + entry("a", "[6]", "[0,23]") + "}", data), {"24 bytes apart", "23"});
  expect_bad(file("{" + entry("a", "[3]", "[18446744073709551608,4]") + "}", data), {"12 bytes apart"});
  expect_bad(file("{" + entry("a", "[]", "[0,0]") + "}"), {"4 bytes apart"});
  expect_bad(file("{}", "x"), {"at 0", "1 bytes"});
}

TEST(Safetensors, RejectsShapesThatOverflow) {
  expect_bad(file("{" + entry("a", "[4611686018427387905]", "[0,4]") + "}", "1234"), {"2^63"});
  expect_bad(file("{" + entry("a", "[4294967296,4294967296]", "[0,0]") + "}"), {"2^63"});
  expect_bad(file("{" + entry("a", "[0,4294967296,4294967296]", "[0,0]") + "}"), {"2^63"});
  expect_bad(file("{" + entry("a", "[18446744073709551615]", "[0,0]") + "}"), {"2^63"});
  expect_bad(file("{" + entry("a", "[18446744073709551616]", "[0,0]") + "}"), {"like", "18446744073709551616"});
  expect_bad(file("{" + entry("a", "[-1]", "[0,4]") + "}", "1234"), {"number -1"});
  expect_bad(file("{" + entry("a", "[1.0]", "[0,4]") + "}", "1234"), {"number \"1.0\""});
  expect_bad(file("{" + entry("a", "[1e400]", "[0,4]") + "}", "1234"), {"JSON"});
}

TEST(Safetensors, RejectsDuplicates) {
  const std::string a = entry("a", "[1]", "[0,4]");
  expect_bad(file("{" + a + "," + a + "}", "1234"), {"\"a\" twice"});
  expect_bad(file(R"({"\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)" + a + "}", "1234"), {"\"a\" twice"});
  expect_bad(file(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"),
             {"\"dtype\" twice"});
  expect_bad(file(R"({"__metadata__":{"k":"1","k":"2"}})"), {"\"k\" twice"});
  expect_bad(file(R"({"__metadata__":{},"__metadata__":{}})"), {"\"__metadata__\" twice"});
}

TEST(Safetensors, RejectsOtherHeaders) {
  for (const std::string header :
       {R"({"a":1})", R"({"a":[]})", R"({"a":null})", R"({"a":{"dtype":1}})", R"({"a":{"shape":{}}})",
        R"({"a":{"shape":[[1]]}})", R"({"a":{"dtype":["F32"]}})", R"({"a":{"data_offsets":"0"}})",
        R"({"a":{"shape":[true]}})", R"({"a":{"shape":["1"]}})", R"({"__metadata__":{"k":1}})",
        R"({"__metadata__":{"k":{}}})", R"({"__metadata__":{"k":["x"]}})", R"({"__metadata__":"x"})"}) {
    SCOPED_TRACE(header);
    expect_bad(file(header), {"a header like"});
  }
  expect_bad(file("{\n\"a\": x}"), {"JSON", "line 2, column 6"});
  expect_bad(file("{} x"), {"JSON"});
  expect_bad(file("{}" + std::string(1, '\0') + "hidden"), {"zero byte"});
  expect_bad(file("{}{}"), {"JSON"});
  expect_bad(file(" {}"), {"begins with {"});
  expect_bad(file("{\"\xff\":1}"), {"JSON"});
  expect_bad(file(R"({"a":{}})"), {"dtype, shape and two data_offsets"});
  expect_bad(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", "1234"), {"two data_offsets"});
  expect_bad(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", "1234"), {"two data_offsets"});
  expect_bad(file(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "1234"), {"\"x\" for \"a\""});
  expect_bad(file("{" + entry("a", "[1]", "[0,1]", "F8_E4M3") + "}", "1"), {"F64 F32 F16 BF16", "F8_E4M3"});
}

TEST(Safetensors, StopsAtDeepNesting) {
  const std::string deep(1'000'000, '[');
  expect_bad(file("{\"a\":" + deep), {"an array"});
  expect_bad(file(R"({"a":{"shape":)" + deep), {"an array"});
}

using SafetensorsFile = FolderTest;

TEST_F(SafetensorsFile, RoundTripsEveryTypeAndViews) {
  io::NamedTensors tensors;
  for (const DType dtype : kDTypes) {
    tensors.tensors.emplace_back(std::string(name(dtype)), golden(dtype, {4, 3, 2}).transpose(0, 2).slice(1, 1, 3));
  }
  tensors.tensors.emplace_back("none", golden(DType::f32, {0, 2}));
  tensors.tensors.emplace_back("quote\"\\\n", golden(DType::f32, {}));
  tensors.metadata = {{"format", "pt"}, {"note", "größe"}};
  io::save_safetensors(path("x.safetensors"), tensors);
  const auto found = io::load(path("x.safetensors"));
  EXPECT_EQ(found.metadata, tensors.metadata);
  ASSERT_EQ(found.tensors.size(), tensors.tensors.size());
  for (const auto& [name, tensor] : tensors.tensors) {
    SCOPED_TRACE(name);
    ASSERT_NE(found.find(name), nullptr);
    expect_same(*found.find(name), tensor);
  }
}

TEST_F(SafetensorsFile, WritesTheOrderGivenAndAligned) {
  const io::NamedTensors tensors{.tensors = {{"z", golden(DType::u8, {3})},
                                             {"a", golden(DType::f64, {2})},
                                             {"m", golden(DType::f32, {1})},
                                             {"b", golden(DType::f32, {3})}}};
  io::save_safetensors(path("x.safetensors"), tensors);
  const std::string bytes = read(path("x.safetensors"));
  const std::string header = R"({"z":{"dtype":"U8","shape":[3],"data_offsets":[32,35]},)"
                             R"("a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
                             R"("m":{"dtype":"F32","shape":[1],"data_offsets":[16,20]},)"
                             R"("b":{"dtype":"F32","shape":[3],"data_offsets":[20,32]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes.substr(0, 8 + padded.size()), file(padded));
  EXPECT_EQ(bytes.size(), 8 + padded.size() + 35);
}

TEST_F(SafetensorsFile, WritesMetadataAlone) {
  io::save_safetensors(path("x.safetensors"), {.metadata = {{"k", "v"}}});
  const std::string header = R"({"__metadata__":{"k":"v"}})";
  EXPECT_EQ(read(path("x.safetensors")), file(header + std::string((8 - header.size() % 8) % 8, ' ')));
  io::save_safetensors(path("y.safetensors"), {});
  EXPECT_EQ(read(path("y.safetensors")), file("{}      "));
}

TEST_F(SafetensorsFile, RefusesNamesThatNobodyCouldRead) {
  const Tensor x = golden(DType::f32, {2});
  const auto save = [&](const io::NamedTensors& tensors) { io::save_safetensors(path("x.safetensors"), tensors); };
  expect_error(Error::Kind::argument, {"differ", "\"x\""}, [&] { save({.tensors = {{"x", x}, {"x", x}}}); });
  expect_error(Error::Kind::argument, {"__metadata__"}, [&] { save({.tensors = {{"__metadata__", x}}}); });
  expect_error(Error::Kind::argument, {"UTF-8"}, [&] { save({.tensors = {{"\xff", x}}}); });
  expect_error(Error::Kind::argument, {"UTF-8"}, [&] { save({.metadata = {{"k", "\xff"}}}); });
  EXPECT_TRUE(names().empty());
}

TEST(StateDicts, AreReadByName) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "attn-state.safetensors";
  io::save_safetensors(path, {.tensors = {{"b", Tensor::of({1.0f, 2.0f})}, {"a", Tensor::of({{3.0f, 4.0f}})}}});
  const std::map<std::string, Tensor> state = io::load_state_dict(path);
  ASSERT_EQ(state.size(), 2U);
  EXPECT_EQ(state.at("a").shape(), (Shape{1, 2}));
  EXPECT_EQ(state.at("b").at({1}), 2);
  std::filesystem::remove(path);
  EXPECT_THROW(io::load_state_dict(path), Error);
}

}  // namespace
}  // namespace attn::test
