"""A share and its interval."""

import math


def wilson(hits: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval, of 95 %, for a share of which a sample of `trials` has shown `hits`."""
    centre, square = hits + z * z / 2, z * math.sqrt(hits * (trials - hits) / trials + z * z / 4)
    return max(0.0, (centre - square) / (trials + z * z)), min(1.0, (centre + square) / (trials + z * z))
