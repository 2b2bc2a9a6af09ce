// to_string against the text that PyTorch prints (make_data.py), character for character.
#include "attn/print.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "attn/error.hpp"

namespace {

using attn::DType;
using attn::PrintOptions;
using attn::Shape;
using attn::Tensor;

struct Case {
  std::size_t line = 0;
  Tensor tensor;
  PrintOptions options;
  std::string expected;
};

DType dtype_named(const std::string& text) {
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i) {
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  }
  throw std::runtime_error("no dtype is named " + text);
}

void read_values(const std::string& column, const Tensor& tensor) {
  const std::size_t size = size_of(tensor.dtype());
  auto* out = static_cast<std::byte*>(tensor.raw());
  std::istringstream words(column);
  for (std::string bits; words >> bits; out += size) {
    const auto value = static_cast<std::uint64_t>(std::stoull(bits, nullptr, 16));
    std::memcpy(out, &value, size);  // the low bytes: little-endian
  }
  ASSERT_EQ(out, static_cast<std::byte*>(tensor.raw()) + static_cast<std::size_t>(tensor.numel()) * size);
}

std::vector<Case> read_cases() {
  std::ifstream file(ATTN_TEST_DATA "/print.txt");
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    Case c{.line = cases.size() + 1};
    std::istringstream columns(line);
    std::string dtype, sizes, options, bits, text;
    for (std::string* column : {&dtype, &sizes, &options, &bits, &text}) std::getline(columns, *column, '\t');
    Shape shape;
    std::istringstream words(sizes);
    for (std::int64_t n = 0; words >> n;) shape.push_back(n);
    c.tensor = Tensor::empty(shape, dtype_named(dtype));
    std::istringstream(options) >> c.options.precision >> c.options.threshold >> c.options.edge_items >>
        c.options.line_width;
    read_values(bits, c.tensor);
    for (std::size_t end = text.find("\\n"); end != std::string::npos; end = text.find("\\n"))
      text.replace(end, 2, "\n");
    c.expected = text;
    cases.push_back(std::move(c));
  }
  return cases;
}

// The same elements, every dimension walked backwards in memory and with gaps between the elements.
Tensor strided_copy(const Tensor& tensor) {
  Shape strides = tensor.shape();
  std::int64_t stride = -3, first = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    strides[i] = stride;
    first -= stride * (tensor.shape()[i] - 1);
    stride *= tensor.shape()[i];
  }
  Tensor storage = Tensor::zeros({first + 1}, tensor.dtype());
  auto* data = static_cast<std::byte*>(storage.raw()) + static_cast<std::size_t>(first) * attn::size_of(tensor.dtype());
  Tensor view = Tensor::from_blob(data, tensor.shape(), strides, tensor.dtype(), storage.storage());
  view.copy_from(tensor);
  return view;
}

TEST(Print, EqualsPyTorchCharacterForCharacter) {
  const std::vector<Case> cases = read_cases();
  ASSERT_GE(cases.size(), 400u);
  for (const Case& c : cases) {
    EXPECT_EQ(to_string(c.tensor, c.options), c.expected)
        << "line " << c.line << ", " << name(c.tensor.dtype()) << " " << c.tensor.shape().str();
  }
}

TEST(Print, StreamsTakeTensorsAndShapes) {
  const Tensor x = Tensor::of({{1, 2.5}, {-3, 4}});
  std::ostringstream out;
  out << x << " of " << x.shape();
  EXPECT_EQ(out.str(), "tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]]) of (2, 2)");  // print() in PyTorch
}

// A program may have set a locale with a decimal comma; one is made here, since a system may have none.
TEST(Print, ALocaleDoesNotMatter) {
  const std::string folder = testing::TempDir() + "/attn_locale";
  const std::string make = "mkdir -p " + folder + " && localedef -i de_DE -f UTF-8 " + folder + "/de_DE.UTF-8";
  setenv("LOCPATH", folder.c_str(), 1);
  const bool there = std::system((make + " 2> /dev/null").c_str()) == 0 && std::setlocale(LC_NUMERIC, "de_DE.UTF-8");
  unsetenv("LOCPATH");
  std::filesystem::remove_all(folder);
  if (!there) GTEST_SKIP() << "localedef makes no locale here";
  const std::string found = to_string(Tensor::of({1, 2.5})) + to_string(Tensor::of({1e-10F, 2.5}));
  std::setlocale(LC_NUMERIC, "C");
  EXPECT_EQ(found, "tensor([1.0000, 2.5000])tensor([1.0000e-10, 2.5000e+00])");
}

TEST(Print, StridesDoNotMatter) {
  for (const Case& c : read_cases()) {
    // Through double, as copies go, int64 keeps 53 bits and a NaN its sign at most.
    if (c.tensor.numel() == 0 || c.tensor.dtype() == DType::i64) continue;
    EXPECT_EQ(to_string(strided_copy(c.tensor), c.options), c.expected) << "line " << c.line;
  }
}

TEST(Print, BroadcastViewsPrintEveryElement) {
  EXPECT_EQ(to_string(Tensor::of({1, 2}).expand({2, 2})), "tensor([[1., 2.],\n        [1., 2.]])");
}

TEST(Print, HidesTheMiddleOfATensorTooLargeToWalk) {
  const Tensor huge = Tensor::of({7}).expand({std::int64_t{1} << 40, 1});
  EXPECT_EQ(to_string(huge),
            "tensor([[7.],\n        [7.],\n        [7.],\n        ...,\n        [7.],\n        [7.],\n        [7.]])");
}

TEST(Print, RefusesOptionsWithoutMeaning) {
  const Tensor x = Tensor::of({1, 2});
  EXPECT_THROW(to_string(Tensor{}), attn::Error);
  EXPECT_THROW(to_string(x, {.precision = -1}), attn::Error);
  EXPECT_THROW(to_string(x, {.precision = 65}), attn::Error);
  EXPECT_THROW(to_string(x, {.threshold = -1}), attn::Error);
  EXPECT_THROW(to_string(x, {.edge_items = 0}), attn::Error);
  EXPECT_THROW(to_string(x, {.line_width = 0}), attn::Error);
  const auto largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(to_string(x, {.precision = 64, .threshold = 0, .edge_items = largest}), "tensor([1., 2.])");
}

}  // namespace
