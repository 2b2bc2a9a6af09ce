// Some rows of a file, and files that several write.
#include <sys/stat.h>

#include <fstream>

#include "attn/io.hpp"
#include "io/helpers.hpp"
#include "io/rows_file.hpp"
#include "io/shared_file.hpp"

namespace attn::test {
namespace {

using io::RowsFile;
using io::SharedFile;
using Runs = std::vector<RowsFile::Run>;

class Rows : public FolderTest {
 protected:
  const Tensor whole_ = numbered({2, 3, 10, 4});
  const Runs first_{{0, 2}, {7, 10}}, second_{{2, 7}};

  static Tensor numbered(const Shape& shape) {
    const Tensor tensor = Tensor::empty(shape);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = static_cast<float>(i % 251);
    return tensor;
  }
  // Copies the rows by select() alone.
  static Tensor rows_of(const Tensor& t, const Runs& runs, std::int64_t dim = -2) {
    std::int64_t count = 0, at = 0;
    for (const auto& [first, last] : runs) count += last - first;
    Shape shape = t.shape();
    shape[static_cast<std::size_t>(static_cast<std::int64_t>(shape.size()) + dim)] = count;
    const Tensor rows = Tensor::empty(shape, t.dtype());
    for (const auto& [first, last] : runs) {
      for (std::int64_t i = first; i < last; ++i) rows.select(dim, at++).copy_from(t.select(dim, i));
    }
    return rows;
  }
};

// Files of which only some rows are needed are not read as a whole.
TEST_F(Rows, AreReadWhenTheyAreAskedFor) {
  io::save_npy(path("x.npy"), whole_);
  io::save_tensor(path("x.safetensors"), whole_);
  for (const char* name : {"x.npy", "x.safetensors"}) {
    const RowsFile file(path(name));
    std::fstream later(path(name), std::ios::in | std::ios::out | std::ios::binary);
    later.seekp(-static_cast<std::streamoff>(sizeof(float)), std::ios::end);
    const float other = -5;
    later.write(reinterpret_cast<const char*>(&other), sizeof other);
    later.close();
    EXPECT_EQ(file.load(Runs{{9, 10}}).at({1, 2, 0, 3}), -5) << name;
  }
}

TEST_F(Rows, AreReadFromEveryFormat) {
  io::save_npy(path("x.npy"), whole_);
  io::save_tensor(path("x.safetensors"), whole_.to(DType::bf16));
  io::save_tensor(path("x.npz"), whole_);
  for (const char* name : {"x.npy", "x.safetensors", "x.npz"}) {
    const RowsFile file(path(name));
    EXPECT_EQ(file.shape(), whole_.shape()) << name;
    EXPECT_EQ(file.rows(), 10);
    for (const Runs& runs : {first_, second_, Runs{}, Runs{{0, 10}}}) {
      expect_same(file.load(runs), rows_of(whole_, runs).to(file.dtype()));
    }
  }
  io::save_csv(path("x.csv"), whole_.select(0, 0).select(0, 0));
  expect_same(RowsFile(path("x.csv")).load(Runs{{3, 5}}), whole_.select(0, 0).select(0, 0).slice(0, 3, 5));
}

// Column by column, and with the most significant byte first.
TEST_F(Rows, AreReadInEveryOrder) {
  const auto npy = [](const char* descr, const char* order, const std::string& elements) {
    std::string dict = std::string("{'descr': '") + descr + "', 'fortran_order': " + order + ", 'shape': (3, 2), }";
    dict.append(117 - dict.size(), ' ').append("\n");
    std::string file("\x93NUMPY\x01\x00", 8);
    file.push_back(static_cast<char>(dict.size()));
    return file.append(1, '\0').append(dict).append(elements);
  };
  write(path("columns.npy"), npy("|i1", "True", std::string("\x01\x02\x03\x04\x05\x06", 6)));
  expect_same(RowsFile(path("columns.npy")).load(Runs{{1, 3}}), Tensor::of({{2, 5}, {3, 6}}).to(DType::i8));
  write(path("big.npy"), npy(">i4", "False", std::string("\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\1\0\0\0\0\6", 24)));
  expect_same(RowsFile(path("big.npy")).load(Runs{{1, 3}}), Tensor::of({{3, 4}, {256, 6}}).to(DType::i32));
}

TEST_F(Rows, OfAFileThatIsCutOffAreNone) {
  io::save_npy(path("x.npy"), whole_);
  std::filesystem::resize_file(path("x.npy"), std::filesystem::file_size(path("x.npy")) - 1);
  expect_error(Error::Kind::data, {"960 bytes", "959"}, [&] { RowsFile(path("x.npy")); });
  io::save_npy(path("line.npy"), Tensor::of({1, 2}));
  expect_error(Error::Kind::shape, {"rows", "(2,)"}, [&] { RowsFile(path("line.npy")); });
  expect_error(Error::Kind::file, {"nofile"}, [&] { RowsFile(path("nofile.npy")); });
}

// The bytes of a file that one process writes, and until the last call nothing or the old file.
TEST_F(Rows, OfSeveralBecomeOneFile) {
  for (const char* name : {"x.npy", "x.safetensors"}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor tensor = whole_.to(dtype);
      io::save_tensor(path(name), tensor);
      const std::string want = read(path(name));
      write(path(name), "old");
      chmod(path(name).c_str(), 0640);
      {
        SharedFile one(path(name), tensor.shape(), dtype, 2);
        SharedFile other(path(name), one.temporary(), tensor.shape(), dtype, 2);
        other.write(second_, rows_of(tensor, second_)), other.finish();
        one.write(first_, rows_of(tensor, first_)), one.finish();
        EXPECT_EQ(read(path(name)), "old");
        one.commit();
      }
      EXPECT_EQ(read(path(name)), want) << name;
      struct stat info {};
      stat(path(name).c_str(), &info);
      EXPECT_EQ(info.st_mode & 0777, 0640u);
    }
  }
}

TEST_F(Rows, WithoutACommitNothingIsThere) {
  {
    SharedFile one(path("x.npy"), whole_.shape(), DType::f32, 2);
    one.write(first_, rows_of(whole_, first_));
    EXPECT_EQ(names().size(), 1u);
  }
  EXPECT_EQ(names().size(), 0u);
  expect_error(Error::Kind::file, {"all ranks share", "all machines"},
               [&] { SharedFile(path("x.npy"), "/nowhere/.attn", whole_.shape(), DType::f32, 2); });
  expect_error(Error::Kind::argument, {".npy or .safetensors"},
               [&] { SharedFile(path("x.csv"), whole_.shape(), DType::f32, 2); });
  ASSERT_EQ(mkfifo(path("pipe.npy").c_str(), 0600), 0);
  expect_error(Error::Kind::argument, {"several ranks can write"},
               [&] { SharedFile(path("pipe.npy"), whole_.shape(), DType::f32, 2); });
}

// Numbers of rows, as log-sum-exps are: the last dimension.
TEST_F(Rows, MayBeNumbers) {
  const Tensor lse = numbered({2, 10});
  SharedFile file(path("lse.npy"), lse.shape(), DType::f32, 1);
  file.write(first_, rows_of(lse, first_, -1));
  file.write(second_, lse.slice(1, 2, 7));
  file.commit();
  expect_same(io::load_tensor(path("lse.npy")), lse);
}

}  // namespace
}  // namespace attn::test
