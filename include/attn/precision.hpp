// A Precision says what products of float32 may be made of.
#pragma once

namespace attn {

// By PyTorch's names: float32, or, on AMX, six products of bfloat16 parts, which keep its 24 bits (of numbers below
// 2^-102 fewer: parts below 2^-126 are zero) and sum with no more error; three such products, which keep 16 bits; one
// of bfloat16. A kernel may do better than asked; bfloat16 inputs are multiplied as they are, their weights rounded to
// that.
enum class Precision { highest, high, medium };

}  // namespace attn
