// Everything: include this, or only the header of the concept that you need.
//
// Work runs on OMP_NUM_THREADS threads, by omp_get_max_threads(). A child of fork() computes as its parent does: the
// teams of the thread that forks, OpenMP's and its own, end before, and both start others. What other threads of the parent were
// using at the moment of the fork, a module say, must be left alone in the child; a child that was forked amidst an
// OpenMP parallel region computes on one thread.
#pragma once

#include "attn/attention.hpp"
#include "attn/chat.hpp"
#include "attn/cross_entropy.hpp"
#include "attn/dlpack.hpp"
#include "attn/dropout.hpp"
#include "attn/encoder.hpp"
#include "attn/error.hpp"
#include "attn/feed_forward.hpp"
#include "attn/figure.hpp"
#include "attn/generate.hpp"
#include "attn/gguf.hpp"
#include "attn/gpt.hpp"
#include "attn/io.hpp"
#include "attn/kv_cache.hpp"
#include "attn/language_model.hpp"
#include "attn/module.hpp"
#include "attn/module_kinds.hpp"
#include "attn/modules.hpp"
#include "attn/norm.hpp"
#include "attn/optim.hpp"
#include "attn/pretrained.hpp"
#include "attn/print.hpp"
#include "attn/random.hpp"
#include "attn/reference.hpp"
#include "attn/relative_bias.hpp"
#include "attn/report.hpp"
#include "attn/rotary.hpp"
#include "attn/score_function.hpp"
#include "attn/sequence.hpp"
#include "attn/steps.hpp"
#include "attn/tensor.hpp"
#include "attn/tokenizer.hpp"
#include "attn/trace.hpp"
#include "attn/train.hpp"
#include "attn/version.hpp"
#include "attn/weights.hpp"
