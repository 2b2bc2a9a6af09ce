// One source for several processors.
#pragma once

// A function that is compiled for each of these, and whose best for the processor at hand is taken when the program
// starts. It gives the same bits on each, since no product and sum are contracted (-ffp-contract=off). Other compilers,
// C libraries and sanitizers, which cannot follow that choice, have the first alone.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ATTN_FOR_EACH_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define ATTN_FOR_EACH_PROCESSOR
#endif
