// Columns of texts and ids that the scripts beside have written.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attn/io.hpp"
#include "core/folder.hpp"

namespace attn::test {

inline std::string read_data(const std::string& name) { return read(std::string(ATTN_TEST_DATA "/") + name); }
inline std::string json_of(const std::string& kind) { return read_data("tokenizers/" + kind + ".json"); }

// A file whose tensor `name` holds rows one after the other, which end at `name`_ends.
class Columns {
 public:
  explicit Columns(const std::string& file) : tensors_(io::load(std::string(ATTN_TEST_DATA "/") + file)) {}

  std::vector<std::vector<std::int64_t>> rows(const std::string& name) const {
    const auto values = integers(name), ends = integers(name + "_ends");
    std::vector<std::vector<std::int64_t>> result;
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      result.emplace_back(values.begin() + begin, values.begin() + end);
      begin = end;
    }
    return result;
  }

  std::vector<std::string> texts(const std::string& name) const {
    std::vector<std::string> result;
    for (const auto& row : rows(name)) result.emplace_back(row.begin(), row.end());
    return result;
  }

 private:
  std::vector<std::int64_t> integers(const std::string& name) const {
    const Tensor& tensor = *tensors_.find(name);
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) values.push_back(static_cast<std::int64_t>(tensor.at({i})));
    return values;
  }

  io::NamedTensors tensors_;
};

}  // namespace attn::test
