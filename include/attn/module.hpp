// This header has what all modules share, and the linear layer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attn/attention.hpp"
#include "attn/quantized.hpp"
#include "attn/random.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"

namespace attn {

struct Parameter {
  std::string name = {};  // as in PyTorch's state_dict: "W_query.weight", "heads.0.W_key.bias"
  Tensor value = {};
  Tensor grad = {};  // undefined until backward() fills it; backward() adds to what is there
  // A matrix in int8 (store_matrices()) has factors of its value's rows here, float32 (rows). Else it is undefined.
  Tensor scales = {};
  // The blocks of a matrix that stays as its file has it; `value` then has its shape, and no numbers.
  std::shared_ptr<const QuantizedMatrix> blocks = {};
  // False: backward() leaves grad alone, and spares the work that it takes. A GradientSum wants all gradients.
  bool requires_grad = true;
};

using StateDict = std::map<std::string, Tensor>;

// Is told of parameters whose gradients a backward pass has finished, while it goes on with others.
using GradientsReady = std::function<void(std::span<Parameter* const>)>;

// While one lives, forward passes of its thread keep nothing for backward(), as under torch.no_grad(): a pass takes the
// memory of its largest layer, and backward() throws Error as before a forward pass.
class NoGrad {
 public:
  NoGrad() noexcept;
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
bool grad_enabled() noexcept;  // of this thread

// One thread at a time may use a module, and what it is a part of: passes leave in it what backward() reads.
class Module {
 public:
  virtual ~Module() = default;

  // x (t, d_in) or (b, t, d_in), float32 → (…, t, d_out). With a trace every step is recorded,
  // without the batch dimension when x has none. Throws Error for a shape or dtype that does not fit.
  virtual Tensor forward(const Tensor& x, Trace* trace = nullptr) = 0;

  struct Gradient {
    Tensor x, source;  // source: of a second input, where the last forward pass had one
  };
  // The gradient of the last forward pass, for the gradient of its output. It adds to every parameter's grad. What the
  // pass was given must be unchanged: modules keep views. Throws Error (argument) before a forward pass, and for a
  // module that has no backward pass.
  virtual Gradient backward(const Tensor& dz);

  virtual std::vector<Parameter*> parameters() { return {}; }
  StateDict state_dict();
  // Every parameter must be there, with its shape, and nothing else but the "mask" buffers of the book's classes, which
  // hide the keys after each query and are not kept. Otherwise it throws Error and changes nothing.
  // io::load_state_dict(path) reads a file.
  void load_state_dict(const StateDict& state);
  void zero_grad();

  // Dropout acts in train mode only. Modules start in eval mode (PyTorch's start in train mode).
  // In train mode the memory of large tensors is kept for the next ones.
  virtual void train(bool on = true);
  void eval() { train(false); }
  bool training() const noexcept { return training_; }

 protected:
  bool training_ = false;

 private:
  std::shared_ptr<void> keeps_memory_;
};

// y = x · weightᵀ + bias. Initial values as nn.Linear's: uniform in ±1/√d_in, weight first, then bias.
class Linear : public Module {
 public:
  Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, Generator& rng, std::string_view name = {});
  // Its weights are zeros, for the caller to load or draw.
  Linear(std::int64_t d_in, std::int64_t d_out, bool has_bias, std::string_view name = {});
  Tensor forward(const Tensor& x, Trace* trace = nullptr) override;
  using Module::backward;
  // Returns dx, for dy and the x of the forward pass.
  Tensor backward(const Tensor& dy, const Tensor& x);
  std::vector<Parameter*> parameters() override;

  Parameter weight;  // (d_out, d_in)
  Parameter bias;    // (d_out); value undefined without bias
  // How the three products are computed: y = x · weightᵀ, dx = dy · weight, d_weight = dyᵀ · x. Sums stay float32.
  Precision precision = Precision::highest;
};

}  // namespace attn
