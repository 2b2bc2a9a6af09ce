// Helpers of the tests of src/io: golden files and their rule.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/folder.hpp"
#include "core/testing.hpp"

namespace attn::test {

inline std::filesystem::path data_path(std::string_view name) { return std::filesystem::path(ATTN_TEST_DATA) / name; }

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

// A file that lies, and a part of the message that tells so.
struct Attack {
  std::string name, bytes, answer;
};
inline void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }
inline std::string name_of(const testing::TestParamInfo<Attack>& info) { return info.param.name; }

template <class Parse>
void expect_answer(const Attack& attack, Parse parse) {
  // A copy of just this length, so that a sanitizer sees the end.
  const std::vector<char> bytes(attack.bytes.begin(), attack.bytes.end());
  expect_error(Error::Kind::data, {attack.answer}, [&] { parse(std::string_view(bytes.data(), bytes.size())); });
}

// A folder of its own for each test, removed afterwards.
class FolderTest : public testing::Test {
 protected:
  std::filesystem::path path(std::string_view name) const { return folder_ / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) result.push_back(entry.path().filename());
    return result;
  }

 private:
  const Folder folder_;
};

}  // namespace attn::test
