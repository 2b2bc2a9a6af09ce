#include <algorithm>

#include "attn/io.hpp"
#include "io/forged.hpp"
#include "io/helpers.hpp"

namespace attn::test {
namespace {

using namespace forged;

io::NamedTensors parse_npz(std::string_view bytes) { return io::parse_npz(bytes_of(bytes), "test.npz"); }

void expect_bad_npz(std::string_view bytes, const std::vector<std::string>& parts) {
  expect_error(Error::Kind::data, parts, [&] { parse_npz(bytes); });
}

std::string array() { return read(data_path("le_f4.npy")); }

void expect_golden_archive(const io::NamedTensors& file) {
  EXPECT_EQ(file.format, io::Format::npz);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file.tensors) names.push_back(name);
  ASSERT_THAT(names, testing::ElementsAre("x", "turned", "mask", "none", "one", "größe"));
  expect_golden(*file.find("x"), DType::f32, {2, 3});
  expect_golden(*file.find("turned"), DType::i64, {2, 3, 4});
  expect_golden(*file.find("mask"), DType::boolean, {3});
  expect_golden(*file.find("none"), DType::f64, {0, 4});
  expect_golden(*file.find("one"), DType::f64, {});
  expect_golden(*file.find("größe"), DType::f16, {2});
}

TEST(Npz, ReadsStoredAndDeflated) {
  expect_golden_archive(parse_npz(read(data_path("stored.npz"))));
  expect_golden_archive(parse_npz(read(data_path("deflated.npz"))));
  EXPECT_TRUE(parse_npz(read(data_path("empty.npz"))).tensors.empty());
}

TEST(Npz, ReadsTheBestCompression) {
  const std::string bytes = read(data_path("zeros.npz"));
  const Tensor zeros = parse_npz(bytes).tensors.at(0).second;
  EXPECT_EQ(zeros.shape(), (Shape{512, 512}));
  EXPECT_THAT(values_of(zeros), testing::Each(0.0));
  EXPECT_GT(512u * 512u * 4u, bytes.size() * 500);
}

TEST(Npz, ReadsWhatThisFileBuilds) {
  const auto file = parse_npz(zip({honest("a.npy", array()), honest("folder/b.npy", array())}));
  expect_golden(*file.find("a"), DType::f32, {2, 3});
  expect_golden(*file.find("folder/b"), DType::f32, {2, 3});
}

TEST(Npz, RejectsOtherMembers) {
  expect_bad_npz(zip({honest("a.npy", array()), honest("a.npy", array())}), {"\"a.npy\" twice"});
  expect_bad_npz(zip({honest("archive/data.pkl", "x")}), {"*.npy", "archive/data.pkl", "safetensors"});
  expect_bad_npz(zip({honest("folder/", "")}), {"*.npy"});
  expect_bad_npz(zip({honest("a.npy", "not an array")}), {"an npy array", "\"a.npy\" of test.npz"});
  expect_bad_npz(zip({honest("a.npy", "")}), {"at least 10 bytes"});
  Member lzma = honest("a.npy", array());
  lzma.method = 14;
  expect_bad_npz(zip({lzma}), {"stored or deflated", "14"});
}

TEST(Npz, RejectsDamage) {
  Member wrong = honest("a.npy", array());
  wrong.crc ^= 1;
  expect_bad_npz(zip({wrong}), {"CRC"});
  expect_bad_npz("PK\x03\x04 and no more", {"a zip archive"});
  expect_bad_npz("", {"a zip archive"});
  std::string encrypted = zip({honest("a.npy", array())});
  encrypted[6] = static_cast<char>(encrypted[6] | 1);
  encrypted[encrypted.find("PK\x01\x02") + 8] |= 1;
  expect_bad_npz(encrypted, {"a readable zip member"});
}

TEST(Npz, RejectsSizesThatLie) {
  Member more = honest("a.npy", array());
  more.size = 0x7fffffff;
  expect_bad_npz(zip({more}), {"compressed bytes can hold", "2147483647"});
  more.compressed_size = 0x7fffffff;
  expect_bad_npz(zip({more}), {"found"});
  Member less = honest("a.npy", array());
  less.size = less.compressed_size = 140;
  expect_bad_npz(zip({less}), {"24 bytes", "12 bytes"});
  Member bomb = honest("a.npy", array());  // deflate cannot make this of 152 bytes
  bomb.method = 8;
  bomb.size = 1 << 20;
  expect_bad_npz(zip({bomb}), {"compressed bytes can hold"});
}

// The member unpacks to more than its size in the zip, although its array is whole within that size.
TEST(Npz, RejectsAMemberThatIsLongerThanItSays) {
  const std::string whole = array(), longer = whole + "and more";
  for (const std::string& checked : {whole, longer}) {  // whichever bytes the checksum is of
    const auto length = static_cast<std::uint16_t>(longer.size());
    const std::string block = "\x01" + number(length, 2) + number(static_cast<std::uint16_t>(~length), 2) + longer;
    const Member lie{
        "a.npy",        block, static_cast<std::uint32_t>(block.size()), static_cast<std::uint32_t>(whole.size()),
        crc32(checked), 8};
    expect_bad_npz(zip({lie}), {"the size that the zip declares", "more bytes"});
  }
}

TEST(Npz, RejectsAHeaderLargerThanItsMember) {
  std::string lie = array();
  lie.replace(lie.find("(2, 3)"), 6, "(2,999");
  lie.replace(lie.find("(2,999"), 20, "(999999999999,), }  ");
  expect_bad_npz(zip({honest("a.npy", lie)}), {"3999999999996 bytes", "24 bytes"});
}

// Deflated zeros whose central directory understates, then overstates, the size.
TEST(Npz, RejectsABombWhateverItDeclares) {
  for (const std::uint64_t declared : {std::uint64_t{200}, std::uint64_t{1048576 - 4}, std::uint64_t{1048576 + 132}}) {
    SCOPED_TRACE(declared);
    std::string bytes = read(data_path("zeros.npz"));
    const std::string real = number(512 * 512 * 4 + 128, 4);
    for (std::size_t at = bytes.find(real); at != std::string::npos; at = bytes.find(real, at + 1)) {
      bytes.replace(at, 4, number(declared, 4));
    }
    expect_bad_npz(bytes, {"1048576 bytes"});
  }
}

// Members that share their compressed bytes multiply what a small file can ask for.
TEST(Npz, RejectsOverlappingMembers) {
  const std::string one = zip({honest("a.npy", array())});
  const std::size_t directory = one.find("PK\x01\x02"), end = one.find("PK\x05\x06");
  std::string entries;
  for (char name = 'a'; name <= 'z'; ++name) {
    std::string entry = one.substr(directory, end - directory);
    entry[entry.size() - 5] = name;
    entries += entry;
  }
  expect_bad_npz(one.substr(0, directory) + entries + "PK\x05\x06" + number(0, 4) + number(26, 2) + number(26, 2) +
                     number(entries.size(), 4) + number(directory, 4) + number(0, 2),
                 {"lie apart"});
}

using NpzFile = FolderTest;

TEST_F(NpzFile, RoundTrips) {
  io::NamedTensors tensors;
  for (const DType dtype : kDTypes) {
    tensors.tensors.emplace_back(std::string(name(dtype)), golden(dtype, {4, 3, 2}).transpose(0, 2));
  }
  tensors.tensors.emplace_back("none", golden(DType::f32, {0, 2}));
  tensors.tensors.emplace_back("one", golden(DType::f32, {}));
  io::save_npz(path("x.npz"), tensors);
  const auto found = io::load(path("x.npz"));
  ASSERT_EQ(found.tensors.size(), tensors.tensors.size());
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    const auto& [name, tensor] = tensors.tensors[i];
    EXPECT_EQ(found.tensors[i].first, name);
    expect_same(found.tensors[i].second, tensor.dtype() == DType::bf16 ? tensor.to(DType::f32) : tensor);
  }
}

// Arrays of objects, and files that are no arrays, are passed over; an error says how to do so.
TEST_F(NpzFile, AnArrayIsReadByItsNameWhateverElseThereIs) {
  Member bomb = honest("bomb.npy", array());
  bomb.size = 0x7fffffff;
  const std::string objects = read(data_path("unsupported_object.npy"));
  const std::vector<std::pair<Member, std::string>> others{{honest("a.npy", objects), "\"a.npy\" of "},
                                                           {honest("readme.txt", "text"), "found \"readme.txt\""},
                                                           {bomb, "compressed bytes can hold"}};
  for (const auto& [other, told] : others) {
    SCOPED_TRACE(other.name);
    write(path("x.npz"), zip({other, honest("x.npy", array())}));
    expect_golden(io::load_tensor(path("x.npz"), "x"), DType::f32, {2, 3});
    expect_error(Error::Kind::data, {told}, [&] { io::load_tensor(path("x.npz")); });
    expect_error(Error::Kind::argument, {"a tensor named \"y\"", "\"x\""},
                 [&] { io::load_tensor(path("x.npz"), "y"); });
    if (other.size == 0x7fffffff) continue;
    expect_error(Error::Kind::data, {"name an array, to read it alone"}, [&] { io::load_tensor(path("x.npz")); });
  }
  write(path("x.npz"), zip({bomb, honest("x.npy", array())}));
  expect_error(Error::Kind::data, {"compressed bytes can hold"}, [&] { io::load_tensor(path("x.npz"), "bomb"); });
  expect_error(Error::Kind::data, {"at most 100 bytes unpacked"}, [&] { io::load_tensor(path("x.npz"), "x", 100); });
  write(path("x.npz"), zip({honest("x.npy", array()), honest("x.npy", array())}));
  expect_error(Error::Kind::data, {"\"x.npy\" twice"}, [&] { io::load_tensor(path("x.npz"), "x"); });
  write(path("x.npz"), zip({honest("archive/data.pkl", "x")}));
  expect_error(Error::Kind::data, {"archive/data.pkl", "safetensors"}, [&] { io::load_tensor(path("x.npz"), "x"); });
}

TEST_F(NpzFile, WritesTheSameBytesEachTime) {
  const io::NamedTensors tensors{.tensors = {{"x", golden(DType::f32, {2, 3})}}};
  io::save_npz(path("a.npz"), tensors);
  io::save_npz(path("b.npz"), tensors);
  const std::string bytes = read(path("a.npz"));
  EXPECT_EQ(bytes, read(path("b.npz")));
  EXPECT_NE(bytes.find(array()), std::string::npos) << "stored, not deflated";
  EXPECT_EQ(bytes.substr(10, 4), number(0x00210000, 4)) << "1980-01-01, as NumPy dates them";
}

TEST_F(NpzFile, WritesNothing) {
  io::save_npz(path("empty.npz"), {});
  EXPECT_EQ(read(path("empty.npz")), read(data_path("empty.npz")));
  EXPECT_TRUE(io::load(path("empty.npz")).tensors.empty());
}

// Nothing of a file is passed over in silence: neither what is glued to its end, nor a comment.
TEST_F(NpzFile, RefusesBytesBehindItsDirectory) {
  io::save_npz(path("x.npz"), {.tensors = {{"x", golden(DType::f32, {2})}}});
  const std::string good = read(path("x.npz"));
  std::string comment = good + "note";
  comment[good.size() - 2] = 4;  // its length
  for (const std::string& bytes : {good + "tail", comment}) {
    expect_error(Error::Kind::data, {"ends with its directory"},
                 [&] { io::parse_npz(std::as_bytes(std::span(bytes)), "x"); });
  }
}

TEST_F(NpzFile, RefusesNamesThatClash) {
  const Tensor x = golden(DType::f32, {2});
  const auto refuses = [&](const char* part, const io::NamedTensors& file) {
    expect_error(Error::Kind::argument, {part}, [&] { io::save_npz(path("x.npz"), file); });
  };
  refuses("\"x\" twice", {.tensors = {{"x", x}, {"x", x}}});
  refuses("zero byte", {.tensors = {{std::string("a\0b", 3), x}}});
  refuses("found", {.tensors = {{"\xff\xfe", x}}});
  refuses("a name of 70000 bytes", {.tensors = {{std::string(70000, 'x'), x}}});
  refuses("a name of 65532 bytes", {.tensors = {{std::string(65532, 'x'), x}}});
  refuses("no place: \"step\"", {.tensors = {{"x", x}}, .metadata = {{"step", "7"}}});
  EXPECT_TRUE(names().empty());
  io::save_npz(path("x.npz"), {.tensors = {{std::string(65531, 'x'), x}}});
  EXPECT_EQ(io::load(path("x.npz")).tensors.front().first.size(), 65531u);
}

}  // namespace
}  // namespace attn::test
