// Measures how long linear_attention() takes, and which share of the processor's multiply-adds it reaches:
//     bench_linear_attention TOKENS HEADS D RULE(gated|bf16|channel|softmax) REPEATS
// prints one line a pass: its milliseconds of processor time, which other work on the machine adds little to, over the
// threads, and the share by 7 d² operations a token forward and 16 d² + 11 · 32 d backward. Threads are
// OMP_NUM_THREADS; bench/linear_attention.py runs it in turns with others. bf16 is gated, of such inputs. One token is
// a decoder's step: it has a state before it, and of its time the line tells microseconds a head, and how fast the
// state is read and written.
#include "attn/linear_attention.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "attn/attention.hpp"
#include "kernels/targets.hpp"

namespace {

using namespace attn;

double processor_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class F>
double seconds(clockid_t clock, const F& f) {
  const double begin = processor_seconds(clock);
  f();
  return processor_seconds(clock) - begin;
}

// Operations a second out of registers, on every thread at once.
double limit(int threads) {
  double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
  {
    float sink = 1;
    double operations = 0;
    const double time = seconds(CLOCK_THREAD_CPUTIME_ID,
                                [&] { operations = kernels::active().limits->multiply_add(3'000'000, &sink); });
    sum += operations / time;
  }
  return sum;
}

void normalise(const Tensor& x) {
  const std::int64_t d = x.size(-1);
  for (std::int64_t at = 0; at < x.numel(); at += d) {
    float* row = x.data<float>() + at;
    float sum = 1e-6f;
    for (std::int64_t i = 0; i < d; ++i) sum += row[i] * row[i];
    for (std::int64_t i = 0; i < d; ++i) row[i] /= std::sqrt(sum);
  }
}

// The least of some runs, after one that is not counted.
template <class F>
double best_of(int repeats, const F& f) {
  f();
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) best = std::min(best, seconds(CLOCK_PROCESS_CPUTIME_ID, f) / omp_get_max_threads());
  return best;
}

template <class F>
void time_pass(const char* what, int repeats, double operations, const F& f) {
  double most = 0;
  const double best = best_of(repeats, f);
  for (int i = 0; i < repeats; ++i) most = std::max(most, limit(omp_get_max_threads()));
  std::printf("%s %.2f ms, %.1f GFLOP/s, %.0f %% of %.0f\n", what, best * 1e3, operations / best * 1e-9,
              100 * operations / best / most, most * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "usage: %s TOKENS HEADS D RULE REPEATS\n", argv[0]), 2;
  const std::int64_t t = std::atoll(argv[1]), h = std::atoll(argv[2]), d = std::atoll(argv[3]);
  const std::string rule = argv[4];
  const int repeats = std::atoi(argv[5]);
  Generator rng{1};
  Tensor q = rng.rand({1, h, t, d}), k = rng.rand({1, h, t, d}), v = rng.rand({1, h, t, d});
  normalise(q), normalise(k);
  if (rule == "bf16") q = q.to(DType::bf16), k = k.to(DType::bf16), v = v.to(DType::bf16);
  const auto heads = static_cast<double>(h * t), width = static_cast<double>(d);
  if (rule == "softmax") {
    const AttentionOptions options{.mask = Mask::causal()};
    const AttentionResult result = attention(q, k, v, options);
    time_pass("forward", repeats, 2 * heads * static_cast<double>(t) * width, [&] { attention(q, k, v, options); });
    time_pass("backward", repeats, 5 * heads * static_cast<double>(t) * width,
              [&] { attention_backward(v, q, k, v, options, result); });
    return 0;
  }
  LinearAttentionOptions options{.rule = StateRule::delta, .beta = rng.rand({1, h, t})};
  const Shape by = rule == "channel" ? Shape{1, h, t, d} : Shape{1, h, t};
  options.decay = rng.uniform(by, -0.1, 0);
  if (t == 1) {
    options.initial_state = rng.rand({1, h, d, d});
    const double time = best_of(repeats, [&] { linear_attention(q, k, v, options); }) / heads;
    return std::printf("step %.2f us a head, %.1f GB/s\n", 1e6 * time, 8 * width * width / time * 1e-9), 0;
  }
  time_pass("forward", repeats, 7 * width * width * heads, [&] { linear_attention(q, k, v, options); });
  time_pass("backward", repeats, (16 * width * width + 11 * 32 * width) * heads,
            [&] { linear_attention_backward(v, {}, q, k, v, options); });
}
