"""Goodput, by which Pollux (OSDI '21) chooses the batch size while a model trains.

A larger batch is processed at a higher throughput, but each of its samples teaches less, the more
so the less noise there is in the gradient. Goodput is throughput times *efficiency*, the progress
of one sample relative to one in a batch of the initial size b0:

    goodput(b) = throughput(b) * efficiency(b),   efficiency(b) = (noise + b0) / (noise + b),

where noise = b0 * variance / square is the gradient noise scale, in samples: `square` is the
squared norm of the gradient, `variance` that of a gradient of b0 samples. It grows during training,
and with it the batch size of the highest goodput. Energy plays no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paper.product import Floats


@dataclass(frozen=True)
class Gradient:
    """Statistics of the gradient at some time of training.

    Attributes:
        initial: Samples in a batch of the initial size, b0.
        square: Squared norm of the gradient; 0 where an estimate fell below.
        variance: Variance of the gradient of one batch of the initial size.
    """

    initial: int
    square: float
    variance: float

    @property
    def noise(self) -> float:
        """Gradient noise scale in samples; infinite where nothing but noise was seen."""
        return self.initial * self.variance / self.square if self.square > 0 else float("inf")

    def efficiency(self, sizes: Sequence[float] | Floats) -> Floats:
        """Return the progress per sample at batch sizes, relative to the initial size."""
        scale = np.asarray(sizes, float) / self.initial
        total = self.variance + self.square
        if total <= 0:  # nothing was seen: a gradient of exact zeros
            return np.ones_like(scale)
        found: Floats = total / (self.variance + self.square * scale)
        return found


def best_batch_size(sizes: Sequence[int], throughput: Floats, gradient: Gradient) -> int:
    """Return the batch size with the highest goodput.

    Args:
        sizes: Batch sizes to choose from; the first wins a tie.
        throughput: Samples per second at each.
        gradient: Statistics that were measured last.
    """
    return sizes[int(np.argmax(throughput * gradient.efficiency(sizes)))]
