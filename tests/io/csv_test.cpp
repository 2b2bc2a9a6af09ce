#include <cmath>
#include <limits>

#include "attn/io.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

Tensor parse(std::string_view text) { return io::parse_csv(text, "test.csv"); }

void expect_bad_csv(std::string_view text, const std::vector<std::string>& parts) {
  expect_error(Error::Kind::data, parts, [&] { parse(text); });
}

TEST(Csv, ReadsGoldenFiles) {
  expect_golden(io::load_tensor(data_path("savetxt.csv")), DType::f32, {4, 3});
  expect_golden(io::load_tensor(data_path("semicolons.csv")), DType::f32, {4, 3});
}

TEST(Csv, TakesEverySeparator) {
  for (const char* text :
       {"1,2,3\n4,5,6\n", "1;2;3\n4;5;6", "1\t2\t3\r\n4\t5\t6\r\n", "  1  2 3\n4 5   6 \n", "1, 2 ,3\n4 ,5,6\n",
        "\xef\xbb\xbf"
        "1,2,3\n4,5,6",
        "1,2,3\n4 5 6\n"}) {
    SCOPED_TRACE(text);
    const Tensor table = parse(text);
    EXPECT_EQ(table.shape(), (Shape{2, 3}));
    EXPECT_THAT(values_of(table), testing::ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Csv, SkipsCommentsBlankLinesAndOneRowOfNames) {
  const Tensor table = parse("# made by hand\n\nx,y\n\n1,2 # first\n# between\n3,4\n\n");
  EXPECT_THAT(values_of(table), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(parse("7").shape(), (Shape{1, 1}));
  EXPECT_EQ(parse("1\n2\n3").shape(), (Shape{3, 1}));
}

TEST(Csv, ReadsSpecialNumbers) {
  const Tensor row = parse("nan,inf,-inf,+1.5,-0,1e-3,1e-50,1e-45,3.4028235e38");
  const float* v = row.data<float>();
  EXPECT_TRUE(std::isnan(v[0]));
  EXPECT_EQ(v[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(v[2], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(v[3], 1.5f);
  EXPECT_TRUE(std::signbit(v[4]));
  EXPECT_EQ(v[5], 1e-3f);
  EXPECT_EQ(v[6], 0.0f);
  EXPECT_EQ(v[7], std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(v[8], std::numeric_limits<float>::max());
}

TEST(Csv, RoundsWhatIsTooSmall) {
  const Tensor row = parse("1e-400,-1e-400,1e-99999999999999999999,0.0e999,0." + std::string(400, '0') + "1,1" +
                           std::string(400, '0') + "e-800");
  for (const double value : values_of(row)) EXPECT_EQ(value, 0);
  EXPECT_TRUE(std::signbit(row.data<float>()[1]));
  EXPECT_EQ(parse("0." + std::string(400, '0') + "1e401").at({0, 0}), 1);
  EXPECT_EQ(parse("1" + std::string(400, '0') + "e-400").at({0, 0}), 1);
}

TEST(Csv, TakesAFirstRowWithoutNumbersAsNames) {
  for (const char* names : {"x,y", "x,", ",y", "d2,d1", "\"a\",b", "größe,高さ", "é,-", "information,nano", "_1,_2"}) {
    SCOPED_TRACE(names);
    EXPECT_THAT(values_of(parse(std::string(names) + "\n1,2\n")), testing::ElementsAre(1, 2));
  }
}

// A first row that looks like numbers is never taken for names, which would lose it.
TEST(Csv, RejectsAFirstRowOfWhatLooksLikeNumbers) {
  for (const char* cell :
       {"1e39", "-1e39", "1e999", "0x10",    "-0x1p3", "−1",     "–1",    "－1", "＋1",   "\u00a01", "１",  "٣",
        "1O",   "2nd",   "$5",    "\"1.5\"", "(1)",    "1.#INF", "1.2.3", "1e",  "1_000", "+-1",     ".5.", "1d5"}) {
    SCOPED_TRACE(cell);
    expect_bad_csv(std::string(cell) + "\n1\n", {"float32", "line 1, column 1"});
    expect_bad_csv("x," + std::string(cell) + "\n1,2\n", {"line 1, column"});
    expect_bad_csv("x\n" + std::string(cell) + "\n", {"line 2, column 1"});
  }
  for (const char* row : {",\n1,2\n", "-,-\n1,2\n", "?;?\n1;2\n"}) expect_bad_csv(row, {"line 1, column 1"});
}

TEST(Csv, OpensCommentsBehindBlanksAndSeparatorsOnly) {
  EXPECT_THAT(values_of(parse("#c\n1,2 #c\n3\t4 # c#\n")), testing::ElementsAre(1, 2, 3, 4));
  expect_bad_csv("2,1.#QNAN\n", {"1.#QNAN", "column 2"});
}

TEST(Csv, RejectsRaggedRows) {
  expect_bad_csv("1,2\n3,4\n# no\n5\n", {"2 columns", "1 in line 4", "test.csv"});
  expect_bad_csv("1 2\n3 4 5\n", {"2 columns", "3 in line 2"});
}

TEST(Csv, RejectsWhatIsNoNumber) {
  expect_bad_csv("1,2\n3,four\n", {"\"four\" in line 2, column 2"});
  expect_bad_csv("x,y\nu,v\n", {"\"u\" in line 2, column 1"});
  expect_bad_csv("1,x\n", {"\"x\" in line 1"});  // not a row of names: one is a number
  expect_bad_csv("1,,3\n", {"\"\" in line 1, column 2"});
  expect_bad_csv("1,2,\n", {"\"\" in line 1, column 3"});
  expect_bad_csv("1,5;2,5\n", {"\"5;2\""});  // decimal commas are not misread
  for (const char* text :
       {"1,1e39", "1,-1e39", "1,1e999", "1,0x10", "1,+-1", "1,−1", "1,++1", "1,+", "1,1.2.3", "1,\"2\""}) {
    SCOPED_TRACE(text);
    expect_bad_csv(text, {"float32", "column 2"});
  }
  expect_bad_csv(std::string("1,\0", 3), {"\"\\u0000\""});
}

TEST(Csv, RejectsFilesWithoutRows) {
  for (const char* text : {"", "\n\n", "# only a comment", "x,y\n", "   "})
    expect_bad_csv(text, {"rows of numbers", "none"});
}

using CsvFile = FolderTest;

TEST_F(CsvFile, RoundTripsToTheLastBit) {
  Tensor table = Tensor::empty({2, 3});
  const std::array values{0.1f, -1.0f / 3, 1e-45f, 3.4028235e38f, -0.0f, std::numeric_limits<float>::infinity()};
  std::copy(values.begin(), values.end(), table.data<float>());
  io::save_csv(path("x.csv"), table);
  EXPECT_EQ(values_of(io::load_tensor(path("x.csv"))), values_of(table));
}

TEST_F(CsvFile, WritesEveryTypeAndViews) {
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name(dtype));
    const Tensor view = golden(dtype, {3, 4}).transpose(0, 1);
    io::save_csv(path("x.csv"), view);
    EXPECT_EQ(values_of(io::load_tensor(path("x.csv"))), values_of(view));
  }
  Tensor large = Tensor::empty({1}, DType::i64);
  *large.data<std::int64_t>() = 9007199254740993;  // 2^53 + 1
  io::save_csv(path("x.csv"), large);
  EXPECT_EQ(read(path("x.csv")), "9007199254740993\n");
}

TEST_F(CsvFile, WritesRowsAndColumns) {
  io::save_csv(path("x.csv"), Tensor::of({{1, 2.5f}, {-3, 4}}));
  EXPECT_EQ(read(path("x.csv")), "1,2.5\n-3,4\n");
  io::save_csv(path("x.csv"), Tensor::of({1, 2}));
  EXPECT_EQ(read(path("x.csv")), "1\n2\n");
  io::save_csv(path("x.csv"), Tensor::empty({0, 2}));
  EXPECT_EQ(read(path("x.csv")), "");
  expect_error(Error::Kind::shape, {"rank 1 or 2"}, [&] { io::save_csv(path("y.csv"), Tensor::zeros({1, 1, 1})); });
  EXPECT_FALSE(std::filesystem::exists(path("y.csv")));
}

}  // namespace
}  // namespace attn::test
