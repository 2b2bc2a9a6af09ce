// What the tests of src/io share: golden files, their rule, and expected errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/error.hpp"
#include "attn/tensor.hpp"

namespace attn::test {

inline std::filesystem::path data_path(std::string_view name) { return std::filesystem::path(ATTN_TEST_DATA) / name; }

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline constexpr std::array kDTypes{DType::f64, DType::f32, DType::f16, DType::bf16,   DType::i64,
                                    DType::i32, DType::i8,  DType::u8,  DType::boolean};

// Element i of every golden tensor, by the rule of make_data.py.
inline double golden_value(DType dtype, std::int64_t i) {
  if (is_floating(dtype)) return static_cast<double>(i - 3) / 2;
  if (dtype == DType::boolean) return static_cast<double>(i % 2);
  return static_cast<double>(dtype == DType::u8 ? i : i - 3);
}

// Row-major values, whatever the strides, read through select() and item() alone.
inline void append_values(const Tensor& tensor, std::vector<double>& values) {
  if (tensor.rank() == 0) return values.push_back(tensor.item());
  for (std::int64_t i = 0; i < tensor.size(0); ++i) append_values(tensor.select(0, i), values);
}
inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values;
  if (tensor.numel() != 0) append_values(tensor, values);
  return values;
}

inline Tensor golden(DType dtype, const Shape& shape) {
  Tensor flat = Tensor::empty({shape.numel()}, dtype);
  for (std::int64_t i = 0; i < flat.numel(); ++i) flat.set({i}, golden_value(dtype, i));
  return flat.view(shape);
}

inline void expect_golden(const Tensor& tensor, DType dtype, const Shape& shape) {
  EXPECT_EQ(name(tensor.dtype()), name(dtype));
  EXPECT_EQ(tensor.shape().str(), shape.str());
  std::vector<double> expected;
  for (std::int64_t i = 0; i < shape.numel(); ++i) expected.push_back(golden_value(dtype, i));
  EXPECT_EQ(values_of(tensor), expected);
}

inline void expect_same(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(name(a.dtype()), name(b.dtype()));
  EXPECT_EQ(a.shape().str(), b.shape().str());
  EXPECT_EQ(values_of(a), values_of(b));
}

// `f` must throw Error of `kind` whose message holds all of `parts`.
template <class F>
void expect_error(F&& f, Error::Kind kind, std::initializer_list<std::string_view> parts) {
  try {
    f();
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const auto part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(std::string(part)));
  }
}

// A folder of its own for each test, removed afterwards.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "attn-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(std::string_view name) const { return folder_ / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) result.push_back(entry.path().filename());
    return result;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace attn::test
