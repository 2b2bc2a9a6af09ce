#include <map>

#include "attn/io.hpp"
#include "io/forged.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

using namespace forged;

const std::map<std::string, DType> kCodes{{"f8", DType::f64}, {"f4", DType::f32},    {"f2", DType::f16},
                                          {"i8", DType::i64}, {"i4", DType::i32},    {"i1", DType::i8},
                                          {"u1", DType::u8},  {"b1", DType::boolean}};

Tensor parse_npy(std::string_view bytes) { return io::parse_npy(bytes_of(bytes), "test.npy"); }
Tensor golden_npy(const std::string& name) { return parse_npy(read(data_path(name))); }

void expect_bad_npy(const std::string& bytes, const std::vector<std::string>& parts) {
  expect_error(Error::Kind::data, parts, [&] { parse_npy(bytes); });
}

TEST(Npy, ReadsEveryTypeInBothByteOrders) {
  for (const auto& [code, dtype] : kCodes) {
    SCOPED_TRACE(code);
    expect_golden(golden_npy("le_" + code + ".npy"), dtype, {2, 3});
    expect_golden(golden_npy("be_" + code + ".npy"), dtype, {2, 3});
  }
}

TEST(Npy, ReadsFortranOrder) {
  for (const auto& [code, dtype] : kCodes) {
    SCOPED_TRACE(code);
    expect_golden(golden_npy("fortran_" + code + ".npy"), dtype, {2, 3, 4});
  }
  expect_golden(golden_npy("fortran_be_i8.npy"), DType::i64, {2, 3, 4});
}

TEST(Npy, ReadsEveryVersion) {
  expect_golden(golden_npy("version2.npy"), DType::f32, {2, 3});
  expect_golden(golden_npy("version3.npy"), DType::f32, {2, 3});
}

TEST(Npy, ReadsEveryRank) {
  expect_golden(golden_npy("rank0.npy"), DType::f64, {});
  expect_golden(golden_npy("rank1.npy"), DType::f32, {5});
  expect_golden(golden_npy("rank8.npy"), DType::f32, {1, 2, 1, 3, 1, 1, 2, 1});
  expect_golden(golden_npy("empty.npy"), DType::f32, {0, 3});
  expect_golden(golden_npy("empty_fortran.npy"), DType::f32, {3, 0, 2});
  EXPECT_TRUE(golden_npy("empty.npy").defined());
  expect_bad_npy(read(data_path("rank9.npy")), {"at most 8 dimensions", "test.npy"});
}

TEST(Npy, NamesWhatItSupports) {
  for (const std::string name : {"u2", "c8", "string", "object"}) {
    SCOPED_TRACE(name);
    expect_bad_npy(read(data_path("unsupported_" + name + ".npy")), {"[parse_npy]", "f2 f4 f8 i1 u1 i4 i8 b1"});
  }
  expect_bad_npy(read(data_path("unsupported_fields.npy")), {"not one with fields"});
  for (const std::string descr : {"'f4'", "'=f4'", "'|f4'", "'<f16'", "'<f'", "''", "'<U3'", "'<M8[ns]'", "'<V4'"}) {
    SCOPED_TRACE(descr);
    expect_bad_npy(npy(dict(descr, "False", "(1,)"), "1234"), {"f2 f4 f8 i1 u1 i4 i8 b1"});
  }
}

TEST(Npy, NormalisesBooleans) {
  const Tensor mask = parse_npy(npy(dict("'|b1'", "False", "(4,)"), std::string("\x00\x01\x02\xff", 4)));
  const auto* raw = static_cast<const unsigned char*>(mask.raw());
  EXPECT_THAT(std::vector<int>(raw, raw + 4), testing::ElementsAre(0, 1, 1, 1));
}

TEST(Npy, TakesOtherSpellingsOfTheDict) {
  const std::string spelling = "{\"shape\":(1L,),\"fortran_order\":True,\"descr\":\"<f4\"}";
  EXPECT_EQ(parse_npy(npy(spelling, std::string("\0\0\x80\x3f", 4))).at({0}), 1.0);
}

TEST(Npy, RejectsDictsThatLie) {
  const std::string f4 = "'<f4'", no = "False";
  expect_bad_npy(npy(dict(f4, no, "(2,)"), "1234567"), {"8 bytes", "7 bytes", "cut off"});
  expect_bad_npy(npy(dict(f4, no, "(2,)"), "123456789"), {"8 bytes", "9 bytes"});
  expect_bad_npy(npy(dict(f4, no, "(4611686018427387904,)"), "1234"), {"2^63"});
  expect_bad_npy(npy(dict(f4, no, "(4294967296, 4294967296)"), ""), {"2^63"});
  expect_bad_npy(npy(dict(f4, no, "(0, 4294967296, 4294967296)"), ""), {"2^63"});
  expect_bad_npy(npy(dict(f4, no, "(9223372036854775808,)"), ""), {"2^63"});
  expect_bad_npy(npy(dict(f4, no, "(99999999999999999999,)"), ""), {"2^64"});
  expect_bad_npy(npy(dict(f4, no, "(-1,)"), ""), {"at least 0", "-1"});
  expect_bad_npy(npy(dict(f4, no, "(3)"), "123456789012"), {"tuple"});
  expect_bad_npy(npy(dict(f4, no, "3"), "123456789012"), {"tuple"});
  expect_bad_npy(npy(dict(f4, no, "(,)"), "1234"), {"a size"});
  expect_bad_npy(npy(dict(f4, no, "(1.5,)"), "1234"), {"comma"});
  expect_bad_npy(npy(dict(f4, no, "(02,)"), "12345678"), {"leading zeros", "02"});  // Python's octal of old
  expect_bad_npy(npy(dict(f4, "0", "(1,)"), "1234"), {"True or False"});
  expect_bad_npy(npy(dict("[('x', '<f4')]", no, "(1,)"), "1234"), {"fields"});
  expect_bad_npy(npy("{'descr': '<f4", ""), {"closing quote"});
}

TEST(Npy, RejectsOtherDicts) {
  expect_bad_npy(npy("", ""), {"a dict"});
  expect_bad_npy(npy("[]", ""), {"a dict"});
  expect_bad_npy(npy("{}", ""), {"descr, fortran_order and shape"});
  expect_bad_npy(npy("{'descr': '<f4', 'shape': (1,)}", "1234"), {"descr, fortran_order and shape"});
  expect_bad_npy(npy("{'descr': '<f4', 'descr': '<f4'}", ""), {"once", "descr"});
  expect_bad_npy(npy("{'evil': 1}", ""), {"evil"});
  expect_bad_npy(npy("{'descr' '<f4'}", ""), {"colon"});
  expect_bad_npy(npy(dict("'<f4'", "False", "(1,)") + "x", "1234"), {"nothing after"});
  expect_bad_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)", "1234"), {"its end"});
}

TEST(Npy, RejectsOtherPreambles) {
  expect_bad_npy("", {"at least 10 bytes"});
  expect_bad_npy(std::string("\x93NUMPZ\x01\x00\x00\x00", 10), {"an npy array"});
  expect_bad_npy(std::string("\x93NUMPY\x04\x00\x00\x00", 10), {"version 4.0"});
  expect_bad_npy(std::string("\x93NUMPY\x01\x01\x00\x00", 10), {"version 1.1"});
  expect_bad_npy(std::string("\x93NUMPY\x02\x00\x00\x00", 10), {"the end of the bytes"});
  expect_bad_npy(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), {"65535", "4294967295"});
  expect_bad_npy(std::string("\x93NUMPY\x01\x00\xff\xff", 10), {"65535 bytes", "0 bytes"});
  const std::string whole = npy(dict("'<f4'", "False", "(1,)"), "");
  expect_bad_npy(whole.substr(0, whole.size() - 4),
                 {"an npy header of", std::to_string(whole.size() - 14) + " bytes", "the file is cut off"});
}

using NpyFile = FolderTest;

TEST_F(NpyFile, WritesTheBytesThatNumPyWrites) {
  for (const auto& [code, dtype] : kCodes) {
    SCOPED_TRACE(code);
    io::save_npy(path("x.npy"), golden(dtype, {2, 3}));
    EXPECT_EQ(read(path("x.npy")), read(data_path("le_" + code + ".npy")));
  }
  io::save_npy(path("x.npy"), golden(DType::f64, {}));
  EXPECT_EQ(read(path("x.npy")), read(data_path("rank0.npy")));
  io::save_npy(path("x.npy"), golden(DType::f32, {0, 3}));
  EXPECT_EQ(read(path("x.npy")), read(data_path("empty.npy")));
}

TEST_F(NpyFile, WritesViewsAndBfloat16) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name(dtype));
    const Tensor view = golden(dtype, {4, 3, 2}).transpose(0, 2).slice(1, 1, 3);
    ASSERT_FALSE(view.is_contiguous());
    io::save_npy(path("view.npy"), view);
    expect_same(io::load_tensor(path("view.npy")), dtype == DType::bf16 ? view.to(DType::f32) : view);
  }
  io::save_npy(path("expanded.npy"), golden(DType::f32, {2, 1}).expand({2, 3}));
  EXPECT_THAT(values_of(io::load_tensor(path("expanded.npy"))), testing::ElementsAre(-1.5, -1.5, -1.5, -1, -1, -1));
}

TEST_F(NpyFile, RefusesAnUndefinedTensor) {
  expect_error(Error::Kind::argument, {"undefined"}, [&] { io::save_npy(path("x.npy"), Tensor()); });
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace attn::test
