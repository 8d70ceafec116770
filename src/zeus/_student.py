"""Half-widths of 95 % confidence intervals, which is what all uncertainties in Zeus are."""

from __future__ import annotations

COVERAGE = 1.96
"""Half-width in standard deviations, where these are known."""

_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def student_factor(freedom: int) -> float:
    """Return the half-width in standard errors, where these were estimated (Student's t).

    Args:
        freedom: Degrees of freedom of the estimate, at least 1.
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return COVERAGE + 2.372 / freedom + 2.823 / freedom**2  # the expansion's first terms
