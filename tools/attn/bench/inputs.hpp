// Random tensors to time the operator on, shared by all rows that read alike ones.
#pragma once

#include <map>
#include <string>

#include "attn/tensor.hpp"

namespace attn::tool {

class BenchInputs {
 public:
  // normal() gives these from now on: normal, one-nan, nan, one-inf, inf, huge or subnormal numbers. Throws Error
  // (data) for another name.
  void use(const std::string& numbers);
  // Normally distributed, of a floating dtype, but for what use() asked for. Tensors of another `role` ("q", "k", …)
  // hold other numbers.
  Tensor normal(const std::string& role, const Shape& shape, DType dtype);
  // True with probability `chance`; another chance gives others.
  Tensor coins(const std::string& role, const Shape& shape, double chance);

  double bytes() const noexcept { return bytes_; }  // of all tensors

 private:
  std::string key(const std::string& role, DType dtype, const Shape& shape) const;
  Tensor kept(const std::string& role, const Shape& shape, const Tensor& block);

  std::string numbers_ = "normal";
  std::map<std::string, Tensor> tensors_;
  double bytes_ = 0;
};

}  // namespace attn::tool
