// Everything: include this, or only the header of the concept that you need.
#pragma once

#include "attn/attention.hpp"
#include "attn/dlpack.hpp"
#include "attn/error.hpp"
#include "attn/figure.hpp"
#include "attn/gpt.hpp"
#include "attn/io.hpp"
#include "attn/kv_cache.hpp"
#include "attn/modules.hpp"
#include "attn/optim.hpp"
#include "attn/print.hpp"
#include "attn/random.hpp"
#include "attn/reference.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"
#include "attn/version.hpp"
