"""The part of a global batch that one process trains on, and how gradient accumulation reaches it.

A batch size is that of the whole job: the samples of one step of the optimizer, over all processes
and all accumulated gradients. It follows that

    local_batch_size * accumulation_steps * replicas == batch_size

must hold exactly; otherwise a run would train with another batch size than the one it reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from zeus._rules import Whole
from zeus.errors import RunError


@dataclass(frozen=True)
class BatchShare:
    """One replica's share of a batch.

    Attributes:
        batch_size: Samples of one step of the optimizer, of all replicas together.
        replicas: Number of data-parallel replicas, each with the same share.
        local_batch_size: Samples that one replica trains on at once.
        accumulation_steps: Local batches whose gradients are accumulated for one step.
    """

    batch_size: int
    replicas: int
    local_batch_size: int
    accumulation_steps: int

    @classmethod
    def of(
        cls, batch_size: int, replicas: int = 1, max_local_batch_size: int | None = None
    ) -> Self:
        """Share a batch, with as few accumulated local batches as possible.

        Args:
            batch_size: Samples of all replicas together.
            replicas: Number of data-parallel replicas.
            max_local_batch_size: Maximum samples that one replica trains on at once; by default
                its whole share.

        Raises:
            RunError: If the batch cannot be shared equally, or a value breaks its rule.
        """
        Whole(1).check("replicas", replicas, RunError)
        if not can_share(batch_size, replicas):
            raise RunError(
                "`batch_size` is of all processes together and must be a multiple of `replicas`, "
                f"but got (batch_size={batch_size}, replicas={replicas})"
            )
        share = batch_size // replicas
        most = share
        if max_local_batch_size is not None:
            most = Whole(1).check("max_local_batch_size", max_local_batch_size, RunError)
        steps = _smallest_divisor(share, math.ceil(share / most))
        return cls(batch_size, replicas, share // steps, steps)


def local_size(batch_size: int, replicas: int, max_local_batch_size: int | None) -> int:
    """Return the samples of one replica at once, rounded up if a batch cannot be shared equally.

    Args:
        batch_size: Samples of all replicas together.
        replicas: Number of data-parallel replicas.
        max_local_batch_size: Maximum samples that one replica trains on at once, if any.
    """
    equal = math.ceil(batch_size / replicas) * replicas
    return BatchShare.of(equal, replicas, max_local_batch_size).local_batch_size


def can_share(batch_size: int, replicas: int) -> bool:
    """Return whether replicas can share a batch equally."""
    return batch_size % replicas == 0


def nearest_shared(batch_size: int, batch_sizes: Sequence[int], replicas: int) -> int:
    """Return the batch size that replicas can share equally, nearest to another by its ratio.

    Args:
        batch_size: The batch size to stay near to; returned if it can be shared itself.
        batch_sizes: Those to choose from.
        replicas: Number of data-parallel replicas.

    Raises:
        RunError: If none of them can be shared equally.
    """
    if batch_size in batch_sizes and can_share(batch_size, replicas):
        return batch_size
    shared = [each for each in batch_sizes if can_share(each, replicas)]
    if not shared:
        raise RunError(
            "a batch is of all processes together, and one of `batch_sizes` must be a multiple of "
            f"`replicas`, but got (batch_sizes={tuple(batch_sizes)}, replicas={replicas})"
        )
    return min(shared, key=lambda each: max(each / batch_size, batch_size / each))


def _smallest_divisor(number: int, least: int) -> int:
    """Return the smallest divisor of a number that is at least `least`."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    divisors = [*small, *(number // each for each in reversed(small))]
    return next(each for each in divisors if each >= least)
