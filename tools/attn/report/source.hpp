// Where a report's steps come from: a module that is run, a trained model, a file of steps, or bare weights.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "attn/report.hpp"
#include "common/job.hpp"

namespace attn::tool {

struct SourceFlags {
  ModuleFlags module;
  InputFlags input;
  std::string steps, attention;
  std::string model, text, tokenizer;
};

// MODULE (not required) with its flags and inputs, --steps, --attention, and --model with --text and --tokenizer.
void add_source_flags(CLI::App& verb, SourceFlags& flags);

struct ReportSource {
  Trace steps;
  ReportOptions options;
};

// Reads or computes. Throws Error for flags that contradict, and for shapes that are none of attention weights.
ReportSource load_source(const CLI::App& verb, const SourceFlags& flags);

}  // namespace attn::tool
