"""Watching whether a job still takes what its profile says."""

from __future__ import annotations

import pytest
from tests.present import present

from zeus.frontier import Point
from zeus.optimizer.jit._drift import MISMATCH, check_drift, watch_drift
from zeus.optimizer.jit._segment import Idle, Segment, SegmentResult

POINT = Point(200, 0.05, 10.0)


class Watched:
    """A job that takes `time` and `energy` times what its profile says."""

    def __init__(self, program):
        self.program = program
        self.orders = []
        self.drift = None
        self._result = None

    def go(self, time=1.0, energy=1.0, until=Idle):
        """Go on until an order of this kind, or the end."""
        while self.drift is None:
            try:
                order = self.program.send(self._result)
            except StopIteration as end:
                self.drift = end.value
                break
            self.orders.append(order)
            self._result = None
            if isinstance(order, Segment) and order.measured:
                self._result = SegmentResult(
                    order.steps,
                    order.steps * POINT.time * time,
                    order.steps * POINT.energy * energy,
                )
            if isinstance(order, until):
                return order
        return None


def test_it_rests_until_an_epoch_begins_and_looks_at_some_steps_of_it():
    watched = Watched(watch_drift(POINT, 200, at_once=False))
    assert watched.go() == Idle(200)
    for _ in range(3):
        assert watched.go(1.05, 0.95) == Idle(200)
    looks = [order for order in watched.orders if isinstance(order, Segment)]
    assert looks == [Segment(40, 200)] * 3, "two seconds of each"


def test_a_profile_from_another_run_is_looked_at_at_once_but_not_from_the_cold():
    watched = Watched(watch_drift(POINT, 200, at_once=True))
    watched.go()
    assert watched.orders == [Segment(20, 200, measured=False), Segment(40, 200), Idle(200)]


@pytest.mark.parametrize("off", [{"time": 1.2}, {"time": 0.8}, {"energy": 1.2}, {"energy": 0.8}])
@pytest.mark.parametrize("at_once", [True, False])
def test_two_looks_in_a_row_make_a_drift(off, at_once):
    watched = Watched(watch_drift(POINT, 200, at_once=at_once))
    watched.go()
    watched.go(**off)
    assert watched.drift is not None
    ((what, factor),) = off.items()
    said = {"time": f"{0.05 * factor:.4g} s where its profile says 0.05 s",
            "energy": f"{10 * factor:.4g} J where its profile says 10 J"}  # fmt: skip
    assert said[what] in watched.drift
    looks = [o for o in watched.orders if isinstance(o, Segment) and o.measured]
    assert len(looks) == (3 if at_once else 2)


def test_one_look_that_met_a_checkpoint_is_forgotten():
    watched = Watched(watch_drift(POINT, 200, at_once=False))
    watched.go()
    for _ in range(4):
        watched.go(2.0, until=Segment)
        watched.go(1.0, until=Segment)
        assert watched.go() == Idle(200)
    assert watched.drift is None


def test_a_step_longer_than_a_look_is_looked_at_once():
    program = watch_drift(Point(200, 300.0, 5e4), None, at_once=True)
    assert program.send(None) == Segment(1, None, measured=False)
    assert program.send(None) == Segment(1, None)


def test_what_is_to_be_continued_must_match_closely():
    watched = Watched(check_drift(POINT, 200, tolerance=MISMATCH))
    watched.go(1.03)
    assert "0.0515 s where its profile says 0.05 s" in present(watched.drift)
    watched = Watched(check_drift(POINT, 200, tolerance=MISMATCH))
    watched.go(1.005, 0.995)
    assert watched.drift == ""


def test_a_profile_without_energy_is_no_reason_to_divide_by_it():
    watched = Watched(watch_drift(Point(200, 0.05, 0.0), 200, at_once=False))
    watched.go()
    watched.go()
    assert watched.drift is None
