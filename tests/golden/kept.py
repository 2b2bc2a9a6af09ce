"""Which numbers of a large result golden files hold, in all of tests/."""

import torch

KEPT = 128


def kept(tensor):
    """Takes KEPT of many numbers, spread over all by the golden ratio, as core/kept.hpp takes them; few stay as they are."""
    flat = tensor.reshape(-1)
    at = (torch.arange(KEPT) * 2654435769 % 2**32 * len(flat)) >> 32
    return flat[at] if tensor.is_floating_point() and len(flat) > 2 * KEPT else tensor
