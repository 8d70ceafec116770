"""One GPU's clock, requested now or for later, under one hold."""

from __future__ import annotations

import pytest

from zeus.errors import KnobError
from zeus.optimizer.pipeline_frequency.running._clocks import ClockSetter, InForce, thinned
from zeus.testing import SimulatedNode

HIGHEST, LOWER, LOWEST = 1410, 1200, 900


@pytest.fixture
def node():
    with SimulatedNode("a100", load=0.0) as node:
        yield node


@pytest.fixture
def setter(node):
    setter = ClockSetter(node.gpus[0], node.clock)
    setter.begin()
    yield setter
    setter.close()


def locked(node: SimulatedNode) -> int | None:
    lock = node.gpus[0].locked_graphics_clock()
    return None if lock is None else lock.maximum


def test_it_holds_the_highest_clock_until_another_is_wanted(node, setter):
    assert locked(node) == setter.ladder[0] == HIGHEST
    assert setter.in_force == InForce(HIGHEST, 0.0)
    node.sleep(1.0)
    setter.want(LOWER)
    assert locked(node) == LOWER
    assert setter.in_force == InForce(LOWER, 1.0)


def test_a_clock_for_later_is_set_then_and_not_before(node, setter):
    setter.want(LOWER, at=2.0)
    assert setter.due() == 2.0
    assert setter.wanted == LOWER
    node.sleep(1.9)
    assert locked(node) == HIGHEST
    node.sleep(0.2)
    assert locked(node) == LOWER
    assert setter.due() is None
    assert setter.in_force == InForce(LOWER, 2.0)


def test_only_the_latest_request_counts(node, setter):
    setter.want(LOWER, at=2.0)
    setter.want(LOWEST, at=3.0)
    node.sleep(2.5)
    assert locked(node) == HIGHEST
    setter.want(HIGHEST)
    node.sleep(2.0)
    assert locked(node) == HIGHEST


def test_a_request_for_now_replaces_the_same_one_for_later(node, setter):
    setter.want(LOWER, at=2.0)
    setter.want(LOWER)
    assert locked(node) == LOWER
    assert setter.due() is None


def test_an_instant_in_the_past_is_now(node, setter):
    node.sleep(5.0)
    setter.want(LOWER, at=4.0)
    assert locked(node) == LOWER


def test_requests_are_recorded_when_they_reach_the_driver(node, setter):
    """Once each: a clock that is set is not asked for again."""
    setter.requests.clear()
    setter.want(HIGHEST)
    setter.want(LOWER, at=1.0)
    node.sleep(1.5)
    setter.want(LOWER)
    setter.want(LOWEST)
    assert list(setter.requests) == [(1.0, LOWER), (1.5, LOWEST)]


def test_the_end_restores_what_was_there_and_drops_what_is_due(node):
    setter = ClockSetter(node.gpus[0], node.clock)
    setter.begin()
    setter.begin()
    setter.want(LOWER, at=1.0)
    setter.end()
    assert locked(node) is None
    assert (setter.in_force, setter.due()) == (None, None)
    node.sleep(2.0)
    assert locked(node) is None
    setter.begin()
    assert locked(node) == HIGHEST
    setter.close()
    assert locked(node) is None


def test_a_lock_that_was_there_is_the_highest(node):
    with node.gpus[0].hold(graphics_clock=(210, LOWER)):
        setter = ClockSetter(node.gpus[0], node.clock)
        assert setter.ladder[0] == LOWER


def test_a_hold_above_covers_ours_until_it_ends(node, setter):
    with node.gpus[0].hold(graphics_clock=(210, LOWEST)):
        setter.want(LOWER)
        setter.confirm()
        assert setter.covered
        assert setter.in_force is None
        assert f"at {LOWEST} MHz" in setter.who_covers()
    setter.confirm()
    assert not setter.covered
    assert locked(node) == LOWER
    assert setter.trouble == ""


def test_a_gpu_without_clocks_is_refused():
    with SimulatedNode("a100") as node:
        gpu = node.gpus[0]
        found = gpu.supported_clocks()
        node.drivers[0].supported_clocks = lambda: type(found)((), ())  # type: ignore[method-assign]
        with pytest.raises(KnobError, match="reports no graphics clock"):
            ClockSetter(gpu, node.clock)


def test_a_ladder_is_thinned_from_the_highest_down():
    assert thinned((1410, 1395, 1380, 1365, 1350), 30.0) == (1410, 1380, 1350)
    assert thinned((1410, 1395), 0.0) == (1410, 1395)
    assert thinned((), 30.0) == ()
