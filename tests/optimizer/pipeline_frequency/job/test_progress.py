"""How far measuring has come, in words."""

from __future__ import annotations

import pytest

from zeus.optimizer.pipeline_frequency.job._progress import Progress, about_left, slowest


def test_progress_says_the_step_and_the_time_left():
    assert str(Progress(0, 6, 0, 6)) == "step 1 of about 6"
    assert str(Progress(4, 9, 3, 6, 8.1)) == "step 5 of about 9, about 40 seconds left"
    assert Progress(0, 6, 0, 6).left is None
    assert Progress(4, 9, 3, 6, 8.0).left == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "about 1 second left"),
        (7.4, "about 7 seconds left"),
        (23.0, "about 25 seconds left"),
        (99.0, "about 100 seconds left"),
        (100.0, "about 2 minutes left"),
        (1000.0, "about 17 minutes left"),
    ],
)
def test_times_are_as_precise_as_an_estimate_can_be(seconds, words):
    assert about_left(seconds) == words


def test_the_rank_that_takes_longest_counts():
    quick, slow = Progress(4, 6, 3, 6, 1.0), Progress(3, 6, 3, 6, 1.0)
    unknown = Progress(0, 6, 0, 6)
    assert slowest([quick, slow]) == slow
    assert slowest([unknown, slow]) == unknown
    assert slowest([unknown, unknown]) == unknown
    assert slowest([]) is None
