"""Limits of the solver: parts of them, and how far it has come."""

from __future__ import annotations

import pytest

from zeus.errors import PipelineError
from zeus.optimizer.pipeline_frequency import solve
from zeus.optimizer.pipeline_frequency._limit import Limit, SolvingCancelledError


def test_a_part_is_cancelled_with_the_whole_and_never_longer():
    whole = Limit(100.0, 1 << 20)
    part = whole.within(5.0)
    assert (part.seconds, part.room) == (5.0, 1 << 20)
    assert whole.within(1e6).seconds <= 100.0
    whole.cancel()
    with pytest.raises(SolvingCancelledError):
        part.check()
    with pytest.raises(PipelineError, match="within 0 s"):
        Limit(0.0).within(5.0).check()


def test_progress_counts_points_and_then_rounds():
    limit = Limit()
    assert limit.progress == ""
    limit.aim(500, 4)
    assert limit.progress == "0 of 500 points"
    limit.solving[0] = 120
    assert limit.progress == "120 of 500 points"
    limit.solving[1] = 2
    assert limit.progress == "improving 500 points, round 2 of 4"


def test_the_solver_counts_to_the_end(small):
    limit = Limit()
    solve(small(), 40, limit)
    assert limit.progress == "improving 40 points, round 4 of 4"
