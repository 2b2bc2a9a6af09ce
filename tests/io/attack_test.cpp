// The list of attacks on readers, one test each. Safetensors: the points of its audit (Trail of Bits, 2023) and of its
// format's text. An attack is answered by an Error of kind data that says what is wrong, and by nothing else.
#include <ostream>

#include "attn/io.hpp"
#include "io/forged.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

using namespace forged;

class SafetensorsAttack : public testing::TestWithParam<Attack> {};
class NpyAttack : public testing::TestWithParam<Attack> {};
class NpzAttack : public testing::TestWithParam<Attack> {};
class CsvAttack : public testing::TestWithParam<Attack> {};

TEST_P(SafetensorsAttack, IsRefused) {
  expect_answer(GetParam(), [](auto text) { io::parse_safetensors(bytes_of(text), "attack"); });
}
TEST_P(NpyAttack, IsRefused) {
  expect_answer(GetParam(), [](auto text) { io::parse_npy(bytes_of(text), "attack"); });
}
TEST_P(NpzAttack, IsRefused) {
  expect_answer(GetParam(), [](auto text) { io::parse_npz(bytes_of(text), "attack", 1'000'000); });
}
TEST_P(CsvAttack, IsRefused) {
  expect_answer(GetParam(), [](auto text) { io::parse_csv(text, "attack"); });
}

// ---- safetensors

const std::string kData(24, 'x');

std::string one(const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
  return file("{" + entry("a", shape, offsets, dtype) + "}", kData);
}
std::string two(const std::string& first, const std::string& second) {
  return file("{" + entry("a", "[3]", first) + "," + entry("b", "[3]", second) + "}", kData);
}
std::string header(const std::string& json) { return file(json, kData); }
std::string deep(const std::string& open) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += open;
  return text;
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, SafetensorsAttack,
    testing::Values(
        Attack{"AnEmptyFile", "", "8 bytes"}, Attack{"AFileOfSevenBytes", "1234567", "7 bytes"},
        Attack{"AHeaderOfNoBytes", with_length(0, "{}"), "begins with {"},
        Attack{"AHeaderOneByteBeyondTheFile", with_length(3, "{}"), "2 bytes"},
        Attack{"AHeaderOf100MBAndOne", with_length(100'000'001, "{}"), "100 MB"},
        Attack{"AHeaderOf2To63", with_length(std::uint64_t{1} << 63, "{}"), "100 MB"},
        Attack{"AHeaderWhoseEndOverflows", with_length(~std::uint64_t{7}, "{}"), "100 MB"},
        Attack{"AHeaderCutOffInItsJson", with_length(1, "{}"), "JSON"},
        Attack{"ALengthInBigEndian", std::string(7, '\0') + "\x02{}", "100 MB"},
        Attack{"ABlankBeforeTheHeader", header(" {}"), "begins with {"},
        Attack{"AByteOrderMarkBeforeTheHeader", header("\xef\xbb\xbf{}"), "begins with {"},
        Attack{"AnArrayAsHeader", header("[]"), "begins with {"},
        Attack{"TextBehindTheHeadersObject", header("{}x"), "JSON"},
        Attack{"ASecondObjectBehindTheFirst", header("{}{}"), "JSON"},
        Attack{"AZeroByteThatHidesText", header(std::string("{}\0x", 4)), "zero byte"},
        Attack{"AComment", header("{/**/}"), "JSON"},
        Attack{"ATrailingComma", header("{\"__metadata__\":{},}"), "JSON"},
        Attack{"ANameThatIsNoUtf8", header("{\"\xff\":1}"), "JSON"},
        Attack{"ANameWithALoneSurrogate", header(R"({"\ud800":1})"), "JSON"},
        Attack{"ANameWithARawControlCharacter", header("{\"\x01\":1}"), "JSON"},
        Attack{"JsonManyArraysDeep", header("{\"a\":" + deep("[")), "an array"},
        Attack{"JsonManyObjectsDeep", header(deep("{\"a\":")), "keys dtype"},
        Attack{"DepthInAShape", header(R"({"a":{"shape":)" + deep("[")), "an array"},
        Attack{"DepthInMetadata", header(R"({"__metadata__":{"a":)" + deep("{\"a\":")), "an object"},
        Attack{"ATensorTwice",
               file("{" + entry("a", "[3]", "[0,12]") + "," + entry("a", "[3]", "[12,24]") + "}", kData), "twice"},
        Attack{"ATensorTwiceByAnEscape",
               file("{" + entry("a", "[3]", "[0,12]") + "," + entry("\\u0061", "[3]", "[12,24]") + "}", kData),
               "twice"},
        Attack{"ADtypeTwice", header(R"({"a":{"dtype":"F32","dtype":"I64"}})"), "twice"},
        Attack{"OffsetsTwice", header(R"({"a":{"data_offsets":[0,1],"data_offsets":[0,2]}})"), "twice"},
        Attack{"AMetadataKeyTwice", header(R"({"__metadata__":{"k":"1","k":"2"}})"), "twice"},
        Attack{"MetadataTwice", header(R"({"__metadata__":{},"__metadata__":{}})"), "twice"},
        Attack{"MetadataThatIsATensor", header("{" + entry("__metadata__", "[6]", "[0,24]") + "}"), "header like"},
        Attack{"MetadataThatIsANumber", header(R"({"__metadata__":{"k":1}})"), "header like"},
        Attack{"AKeyThatNobodyKnows", header(R"({"a":{"strides":[1]}})"), "strides"},
        Attack{"ATensorWithoutDtype", header(R"({"a":{"shape":[6],"data_offsets":[0,24]}})"), "fewer"},
        Attack{"ATensorWithoutShape", header(R"({"a":{"dtype":"F32","data_offsets":[0,24]}})"), "fewer"},
        Attack{"ATensorWithoutOffsets", header(R"({"a":{"dtype":"F32","shape":[6]}})"), "fewer"},
        Attack{"OneOffset", one("[6]", "[24]"), "two data_offsets"},
        Attack{"ThreeOffsets", one("[6]", "[0,24,24]"), "two data_offsets"},
        Attack{"ADtypeThatNobodyKnows", one("[6]", "[0,24]", "F31"), "F31"},
        Attack{"ADtypeInLowerCase", one("[6]", "[0,24]", "f32"), "f32"},
        Attack{"TensorsThatOverlap", two("[0,12]", "[8,20]"), "overlap"},
        Attack{"TensorsInOnePlace", two("[0,12]", "[0,12]"), "overlap"},
        Attack{"AHoleBetweenTensors",
               file("{" + entry("a", "[3]", "[0,12]") + "," + entry("b", "[2]", "[16,24]") + "}", kData), "gap"},
        Attack{"AHoleBeforeTheFirst", one("[3]", "[12,24]"), "begin 0"},
        Attack{"BytesBehindTheLast", one("[3]", "[0,12]"), "24 bytes"},
        Attack{"BytesBehindAnEmptyHeader", file("{}", "x"), "1 bytes"},
        Attack{"OffsetsBeyondTheData", one("[9]", "[0,36]"), "24 bytes of data"},
        Attack{"OffsetsTurnedRound", one("[3]", "[12,0]"), "apart"},
        Attack{"OffsetsThatWrapRound", one("[3]", "[18446744073709551608,4]"), "apart"},
        Attack{"OffsetsPast2To64", one("[3]", "[0,18446744073709551628]"), "header like"},
        Attack{"NegativeOffsets", one("[3]", "[-12,0]"), "number -12"},
        Attack{"OffsetsThatAreStrings", one("[3]", R"(["0","12"])"), "string"},
        Attack{"OffsetsThatAreFractions", one("[3]", "[0.0,12.0]"), "0.0"},
        Attack{"AShapeOfMoreThanTheOffsets", one("[7]", "[0,24]"), "28 bytes apart"},
        Attack{"AShapeOfLessThanTheOffsets", one("[5]", "[0,24]"), "20 bytes apart"},
        Attack{"ADtypeOfOtherSizeThanTheOffsets", one("[6]", "[0,24]", "F64"), "48 bytes apart"},
        Attack{"AScalarOfNoBytes", one("[]", "[0,0]"), "4 bytes apart"},
        Attack{"AShapeWhoseProductOverflows", one("[4294967296,4294967296]", "[0,0]"), "2^63"},
        Attack{"AShapeWhoseBytesOverflow", one("[4611686018427387905]", "[0,4]"), "2^63"},
        Attack{"AnOverflowHiddenByAZero", one("[0,4294967296,4294967296]", "[0,0]"), "2^63"},
        Attack{"ASizeOf2To64Less1", one("[18446744073709551615]", "[0,0]"), "2^63"},
        Attack{"ASizeOf2To64", one("[18446744073709551616]", "[0,0]"), "18446744073709551616"},
        Attack{"ANegativeSize", one("[-6]", "[0,24]"), "number -6"},
        Attack{"ASizeWithAnExponent", one("[6e0]", "[0,24]"), "6e0"},
        Attack{"ASizeWithALeadingZero", one("[06]", "[0,24]"), "JSON"},
        Attack{"ASizeThatIsTrue", one("[true]", "[0,4]"), "true"},
        Attack{"AShapeOfNineDimensions", one("[1,1,1,1,1,1,1,1,6]", "[0,24]"), "8 dimensions"},
        Attack{"AShapeOfManyDimensions", one("[" + deep("1,") + "6]", "[0,24]"), "8 dimensions"}),
    name_of);

// ---- npy

std::string array_of(const std::string& shape, const std::string& data = "12345678",
                     const std::string& type = "'<f4'") {
  return npy(dict(type, "False", shape), data);
}

INSTANTIATE_TEST_SUITE_P(
    Npy, NpyAttack,
    testing::Values(Attack{"AnEmptyFile", "", "at least 10 bytes"},
                    Attack{"AHeaderBeyondTheFile", std::string("\x93NUMPY\x01\x00\xff\xff", 10), "65535 bytes"},
                    Attack{"AHeaderOf4GB", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "4294967295"},
                    Attack{"AVersionToCome", std::string("\x93NUMPY\x09\x00\x00\x00", 10), "version 9.0"},
                    Attack{"MoreElementsThanBytes", array_of("(3,)"), "12 bytes"},
                    Attack{"FewerElementsThanBytes", array_of("(1,)"), "4 bytes"},
                    Attack{"AShapeWhoseProductOverflows", array_of("(4294967296, 4294967296)"), "2^63"},
                    Attack{"AShapeWhoseBytesOverflow", array_of("(4611686018427387905,)"), "2^63"},
                    Attack{"AnOverflowHiddenByAZero", array_of("(0, 4294967296, 4294967296)", ""), "2^63"},
                    Attack{"ASizePast2To64", array_of("(18446744073709551618,)"), "2^64"},
                    Attack{"ANegativeSize", array_of("(-2,)"), "at least 0"},
                    Attack{"ASizeInHexadecimal", array_of("(0x2,)"), "comma"},
                    Attack{"ASizeWithALeadingZero", array_of("(02,)"), "leading zeros"},
                    Attack{"ASizeThatIsAnExpression", array_of("(1+1,)"), "comma"},
                    Attack{"ASizeThatIsAFraction", array_of("(2.0,)"), "comma"},
                    Attack{"ANumberForATuple", array_of("2"), "tuple"},
                    Attack{"AListForATuple", array_of("[2]"), "tuple"},
                    Attack{"NineDimensions", array_of("(1, 1, 1, 1, 1, 1, 1, 1, 2)"), "8 dimensions"},
                    Attack{"ManyTuplesDeep", array_of(std::string(10'000, '(')), "at least 0"},
                    Attack{"APickledObject", array_of("(1,)", "cos\nsystem\n", "'|O'"), "element type"},
                    Attack{"AnArrayWithFields", array_of("(1,)", "1234", "[('x', '<f4')]"), "fields"},
                    Attack{"AFunctionCallForADict", npy("__import__('os')", ""), "a dict"},
                    Attack{"AFunctionCallForAFlag", npy(dict("'<f4'", "exit()", "(1,)"), "1234"), "True or False"},
                    Attack{"AKeyTwice", npy("{'descr': '<f4', 'descr': '<f8'}", ""), "once"},
                    Attack{"AKeyThatNobodyKnows", npy("{'evil': 1}", ""), "evil"},
                    Attack{"TextBehindTheDict", npy(dict("'<f4'", "False", "(2,)") + "#", "12345678"),
                           "nothing after"}),
    name_of);

// ---- npz

std::string array() { return read(data_path("le_f4.npy")); }

Member with(void (*lie)(Member&), const std::string& data = array()) {
  Member member = honest("a.npy", data);
  lie(member);
  return member;
}
// A directory's 64-bit sizes, which stand for those that say 2^32 - 1.
std::string zip64(std::uint64_t size, std::uint64_t compressed) {
  Member member = honest("a.npy", array());
  member.size = member.compressed_size = 0xffffffffu;
  member.extra = number(1, 2) + number(16, 2) + number(size, 8) + number(compressed, 8);
  return zip({member});
}
std::string encrypted() {
  std::string bytes = zip({honest("a.npy", array())});
  bytes[6] = static_cast<char>(bytes[6] | 1);
  bytes[bytes.find("PK\x01\x02") + 8] |= 1;
  return bytes;
}
// An end of the directory that claims so many members.
std::string counting(std::uint16_t members) {
  std::string bytes = zip({honest("a.npy", array())});
  return bytes.replace(bytes.find("PK\x05\x06") + 8, 4, number(members, 2) + number(members, 2));
}
std::string quine_of_itself() { return zip({honest("a.npy", zip({honest("a.npy", array())}))}); }

INSTANTIATE_TEST_SUITE_P(
    Npz, NpzAttack,
    testing::Values(Attack{"ABombOfZeros", read(data_path("zeros.npz")), "at most 1000000 bytes"},
                    Attack{"ABombBehindAnHonestSize", zip({with([](Member& m) { m.size = 0x7fffffff, m.method = 8; })}),
                           "can hold"},
                    Attack{"AStoredMemberThatGrows", zip({with([](Member& m) { m.size *= 2; })}), "can hold"},
                    Attack{"AMemberBeyondTheFile",
                           zip({with([](Member& m) { m.size = m.compressed_size = 0x7fffffff; })}), "found"},
                    Attack{"AMemberOfFewerBytesThanItsArray",
                           zip({with([](Member& m) { m.size = m.compressed_size = 140; })}), "24 bytes"},
                    Attack{"AWrongChecksum", zip({with([](Member& m) { m.crc ^= 1; })}), "CRC"},
                    Attack{"AnEncryptedMember", encrypted(), "readable zip member"},
                    Attack{"AMethodThatNobodyUses", zip({with([](Member& m) { m.method = 99; })}), "found"},
                    Attack{"Zip64SizesOf2To63", zip64(std::uint64_t{1} << 63, std::uint64_t{1} << 63), "found"},
                    Attack{"Zip64SizesThatWrapRound", zip64(~std::uint64_t{0} - 100, 152), "found"},
                    Attack{"Zip64OfMoreThanTheFile", zip64(std::uint64_t{1} << 33, std::uint64_t{1} << 33), "found"},
                    Attack{"AZip64FieldCutOff", zip({with([](Member& m) {
                             m.size = m.compressed_size = 0xffffffffu;
                             m.extra = number(1, 2) + number(4, 2) + number(1, 4);
                           })}),
                           "found"},
                    Attack{"ANameTwice", zip({honest("a.npy", array()), honest("a.npy", array())}), "twice"},
                    Attack{"AMemberThatIsNoArray", zip({honest("data.pkl", "cos\nsystem\n")}), "*.npy"},
                    Attack{"AFolder", zip({honest("a.npy/", "")}), "*.npy"},
                    Attack{"AZipInAZip", quine_of_itself(), "an npy array"},
                    Attack{"MoreMembersThanThereAre", counting(60000), "zip"},
                    Attack{"FewerMembersThanThereAre", counting(0), "zip"},
                    Attack{"AnArrayOf4TBInAMember", zip({honest("a.npy", array_of("(999999999999,)"))}),
                           "3999999999996 bytes"},
                    Attack{"AZipBehindOtherBytes", "x" + zip({honest("a.npy", array())}), "a zip archive"},
                    Attack{"AnEmptyFile", "", "a zip archive"},
                    Attack{"AFirstMemberAlone", "PK\x03\x04", "a zip archive"}),
    name_of);

// A member's name is a key, never a path: nothing is unpacked.
TEST(NpzNames, ThatClimbAreNamesOnly) {
  for (const std::string name : {"../../../tmp/evil", "/etc/evil", "C:\\evil", "a/../../evil"}) {
    const std::string bytes = zip({honest(name + ".npy", array())});
    const auto found = io::parse_npz(bytes_of(bytes), "attack");
    ASSERT_EQ(found.tensors.size(), 1u);
    EXPECT_EQ(found.tensors[0].first, name);
  }
}

TEST(NpzLimit, IsWhatTheCallerSays) {
  const std::string bytes = read(data_path("zeros.npz"));  // 1 MB of zeros in 1 kB
  const std::uint64_t unpacked = 512 * 512 * 4 + 128;
  EXPECT_EQ(io::parse_npz(bytes_of(bytes), "x").tensors.size(), 1u);
  EXPECT_EQ(io::parse(bytes_of(bytes), "x", unpacked).tensors.size(), 1u);
  EXPECT_EQ(io::load_tensor(data_path("zeros.npz"), "", unpacked).numel(), 512 * 512);
  const auto refused = [](const auto& load) {
    expect_error(Error::Kind::data, {"at most 1048703 bytes", "1048704", "max_bytes", "--max-bytes"}, load);
  };
  refused([&] { io::parse(bytes_of(bytes), "x", unpacked - 1); });
  refused([&] { io::load(data_path("zeros.npz"), unpacked - 1); });
}

TEST(NpzLimit, IsOfAllMembersTogether) {
  const std::string bytes = zip({honest("a.npy", array()), honest("b.npy", array())});
  const std::uint64_t each = array().size();
  EXPECT_EQ(io::parse_npz(bytes_of(bytes), "x", 2 * each).tensors.size(), 2u);
  expect_error(Error::Kind::data, {"more at \"b.npy\""}, [&] { io::parse_npz(bytes_of(bytes), "x", 2 * each - 1); });
}

// ---- text

INSTANTIATE_TEST_SUITE_P(
    Csv, CsvAttack,
    testing::Values(Attack{"AFirstRowBeyondFloat32", "1e39,1e39\n1,2\n", "line 1, column 1"},
                    Attack{"AFirstRowBeyondFloat64", "1e999\n1\n", "line 1, column 1"},
                    Attack{"AFirstRowInHexadecimal", "0x10\n1\n", "line 1, column 1"},
                    Attack{"AFirstRowWithAUnicodeMinus", "−1,−2\n1,2\n", "line 1, column 1"},
                    Attack{"ALaterNumberBeyondFloat32", "1,2\n3,1e39\n", "line 2, column 2"},
                    Attack{"DecimalCommas", "1,5;2,5\n", "5;2"}, Attack{"AQuotedNumber", "\"1\"\n2\n", "line 1"},
                    Attack{"ANumberInTwoRadixes", "1\n0b11\n", "line 2"}, Attack{"RaggedRows", "1,2\n3\n", "2 columns"},
                    Attack{"AnEmptyField", "1,,3\n", "column 2"},
                    Attack{"ANumberSplitByAZeroByte", std::string("1\0002\n", 4), "line 1"},
                    Attack{"ANumberOfAMillionDigitsTooLarge", std::string(1'000'000, '9'), "line 1"},
                    Attack{"AFormula", "=1+1\n2\n", "line 1"}, Attack{"ASecondRowOfNames", "a\nb\n", "line 2"},
                    Attack{"OnlyNames", "a,b\n", "rows of numbers"}, Attack{"AnEmptyFile", "", "rows of numbers"}),
    name_of);

}  // namespace
}  // namespace attn::test
