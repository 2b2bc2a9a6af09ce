// Memory that is not the library's: a vector seen as a tensor, and a tensor handed on by DLPack, nothing copied.
#include <dlpack/dlpack.h>

#include <attn/attn.hpp>
#include <iostream>
#include <vector>

int main() {
  std::vector<float> memory{1, 2, 3, 4, 5, 6};
  const attn::Tensor rows = attn::Tensor::from_blob(memory.data(), {2, 3}, {3, 1}, attn::DType::f32);
  std::cout << "columns of the vector " << attn::to_string(rows.transpose(0, 1)) << "\n";
  memory[0] = 10;
  std::cout << "after memory[0] = 10  " << attn::to_string(rows) << "\n";

  DLManagedTensor* handle = attn::to_dlpack(rows.select(0, 1));  // to NumPy, PyTorch, JAX, …
  std::cout << "DLPack: " << handle->dl_tensor.ndim << " dimension of " << handle->dl_tensor.shape[0] << "\n";
  const attn::Tensor back = attn::from_dlpack(handle);  // calls the deleter when the last view is gone
  back.fill(7);
  std::cout << "filled through it     " << attn::to_string(rows) << "\n";
}
