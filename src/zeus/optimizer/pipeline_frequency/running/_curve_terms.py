"""The shape of time and power over the clock, as a sum of few terms.

Computing takes a time proportional to 1 / clock, waiting for memory does not, and a GPU at its
power limit does not follow a higher clock at all; power rises with the clock, steeper above some
voltage. So a curve is a line (in 1 / clock for times, in the clock for power) with bends at fixed
clocks. How much it may bend is learned: a few measurements then say much about all clocks, and many
are followed wherever they go.
"""

from __future__ import annotations

from collections.abc import Sequence

KNOTS = (0.95, 0.9, 0.84, 0.78, 0.71, 0.64, 0.56, 0.48, 0.38)
"""Shares of the highest clock at which a curve may bend."""
TERMS = 2 + len(KNOTS)
BENDS = (0.02, 0.1, 0.4, 1.5)
"""How much curves may bend at a knot: candidates of a standard deviation, relative."""
_VAGUE = 3.0  # standard deviation of the line's two terms, relative


def time_terms(share: float) -> list[float]:
    """Return the terms of a time at a share of the highest clock."""
    return [1.0, 1 / share - 1, *_hinges(share)]


def power_terms(share: float) -> list[float]:
    """Return the terms of a power at a share of the highest clock."""
    return [1.0, share - 1, *_hinges(share)]


def precisions(scale: float, bend: float) -> list[float]:
    """Return the prior precisions of the terms of a curve.

    Args:
        scale: Roughly the curve's value.
        bend: How much it may bend, one of `BENDS`.
    """
    line, knot = 1 / (_VAGUE * scale) ** 2, 1 / (bend * scale) ** 2
    return [line, line, *([knot] * len(KNOTS))]


def row(terms: Sequence[float], first: int = 0, by: float = 1.0) -> dict[int, float]:
    """Return the terms as a sparse row of an equation whose unknowns begin at `first`."""
    return {first + at: by * term for at, term in enumerate(terms) if term}


def _hinges(share: float) -> list[float]:
    return [max(knot - share, 0.0) for knot in KNOTS]
