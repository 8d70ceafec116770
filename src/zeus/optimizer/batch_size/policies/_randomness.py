"""Counter-based random numbers: each is a pure function of a seed and of counters.

So a decision does not depend on how many other jobs are decided in the same call, nor on earlier
draws, and a restart draws the same again. Counters are mixed by the finalizer of SplitMix64, which
passes the usual statistical tests and is a handful of array operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_STEPS = (np.uint64(30), np.uint64(27), np.uint64(31))
_SHIFT = np.uint64(11)
_UNIT = 2.0**-53


def _mixed(words: Words) -> Words:
    words = words + _GOLDEN
    words = (words ^ (words >> _STEPS[0])) * _FIRST
    words = (words ^ (words >> _STEPS[1])) * _SECOND
    mixed: Words = words ^ (words >> _STEPS[2])
    return mixed


def _hashed(seed: Any, counters: tuple[Any, ...]) -> Words:
    # At least one dimension: numpy warns about overflow of scalars, not of arrays.
    words = _mixed(np.atleast_1d(np.asarray(seed)).astype(np.uint64))
    for counter in counters:
        words = _mixed(words ^ np.atleast_1d(np.asarray(counter)).astype(np.uint64))
    return words


def uniform(seed: Any, *counters: Any) -> Floats:
    """Draw uniform numbers in [0, 1).

    Args:
        seed: Integers, of any shape.
        counters: Integers that identify each draw; broadcast against the seed.
    """
    numbers: Floats = (_hashed(seed, counters) >> _SHIFT).astype(np.float64) * _UNIT
    return numbers


def normal(seed: Any, *counters: Any) -> Floats:
    """Draw from the standard normal distribution; the arguments are those of `uniform`."""
    words = _hashed(seed, counters)
    radius = (words >> _SHIFT).astype(np.float64) * _UNIT
    angle = (_mixed(words) >> _SHIFT).astype(np.float64) * (2.0 * np.pi * _UNIT)
    numbers: Floats = np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(angle)
    return numbers
