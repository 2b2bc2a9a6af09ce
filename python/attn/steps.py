"""The chapter's steps one by one, on NumPy arrays, by the library's plain reference."""

from attn._attn import (
    dropout, mask_fill, mask_renormalise, mask_zero, matmul, normalise_by_sum, scores, scores_by_loop, softmax,
    softmax_naive, to_string, weighted_sum,
)  # fmt: skip

__all__ = [
    "dropout", "mask_fill", "mask_renormalise", "mask_zero", "matmul", "normalise_by_sum", "scores", "scores_by_loop",
    "softmax", "softmax_naive", "to_string", "weighted_sum",
]  # fmt: skip
