// The modules: one class that holds any of them; Python's modules.py gives each its name and signature.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <string>

#include "arrays.hpp"
#include "attn/error.hpp"
#include "attn/latent_attention.hpp"
#include "attn/module_kinds.hpp"
#include "attn/report.hpp"
#include "bind.hpp"
#include "explain/walk.hpp"
#include "random.hpp"
#include "rotary.hpp"
#include "values.hpp"

namespace attn::python {
namespace {

constexpr const char* kOp = "module";

LayerOrder order_of(std::string_view name) {
  if (name == "qkv") return LayerOrder::qkv;
  if (name == "kqv") return LayerOrder::kqv;
  throw Error(Error::Kind::argument, kOp, "layer_order \"qkv\" or \"kqv\"", "\"" + std::string(name) + "\"");
}

// (inv_freq, attention_factor), as Python's RotaryFrequencies is.
std::optional<RotaryFrequencies> rope_of(nb::handle rope) {
  if (rope.is_none()) return std::nullopt;
  if (!nb::isinstance<nb::tuple>(rope) || nb::len(rope) != 2) {
    throw Error(Error::Kind::dtype, kOp, "rope as RotaryFrequencies", nb::str(nb::type_name(rope.type())).c_str());
  }
  const Array rates = read(rope[0], kOp, "rope's inv_freq");
  return RotaryFrequencies{float32s(rates.tensor), plain<double>(rope[1], kOp, "rope's attention_factor")};
}

// The arguments of a module's class, by name.
ModuleConfig config_of(const nb::dict& given) {
  ModuleConfig config;
  std::size_t taken = 0;
  const auto has = [&](const char* name) {
    taken += given.contains(name) ? 1 : 0;
    return given.contains(name);
  };
  const auto take = [&]<class T>(T& to, const char* name) {
    if (has(name)) to = plain<T>(given[name], kOp, name);
  };
  take(config.d_in, "d_in"), take(config.d_out, "d_out"), take(config.context_length, "context_length");
  take(config.dropout, "dropout"), take(config.num_heads, "num_heads"), take(config.qkv_bias, "qkv_bias");
  take(config.causal, "causal"), take(config.out_proj, "out_proj");
  take(config.latents.latent, "latent"), take(config.latents.query, "query_latent");
  take(config.latents.plain, "plain"), take(config.latents.value, "value");
  if (has("layer_order")) {
    config.layer_order = order_of(plain<std::string_view>(given["layer_order"], kOp, "layer_order"));
  }
  if (has("rope")) config.rope = rope_of(given["rope"]);
  if (has("interleaved") && plain<bool>(given["interleaved"], kOp, "interleaved") && config.rope)
    config.rope->layout = RotaryLayout::interleaved;
  if (taken < given.size()) throw Error(Error::Kind::argument, kOp, "arguments that a module has", "another one");
  return config;
}

// One module, and what it takes for threads to share it: it keeps its last forward pass. Nobody waits for the GIL
// while holding a mutex.
class Layer {
 public:
  Layer(std::string_view kind, Stream& stream, const ModuleConfig& config)
      : kind_(kind), config_(config), stream_(&stream) {
    const std::lock_guard lock(stream.mutex);
    if (module_kind(kind).uses.latent) config_.latents = latent_sizes(config);
    module_ = module_kind(kind).make(config_, stream.generator);
    drawn_ = sample();
  }

  // Are the weights still those that were drawn? Neither trained nor loaded, by a few numbers of each.
  bool random() const { return !drawn_.empty() && sample() == drawn_; }

  void call_random() { drawn_ = sample(); }

  const std::string& kind() const { return kind_; }
  const ModuleConfig& config() const { return config_; }
  DropoutFlavour flavour() const { return stream_->generator.flavour(); }

  // Returns what work(module) does, computed without the GIL.
  template <class Work>
  auto run(const Work& work) {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(mutex_);
    std::unique_lock<std::mutex> stream(stream_->mutex, std::defer_lock);
    if (config_.dropout > 0 && module_->training()) stream.lock();
    return work(*module_);
  }

 private:
  std::vector<float> sample() const {
    constexpr std::int64_t some = 8;
    std::vector<float> values;
    for (const Parameter* p : module_->parameters()) {
      const std::int64_t count = p->value.defined() ? std::min(some, p->value.numel()) : 0;
      const Tensor value = count > 0 ? p->value.contiguous() : Tensor();
      if (count > 0) values.insert(values.end(), value.data<float>(), value.data<float>() + count);
    }
    return values;
  }

  std::string kind_;
  std::vector<float> drawn_;
  ModuleConfig config_;
  Stream* stream_;  // Python keeps it alive
  std::unique_ptr<Module> module_;
  std::mutex mutex_;
};

Tensor forward_of(Module& module, const Tensor& x, const Tensor& source, Trace* trace) {
  if (!source.defined()) return module.forward(x, trace);
  if (auto* two = dynamic_cast<AttentionLayer*>(&module)) return two->forward(x, source, trace);
  throw Error(Error::Kind::argument, kOp, "one input", "a source beside it", "CrossAttention takes two");
}

nb::object forward(Layer& layer, nb::handle input, nb::handle source, bool with_steps, int framework) {
  const Array x = read(input, kOp, "x"), other = read_optional(source, kOp, "source");
  Trace trace;
  const Tensor z = layer.run([&](Module& m) {
    // Copies, since backward() reads them again: the caller may have changed his by then.
    const Tensor own = x.tensor.clone(), second = other.tensor.defined() ? other.tensor.clone() : Tensor();
    return forward_of(m, own, second, with_steps ? &trace : nullptr);
  });
  const auto to = static_cast<Framework>(framework);
  if (!with_steps) return give(z, to);
  nb::dict steps;
  for (const auto& [name, value] : trace.steps()) steps[nb::str(name.c_str(), name.size())] = give(value, to);
  return nb::make_tuple(give(z, to), steps);
}

nb::tuple backward(Layer& layer, nb::handle d_output, int framework) {
  const Array dz = read(d_output, kOp, "the output's gradient");
  const Module::Gradient grad = layer.run([&](Module& m) { return m.backward(dz.tensor); });
  const auto to = static_cast<Framework>(framework);
  return nb::make_tuple(give(grad.x, to), give(grad.source, to));
}

// {name: (value, grad or None)}, views of the module's own memory.
nb::dict parameters(Layer& layer) {
  std::vector<Parameter> all;
  layer.run([&](Module& m) {
    for (const Parameter* p : m.parameters()) all.push_back(*p);
  });
  nb::dict result;
  for (const Parameter& p : all) {
    if (!p.value.defined()) continue;
    result[nb::str(p.name.c_str())] = nb::make_tuple(give(p.value, Framework::numpy), give(p.grad, Framework::numpy));
  }
  return result;
}

void load(Layer& layer, const nb::dict& state) {
  StateDict copied;
  for (const auto& [name, value] : state) {
    copied[nb::cast<std::string>(name)] = read(value, "load_state_dict", "a parameter").tensor.clone();
  }
  layer.run([&](Module& m) { m.load_state_dict(copied); });
}

// The page of one forward pass, as `attn report` writes it.
nb::str page_of(Layer& layer, nb::handle input, nb::handle source, nb::handle tokens, nb::handle key_tokens,
                nb::handle title, nb::handle item, nb::handle head, bool live) {
  using Texts = std::vector<std::string>;
  constexpr const char* op = "report";
  ReportOptions options;
  options.tokens = plain<Texts>(tokens, op, "tokens"), options.key_tokens = plain<Texts>(key_tokens, op, "key_tokens");
  options.title = plain<std::string>(title, op, "title"), options.item = plain<std::int64_t>(item, op, "item");
  options.head = optional_plain<std::int64_t>(head, op, "head");
  const Array x = read(input, kOp, "x"), other = read_optional(source, kOp, "source");
  const std::string page = layer.run([&](Module& m) {
    Trace trace;
    forward_of(m, x.tensor.clone(), other.tensor.defined() ? other.tensor.clone() : Tensor(), &trace);
    options.random_weights = layer.random();
    options.module = layer.kind(), options.flavour = layer.flavour(), options.training = m.training();
    options.parameters = m.state_dict();
    if (!options.parameters.empty()) options.config = layer.config();
    if (live && options.training && options.config && options.config->dropout > 0) {
      throw Error(Error::Kind::argument, op, "live=True of a module in eval mode", "one that drops",
                  "call eval() first");
    }
    if (live) options.live = LiveModel{};
    return report(trace, options);
  });
  return nb::str(page.c_str(), page.size());
}

// Returns what `attn explain` prints of one forward pass, without colours. `name` and `other` are those of the inputs.
nb::str explained(Layer& layer, nb::handle input, nb::handle source, const std::string& name, const std::string& other,
                  nb::handle tokens, nb::handle key_tokens, std::int64_t query, std::int64_t head, nb::handle key) {
  using Texts = std::vector<std::string>;
  constexpr const char* op = "explain";
  tool::WalkOptions options{.query = query + 1, .head = head + 1};
  if (const auto own = optional_plain<std::int64_t>(key, op, "key")) options.key = *own + 1;
  tool::Walked walked{.module = layer.kind(), .config = layer.config(), .name = name, .context_name = other};
  walked.tokens = plain<Texts>(tokens, op, "tokens"),
  walked.context_tokens = plain<Texts>(key_tokens, op, "key_tokens");
  const Array x = read(input, kOp, "x"), second = read_optional(source, kOp, "source");
  const std::string text = layer.run([&](Module& m) {
    Trace trace;
    walked.x = x.tensor.clone(), walked.context = second.tensor.defined() ? second.tensor.clone() : Tensor();
    forward_of(m, walked.x, walked.context, &trace);
    walked.parameters = m.state_dict();
    if (const auto* attention = dynamic_cast<const AttentionLayer*>(&m)) walked.config = attention->config();
    return tool::Walk(walked, trace, options, tool::Style(figure::Depth::none)).text();
  });
  return nb::str(text.c_str(), text.size());
}

}  // namespace

void bind_modules(nb::module_& m) {
  nb::class_<Layer>(m, "Layer", "Any module of the library.")
      .def(
          "__init__",
          [](Layer* self, std::string_view kind, Stream& stream, const nb::dict& given) {
            new (self) Layer(kind, stream, config_of(given));
          },
          nb::arg("kind"), nb::arg("stream"), nb::arg("given"), nb::keep_alive<1, 3>())
      .def("forward", &forward, nb::arg("x").none(), nb::arg("source").none(), nb::arg("with_steps"),
           nb::arg("framework"))
      .def("backward", &backward, nb::arg("d_output").none(), nb::arg("framework"))
      .def("page", &page_of, nb::arg("x").none(), nb::arg("source").none(), nb::arg("tokens").none(),
           nb::arg("key_tokens").none(), nb::arg("title").none(), nb::arg("item").none(), nb::arg("head").none(),
           nb::arg("live"))
      .def("explained", &explained, nb::arg("x").none(), nb::arg("source").none(), nb::arg("name"), nb::arg("other"),
           nb::arg("tokens").none(), nb::arg("key_tokens").none(), nb::arg("query"), nb::arg("head"),
           nb::arg("key").none())
      .def("heads", [](const Layer& self) { return module_kind(self.kind()).uses.heads ? self.config().num_heads : 1; })
      .def("parameters", &parameters)
      .def("call_random", &Layer::call_random, "Its weights, copied from elsewhere, are as they were drawn there.")
      .def("load", &load, nb::arg("state"))
      .def("zero_grad", [](Layer& self) { self.run([](Module& module) { module.zero_grad(); }); })
      .def(
          "train",
          [](Layer& self, nb::handle mode) {
            const bool on = plain<bool>(mode, "train", "mode");
            self.run([on](Module& module) { module.train(on); });
          },
          nb::arg("mode").none());
}

}  // namespace attn::python
