"""The knobs, and the ladder of settings that the GPUs of a job share."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.device.clients import stand_in

from zeus.device._base import ClockRange, SupportedClocks
from zeus.device._simulated_models import MODELS
from zeus.errors import KnobError
from zeus.optimizer.training._knob_controller import KnobController
from zeus.optimizer.training._knobs import ClockKnob, GpuKnobInfo, Ladder, PowerLimitKnob
from zeus.testing import SimulatedNode

ODD = 187.5


def card(model="V", ladder=(250, 200, 150), present=250, max_power=250):
    return GpuKnobInfo(model, tuple(ladder), present, max_power)


# --- Power limits -------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", MODELS)
def test_power_limits_go_from_the_highest_to_the_lowest(spec):
    node = SimulatedNode(spec)
    ladder = PowerLimitKnob(25).ladder(node.gpus[0])
    limits = node.gpus[0].power_limits()
    assert (ladder[0], ladder[-1]) == (limits.maximum, limits.minimum)
    assert all(high - low == 25 for high, low in pairwise(ladder[:-1]))
    assert 0 < ladder[-2] - ladder[-1] <= 25


@pytest.mark.parametrize(
    ("stride", "expected"),
    [
        (25, (250, 225, 200, 175, 150, 125, 100)),
        (50, (250, 200, 150, 100)),
        (40, (250, 210, 170, 130, 100)),
        (1000, (250, 100)),
        (62.5, (250, 187.5, 125, 100)),
    ],
)
def test_the_stride_is_obeyed(stride, expected):
    assert PowerLimitKnob(stride).ladder(SimulatedNode("v100").gpus[0]) == expected


def test_a_fine_stride_ends_at_the_lowest_limit_once():
    ladder = PowerLimitKnob(0.1).ladder(SimulatedNode("v100").gpus[0])
    assert len(ladder) == 1501
    assert ladder[-1] == pytest.approx(100)
    assert len(set(ladder)) == len(ladder)


def test_a_power_limit_is_held_and_changed():
    gpu = SimulatedNode("v100").gpus[0]
    knob = PowerLimitKnob(25)
    gpu.driver.set_power_limit(ODD)
    assert knob.present(gpu) == ODD
    with knob.hold(gpu, 150) as hold:
        assert gpu.power_limit() == 150
        knob.change(hold, 125)
        assert gpu.power_limit() == 125
    assert gpu.power_limit() == ODD


# --- Clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", MODELS)
def test_clocks_are_supported_ones_at_least_a_stride_apart(spec):
    gpu = SimulatedNode(spec).gpus[0]
    ladder = ClockKnob(75).ladder(gpu)
    supported = gpu.supported_clocks().graphics
    assert ladder[0] == max(supported)
    assert set(ladder) <= set(supported)
    assert all(high - low >= 75 for high, low in pairwise(ladder))
    assert ladder[-1] - min(supported) < 75


def test_a_clock_is_an_upper_bound():
    gpu = SimulatedNode("v100").gpus[0]
    knob = ClockKnob(75)
    assert knob.present(gpu) == 1380
    with knob.hold(gpu, 1005) as hold:
        assert gpu.locked_graphics_clock() == ClockRange(135, 1005)
        knob.change(hold, 900)
        assert gpu.locked_graphics_clock() == ClockRange(135, 900)
        assert knob.present(gpu) == 900
    assert gpu.locked_graphics_clock() is None


def test_a_gpu_without_clocks_to_lock_says_so(monkeypatch):
    gpu, driver = stand_in()
    monkeypatch.setattr(driver, "supported_clocks", lambda: SupportedClocks((), ()))
    with pytest.raises(KnobError, match="Stand-in reports no graphics clock"):
        ClockKnob(75).ladder(gpu)


# --- The ladder of a job ------------------------------------------------------------------------


def test_gpus_of_one_model_share_the_settings_that_all_accept():
    ladder = Ladder({"a": card(), "b": card(ladder=(225, 200, 150)), "c": card()})
    assert ladder.knobs == (200, 150)
    assert (ladder.gpus, ladder.max_power, str(ladder)) == (3, 750, "V")
    assert ladder.limits(ladder.knobs) == [200.0, 150.0]


def test_the_maximum_power_is_that_of_all_gpus_each_once():
    seen_by_two_processes = {"a": card(), "b": card()} | {"b": card(), "c": card()}
    assert Ladder(seen_by_two_processes).max_power == 750


def test_mixed_models_go_down_their_own_ladders_at_one_pace():
    ladder = Ladder({"a": card("W", (400, 300, 200, 100), 400, 400), "b": card(), "c": card()})
    assert ladder.knobs == (
        {"V": 250, "W": 400},
        {"V": 200, "W": 300},
        {"V": 150, "W": 200},
        {"V": 150, "W": 100},
    )
    assert ladder.max_power == 900
    assert ladder.present == {"V": 250, "W": 400}
    assert ladder.limits(ladder.knobs) is None
    assert ladder.along([]) == list(ladder.knobs)
    assert ladder.along(list(ladder.knobs[:2])) == list(ladder.knobs)


def test_how_many_there_are_of_each_model_is_told():
    # Two of one and one of the other is not the same job as one and two.
    first = Ladder({"a": card("V"), "b": card("V"), "c": card("W")})
    second = Ladder({"a": card("V"), "b": card("W"), "c": card("W")})
    assert (str(first), str(second)) == ("2 x V + 1 x W", "1 x V + 2 x W")


def test_the_setting_from_before_is_one_for_all_or_none():
    assert Ladder({"a": card(present=ODD), "b": card(present=ODD)}).present == ODD
    assert Ladder({"a": card(present=ODD), "b": card(present=250)}).present is None


def test_no_gpu_or_nothing_in_common_is_told():
    with pytest.raises(KnobError, match="at least one GPU, but got none"):
        Ladder({})
    with pytest.raises(KnobError, match=r"settings in common, but those of V have \[\(100,\)"):
        Ladder({"a": card(ladder=(200,)), "b": card(ladder=(100,))})


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], [250, 225, 200, 175, 150, 125, 100]),
        ([250], [250, 225, 200, 175, 150, 125, 100]),
        ([250, 225, 200], [250, 225, 200, 175, 150, 125, 100]),
        # From a finer ladder: nothing is missing between what is known.
        ([250, 240, 230, 220, 210], [250, 240, 230, 220, 210, 200, 175, 150, 125, 100]),
        ([250, 230, 210, 190], [250, 230, 210, 190, 175, 150, 125, 100]),
        # From a coarser ladder, or with limits that were jumped over.
        ([250, 200], [250, 225, 200, 175, 150, 125, 100]),
        ([250, 150, 125], [250, 225, 200, 175, 150, 125, 100]),
        # Not from the top.
        ([200, 175], [250, 225, 200, 175, 150, 125, 100]),
        ([250, 225, 200, 175, 150, 125, 100], [250, 225, 200, 175, 150, 125, 100]),
    ],
)
def test_what_is_known_is_filled_up_with_what_is_not(known, expected):
    node = SimulatedNode("v100")
    knob = PowerLimitKnob(25)
    ladder = Ladder({"a": GpuKnobInfo.of(node.gpus[0], knob, simulated=True)})
    assert ladder.along(known) == expected


def test_settings_that_gpus_do_not_accept_are_known():
    ladder = Ladder({"a": card()})
    assert ladder.accepts(250)
    assert ladder.accepts(160.5)
    for strange in (251, 149, "250", None, True, {"V": 200, "W": 200}, {"W": 200}):
        assert not ladder.accepts(strange)


def test_a_card_of_a_simulated_gpu_says_so():
    gpu = SimulatedNode("v100").gpus[0]
    knob = PowerLimitKnob(25)
    assert GpuKnobInfo.of(gpu, knob, simulated=True).model == "Tesla V100-PCIE-32GB (simulated)"
    assert GpuKnobInfo.of(gpu, knob, simulated=False).model == "Tesla V100-PCIE-32GB"


# --- The hand on the knobs ----------------------------------------------------------------------


def test_a_grip_sets_all_gpus_and_puts_back_what_each_had():
    node = SimulatedNode("v100x3")
    for gpu, watts in zip(node.gpus, (250, ODD, 110), strict=True):
        gpu.driver.set_power_limit(watts)
    grip = KnobController(PowerLimitKnob(25), node.gpus, simulated=True)

    def now():
        return [gpu.power_limit() for gpu in node.gpus]

    grip.try_control()
    assert now() == [250, ODD, 110]
    grip.apply(200)
    assert now() == [200] * 3
    grip.apply(150)
    grip.apply(None)
    assert now() == [250, ODD, 110]
    grip.apply(125)
    grip.release()
    grip.release()
    assert now() == [250, ODD, 110]


def test_a_grip_sets_models_apart():
    node = SimulatedNode("v100,a40")
    grip = KnobController(PowerLimitKnob(25), node.gpus, simulated=False)
    grip.apply({"Tesla V100-PCIE-32GB": 150, "NVIDIA A40": 200})
    assert [gpu.power_limit() for gpu in node.gpus if "V100" in gpu.name] == [150]
    assert [gpu.power_limit() for gpu in node.gpus if "A40" in gpu.name] == [200]
    grip.release()


def test_a_setting_that_is_in_force_is_not_set_again():
    gpu, driver = stand_in()
    calls = []
    driver.before = lambda knob, value: calls.append(value)
    grip = KnobController(PowerLimitKnob(25), [gpu], simulated=False)
    for _ in range(3):
        grip.apply(200)
    assert calls == [200]
    grip.release()
    assert calls == [200, 250]
