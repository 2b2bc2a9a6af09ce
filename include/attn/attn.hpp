// Everything: include this, or only the header of the concept that you need.
#pragma once

#include "attn/attention.hpp"
#include "attn/dlpack.hpp"
#include "attn/error.hpp"
#include "attn/io.hpp"
#include "attn/modules.hpp"
#include "attn/print.hpp"
#include "attn/random.hpp"
#include "attn/reference.hpp"
#include "attn/report.hpp"
#include "attn/tensor.hpp"
#include "attn/trace.hpp"
#include "attn/version.hpp"
