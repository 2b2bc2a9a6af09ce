// The report's input: steps of any names, shapes and values, and texts. The page never takes texts for markup.
#include <cstdlib>
#include <string>

#include "attn/error.hpp"
#include "attn/report.hpp"
#include "bytes.hpp"

namespace attn::fuzz {
namespace {

std::string step_name(Bytes& bytes) {
  const std::string prefix(
      bytes.one_of<const char*>({"", "", "", "layers.0.", "layers.1.", "heads.0.", "heads.1.", "h.0.heads.2."}));
  const char* name = bytes.one_of<const char*>({"weights", "inputs", "source", "queries", "keys", "values", "scores",
                                                "scaled", "masked", "dropped", "context", "merged", "output"});
  return bytes.byte() % 16 == 15 ? std::string(bytes.text()) : prefix + name;
}

Tensor tensor(Bytes& bytes) {
  Shape shape;
  std::int64_t size = 1;
  for (std::int64_t rank = bytes.number(0, 7) % 5; rank > 0; --rank) {
    const std::int64_t n = bytes.byte() % 16 == 15 ? bytes.number(0, 200) : bytes.number(0, 5);
    shape.push_back(size * n > 40000 ? 1 : n);
    size *= shape.back();
  }
  const Tensor t = Tensor::empty(shape, bytes.byte() % 8 == 7 ? DType::bf16 : DType::f32);
  t.fill(0.25);
  const auto some = bytes.take(static_cast<std::size_t>(bytes.number(0, 40)));
  std::memcpy(t.raw(), some.data(), std::min(some.size(), static_cast<std::size_t>(t.numel()) * size_of(t.dtype())));
  return t;
}

std::vector<std::string> words(Bytes& bytes) {
  std::vector<std::string> all;
  for (std::int64_t n = bytes.number(0, 15) % 8; n > 0; --n) all.emplace_back(bytes.text());
  return all;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace
}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn;
  using namespace attn::fuzz;
  Bytes bytes(data, size);
  Trace trace;
  ReportOptions options;
  try {
    for (std::int64_t steps = bytes.number(1, 8); steps > 0; --steps) {
      const std::string name = step_name(bytes);
      trace.record(name, tensor(bytes));
    }
    options.tokens = words(bytes), options.key_tokens = words(bytes);
    options.title = bytes.text(), options.command = bytes.text(), options.module = bytes.text();
    options.notes = words(bytes);
    options.item = bytes.number(0, 3);
    static const std::string plain = [] {
      Trace one;
      one.record("weights", Tensor::of({{1, 0}, {0.5, 0.5}}));
      return report(one);
    }();
    const std::string page = report(trace, options);
    for (const char* part : {"<script", "</script", "<style", "</style"}) {
      if (count(page, part) != count(plain, part)) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
