"""Batch sizes that behave alike: what is evidence of it, and what is not."""

from __future__ import annotations

import pytest

from zeus.optimizer.batch_size.job._alike import EpochFigures, alike

MINE = EpochFigures(100, 50.0, 9000.0)


@pytest.mark.parametrize(
    ("size", "other", "figures", "found"),
    [
        (64, 16, EpochFigures(100, 50.5, 9050.0), True),
        (16, 64, EpochFigures(100, 50.5, 9050.0), True),
        (64, 32, EpochFigures(100, 50.0, 9000.0), True),
        (64, 48, EpochFigures(100, 50.0, 9000.0), False),  # too near to each other
        (64, 16, EpochFigures(400, 50.0, 9000.0), False),  # as it should be
        (64, 16, EpochFigures(100, 20.0, 3000.0), False),  # an epoch is a number of steps
        (64, 16, EpochFigures(100, 50.0, 8000.0), False),
        (64, 16, EpochFigures(100, 50.0, None), False),  # not known well enough
        (64, 8, EpochFigures(None, 50.2, 9050.0), True),
        (64, 8, EpochFigures(None, 51.0, 9050.0), False),
        (64, 16, EpochFigures(None, 50.0, 9000.0), False),  # as on a GPU that is saturated
    ],
)
def test_two_sizes(size, other, figures, found):
    said = alike(size, MINE, {other: figures})
    assert bool(said) == found
    if found:
        assert f"with batch size {size} as with {other}: the program may ignore" in said
        assert ("as many steps (100)" in said) == (figures.steps is not None)


def test_one_step_per_epoch_is_no_evidence_and_neither_is_nothing():
    one = EpochFigures(1, 50.0, 9000.0)
    assert alike(64, one, {512: one}) == ""
    assert alike(64, one, {}) == ""
