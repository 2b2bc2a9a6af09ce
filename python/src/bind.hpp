// One function a subject: what module.cpp puts into attn._attn.
#pragma once

#include <nanobind/nanobind.h>

namespace attn::python {

// Returns what work() does, computed without the GIL.
template <class Work>
auto without_gil(const Work& work) {
  const nanobind::gil_scoped_release released;
  return work();
}

void bind_attention(nanobind::module_& m);
void bind_cache(nanobind::module_& m);
void bind_distributed(nanobind::module_& m);
void bind_encoder(nanobind::module_& m);
void bind_generation(nanobind::module_& m);
void bind_language_model(nanobind::module_& m);
void bind_modules(nanobind::module_& m);
void bind_options(nanobind::module_& m);
void bind_pictures(nanobind::module_& m);
void bind_random(nanobind::module_& m);
void bind_recurrence(nanobind::module_& m);
void bind_rotary(nanobind::module_& m);
void bind_steps(nanobind::module_& m);

}  // namespace attn::python
