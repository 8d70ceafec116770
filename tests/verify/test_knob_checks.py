"""Knobs are set under holds only, are restored in any case, and what setting takes is found."""

from __future__ import annotations

import pytest
from tests.verify.worlds import by_name, presets

from zeus.device._base import ClockRange
from zeus.errors import CapabilityError, Reason
from zeus.testing import SimulatedNode
from zeus.verify import _checks as names
from zeus.verify._checks import Verdict, Why
from zeus.verify._knob_checks import check_knobs, check_ranges
from zeus.verify._loads import SimulatedLoad

SECONDS = 0.3


def checked(node, load=True):
    gpu = node.gpus[0]
    load = SimulatedLoad(gpu, gpu.driver, node.clock) if load else None
    return by_name(check_knobs(gpu, node.clock, load, SECONDS))


@pytest.mark.parametrize("lag", [0.0, 0.015])
def test_the_time_until_a_clock_takes_effect_is_found(lag):
    checks = checked(SimulatedNode("v100", clock_lag=lag))
    effect = checks[names.CLOCK_EFFECT]
    assert abs(effect.value - lag) <= effect.uncertainty < 0.01
    assert effect.verdict is Verdict.EXPECTED
    assert checks[names.LIMIT_EFFECT].value <= checks[names.LIMIT_EFFECT].uncertainty


def test_a_slow_clock_is_different():
    checks = checked(SimulatedNode("v100", clock_lag=0.08))
    assert checks[names.CLOCK_EFFECT].verdict is Verdict.DIFFERENT


def test_knobs_come_back_to_what_they_were():
    node = SimulatedNode("v100")
    node.drivers[0].set_power_limit(222.0)
    node.drivers[0].lock_graphics_clock(ClockRange(1005, 1200))
    checks = checked(node)
    assert checks[names.LIMIT_RESTORED].verdict is Verdict.EXPECTED
    assert checks[names.CLOCK_RESTORED].verdict is Verdict.EXPECTED
    assert node.drivers[0].power_limit() == 222.0
    assert node.drivers[0].locked_graphics_clock() == ClockRange(1005, 1200)


def test_an_interrupt_restores_them(monkeypatch):
    node = SimulatedNode("v100")
    limits = []

    def interrupted(self: SimulatedLoad, seconds: float) -> None:
        limits.append(node.drivers[0].power_limit())
        if len(limits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(SimulatedLoad, "pass_time", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checked(node)
    assert limits[1] < limits[0] == 250.0
    assert node.drivers[0].power_limit() == 250.0


def test_without_load_only_the_drivers_answer_is_timed():
    checks = checked(SimulatedNode("a100"), load=False)
    assert checks[names.LIMIT_READBACK].value is not None
    assert checks[names.LIMIT_EFFECT].why == Why.NO_LOAD


def test_a_refusal_says_why_and_changes_nothing(monkeypatch):
    node = SimulatedNode("v100")

    def refuse(*_: object) -> None:
        raise CapabilityError(Reason.NO_PERMISSION, "power limit control", "ask root")

    for setter in ("set_power_limit", "lock_graphics_clock"):
        monkeypatch.setattr(node.drivers[0], setter, refuse)
    checks = checked(node)
    assert {check.why for check in checks.values()} == {Reason.NO_PERMISSION}


def test_a_knob_without_effect_is_noticed(monkeypatch):
    node = SimulatedNode("v100")
    # Accepts, and does nothing.
    monkeypatch.setattr(node.drivers[0], "lock_graphics_clock", lambda _: None)
    checks = checked(node)
    assert checks[names.CLOCK_EFFECT].why == Why.NO_EFFECT
    assert checks[names.CLOCK_READBACK].why == Why.NOT_REPORTED


def test_ranges_are_compared_with_the_preset(monkeypatch):
    node = SimulatedNode("v100")
    expected = presets("v100")
    assert {check.verdict for check in check_ranges(node.gpus[0], expected)} == {Verdict.EXPECTED}
    other = SimulatedNode("a100").drivers[0].power_limits
    monkeypatch.setattr(node.drivers[0], "power_limits", other)
    checks = by_name(check_ranges(node.gpus[0], expected))
    assert checks[names.HIGHEST_LIMIT].verdict is Verdict.DIFFERENT
    assert checks[names.LOWEST_LIMIT].verdict is Verdict.EXPECTED
