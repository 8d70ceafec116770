"""The simulated GPUs: what can be asked for, the physics they follow, and the state they share."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.device.strategies import schedules

from zeus.clock import VirtualClock
from zeus.device import Gpu
from zeus.device._base import Capability, ClockRange
from zeus.device._node import simulated_node
from zeus.device._simulated import SimulatedGpuDriver, build, parse_load, parse_spec
from zeus.device._simulated_models import MODELS
from zeus.device._simulated_state import AMBIENT, IDLE
from zeus.errors import CapabilityError, KnobError, Reason, SimulationError

COUNTED = sorted(key for key, model in MODELS.items() if model.sensors.counter is not None)


def virtual(key: str, load: float | None = None) -> tuple[SimulatedGpuDriver, VirtualClock]:
    clock = VirtualClock(100.0)
    return build(key, clock, load)[0], clock


# --- What can be asked for ------------------------------------------------------------------------


@pytest.mark.parametrize("key", MODELS)
def test_every_model_can_be_named_counted_and_shouted(key: str) -> None:
    model = MODELS[key]
    assert parse_spec(key) == [model]
    assert parse_spec(f"{key}x3") == [model] * 3
    assert parse_spec(f" {key.upper()}X64 ") == [model] * 64


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        ("v100x2,a40", ["v100", "v100", "a40"]),
        ("a40x1, a100x2 ,p100", ["a40", "a100", "a100", "p100"]),
        ("mi300x8", ["mi300x"] * 8),
        ("mi300xx8", ["mi300x"] * 8),
        ("mi300x", ["mi300x"]),
        ("mi250x2,mi300x", ["mi250x"] * 2 + ["mi300x"]),
        ("rtx6000x02", ["rtx6000"] * 2),
    ],
)
def test_mixtures(spec: str, keys: list[str]) -> None:
    assert [model.key for model in parse_spec(spec)] == keys


@pytest.mark.parametrize(
    "spec",
    ["", ",", "v100,", "v101", "v100x", "v100y2", "v1002", "v100x-1", "x4", "4v100", "v100 x2",
     "v100x2x3", "v100x٣", "v100x12345", "mi300xxx8"],
)  # fmt: skip
def test_a_wrong_part_is_quoted_with_the_rule(spec: str) -> None:
    with pytest.raises(SimulationError, match=r"<model>\[x<count>\]") as wrong:
        parse_spec(spec)
    assert repr(spec) in str(wrong.value)
    assert all(key in str(wrong.value) for key in MODELS)


@pytest.mark.parametrize("spec", ["v100x0", "v100x65", "a40,v100x9999"])
def test_a_wrong_count_is_quoted_with_the_rule(spec: str) -> None:
    with pytest.raises(SimulationError, match="1 <= count <= 64") as wrong:
        parse_spec(spec)
    assert repr(spec) in str(wrong.value)


@given(st.text("v10ax,m3i2 ", max_size=12))
def test_any_text_is_a_node_or_an_error_that_says_why(spec: str) -> None:
    found: Any
    try:
        found = parse_spec(spec)
    except SimulationError as error:
        found = str(error)
    assert repr(spec) in found if isinstance(found, str) else found


@pytest.mark.parametrize(
    ("text", "load"),
    [(None, None), ("", None), ("  ", None), ("idle", IDLE), (" Idle ", IDLE), ("0", 0.0),
     ("0.25", 0.25), ("1", 1.0), ("1e-3", 0.001)],
)  # fmt: skip
def test_loads(text: str | None, load: float | None) -> None:
    assert parse_load(text) == load


@pytest.mark.parametrize("text", ["1.01", "-0.1", "nan", "inf", "full", "50%", "-1"])
def test_a_wrong_load_is_quoted_with_the_rule(text: str) -> None:
    with pytest.raises(SimulationError, match="0 <= load <= 1") as wrong:
        parse_load(text)
    assert repr(text) in str(wrong.value)


def test_gpus_of_different_nodes_are_different_gpus() -> None:
    # Their records are kept under these names, so the same name would mix up two GPUs.
    clock = VirtualClock()
    nodes = [build(spec, clock, None) for spec in ("v100", "v100x2", "v100x4", "a40,v100")]
    keys = [driver.identity.key for driver in itertools.chain(*nodes)]
    assert len(set(keys)) == len(keys)
    again = build(" V100x2 ", clock, None)
    assert [driver.identity.key for driver in again] == keys[1:3]


def test_each_gpu_has_an_address_of_its_own() -> None:
    drivers = build("v100x64", VirtualClock(), None)
    assert len({driver.identity.pci_address for driver in drivers}) == 64


def test_visible_devices_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    node = simulated_node("v100x4", VirtualClock())
    assert [node.drivers.index(gpu.driver) for gpu in node.gpus] == [3, 1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", node.drivers[2].identity.key[:12])
    again = simulated_node("v100x4", VirtualClock())
    assert [again.drivers.index(gpu.driver) for gpu in again.gpus] == [2]


def test_gpus_come_as_written_unless_the_fastest_is_to_be_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def order() -> list[str]:
        names = {model.name: key for key, model in MODELS.items()}
        return [names[gpu.name] for gpu in simulated_node("p100,v100,h100", VirtualClock()).gpus]

    assert order() == ["p100", "v100", "h100"]
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert order() == ["h100", "p100", "v100"]


# --- Physics --------------------------------------------------------------------------------------


models = st.sampled_from(sorted(MODELS))
shares = st.floats(0, 1)


def set_up(key: str, activity: float, limit: float, clock: float, share: float = 1.0) -> Any:
    """A GPU under load; limit and clock as shares of their ranges."""
    driver, now = virtual(key)
    model = driver.model
    driver.set_power_limit(
        model.minimum_limit + limit * (model.maximum_limit - model.minimum_limit)
    )
    megahertz = round(model.lowest_clock + clock * (model.highest_clock - model.lowest_clock))
    driver.lock_graphics_clock(ClockRange(model.lowest_clock, megahertz))
    driver.set_load(activity, share)
    settle(driver, now)
    return driver


def settle(driver: SimulatedGpuDriver, clock: VirtualClock) -> None:
    """Let all sensors show what is drawn now."""
    clock.sleep(driver.sensors.reach)


@given(models, shares, shares, shares, st.floats(0.01, 1))
def test_power_keeps_the_limit_unless_the_clock_is_at_its_floor(
    key: str, activity: float, limit: float, clock: float, share: float
) -> None:
    driver = set_up(key, activity, limit, clock, share)
    power, now = driver.instant_power(), driver.current_clocks().graphics
    assert power <= driver.power_limit() + 1e-3 or now == driver.model.lowest_clock
    assert power >= min(driver.model.idle_power, driver.model.static_power)
    assert driver.model.lowest_clock <= now <= driver.locked_graphics_clock().maximum


@given(models, shares, shares, shares, shares)
def test_power_and_clock_rise_with_the_limit(
    key: str, activity: float, low: float, high: float, clock: float
) -> None:
    low, high = sorted((low, high))
    less, more = (set_up(key, activity, limit, clock) for limit in (low, high))
    assert less.instant_power() <= more.instant_power() + 1e-3
    assert less.relative_clock(activity) <= more.relative_clock(activity) + 1e-8


@given(models, shares, shares, shares, shares)
def test_power_rises_with_clock_and_activity(
    key: str, limit: float, clock: float, low: float, high: float
) -> None:
    low, high = sorted((low, high))
    slow, fast = (set_up(key, 0.7, limit, bound).instant_power() for bound in (low, high))
    assert slow <= fast + 1e-3
    calm, busy = (set_up(key, activity, limit, clock).instant_power() for activity in (low, high))
    assert calm <= busy + 1e-3


@pytest.mark.parametrize("key", MODELS)
def test_full_load_draws_the_whole_default_limit_at_the_highest_clock(key: str) -> None:
    driver, _ = virtual(key, 1.0)
    assert driver.instant_power() == pytest.approx(driver.model.maximum_limit)
    assert driver.current_clocks().graphics == driver.model.highest_clock
    assert driver.utilization() == 1.0
    assert len(driver.processes()) == 1


@pytest.mark.parametrize("key", MODELS)
def test_an_idle_gpu_draws_little_and_has_no_processes(key: str) -> None:
    driver, clock = virtual(key)
    assert driver.instant_power() == driver.model.idle_power < driver.model.static_power
    assert driver.utilization() == 0.0
    assert driver.processes() == ()
    assert driver.memory().used < driver.memory().total
    driver.set_load(0.0)
    settle(driver, clock)
    assert driver.instant_power() == pytest.approx(driver.model.static_power, abs=1e-3)


@pytest.mark.parametrize("key", MODELS)
def test_a_lower_limit_costs_less_energy_for_the_same_work_somewhere(key: str) -> None:
    # Otherwise there would be nothing to optimize: power falls faster than the clock does.
    driver, clock = virtual(key, 1.0)
    model = driver.model

    def energy(limit: float) -> float:
        driver.set_power_limit(limit)
        settle(driver, clock)
        return driver.instant_power() / driver.relative_clock(1.0)

    assert energy((model.minimum_limit + model.maximum_limit) / 2) < energy(model.maximum_limit)


@pytest.mark.parametrize("key", MODELS)
def test_supported_clocks_run_from_highest_to_lowest(key: str) -> None:
    driver, _ = virtual(key)
    clocks = driver.supported_clocks()
    assert clocks.graphics[0] == driver.model.highest_clock
    assert driver.model.lowest_clock <= clocks.graphics[-1]
    assert list(clocks.graphics) == sorted(set(clocks.graphics), reverse=True)
    assert clocks.memory == (driver.model.memory_clock,)


def test_temperature_follows_power_slowly() -> None:
    driver, clock = virtual("v100")
    cold = driver.temperature()
    driver.set_load(1.0)
    assert driver.temperature() == cold  # not at once
    seen = [cold]
    for _ in range(20):
        clock.sleep(10.0)
        seen.append(driver.temperature())
    assert seen == sorted(seen)
    hot = AMBIENT + driver.model.thermal_resistance * driver.instant_power()
    assert seen[-1] == pytest.approx(hot, abs=1.0)
    assert cold + 10 < seen[-1] < 100
    driver.set_load(IDLE)
    clock.sleep(1e4)
    assert driver.temperature() == cold


def test_average_power_lags_behind() -> None:
    driver, clock = virtual("a40")
    before = driver.average_power()
    assert before == driver.instant_power() == driver.model.idle_power
    driver.set_load(1.0)
    assert driver.average_power() == before
    clock.sleep(0.25)
    target = driver.instant_power()
    assert target == pytest.approx(driver.model.maximum_limit)
    assert before < driver.average_power() < target
    middle = driver.average_power()
    driver.set_power_limit(driver.model.maximum_limit)  # a change of nothing changes nothing
    assert driver.average_power() == pytest.approx(middle, abs=2e-3)
    clock.sleep(10.0)
    assert driver.average_power() == pytest.approx(target, abs=0.01)


def test_what_a_part_does_not_report_is_unsupported() -> None:
    p100, v100, h100 = (Gpu(0, virtual(key)[0]) for key in ("p100", "v100", "h100"))
    with pytest.raises(CapabilityError, match="Tesla P100") as missing:
        p100.energy()
    assert missing.value.reason is Reason.UNSUPPORTED
    available = {
        gpu.name: {capability for capability in Capability if gpu.support(capability).available}
        for gpu in (p100, v100, h100)
    }
    everything = set(Capability)
    lacking = {Capability.AVERAGE_POWER, Capability.MEMORY_POWER}
    assert available[h100.name] == everything
    assert available[v100.name] == everything - lacking
    assert available[p100.name] == everything - lacking - {Capability.ENERGY_COUNTER}


def test_knobs_read_back_as_set_and_refuse_what_is_out_of_range() -> None:
    driver, _ = virtual("v100")
    assert driver.power_limits().default == driver.power_limit() == 250.0
    driver.set_power_limit(187.5)
    assert driver.power_limit() == 187.5
    for watts in (99.9, 250.1, math.nan, -1.0):
        with pytest.raises(KnobError, match=r"100 W <= power_limit <= 250 W.*but got"):
            driver.set_power_limit(watts)
    assert driver.power_limit() == 187.5
    driver.set_persistence(False)
    assert driver.persistence() is False
    driver.set_persistence(True)
    assert driver.persistence() is True


# --- Counters -------------------------------------------------------------------------------------


def first_ticks(driver: SimulatedGpuDriver, clock: VirtualClock, count: int) -> list[float]:
    """Instants at which the counter moves, found by watching it."""
    period = driver.counter_period
    assert period is not None
    ticks: list[float] = []
    shown = driver.energy()
    step = period / 64
    while len(ticks) < count:
        clock.sleep(step)
        if driver.energy() != shown:
            shown = driver.energy()
            ticks.append(clock.now())
    return ticks


@pytest.mark.parametrize("key", COUNTED)
def test_counters_move_at_their_period_and_not_in_between(key: str) -> None:
    driver, clock = virtual(key, 1.0)
    counter = driver.model.sensors.counter
    assert counter is not None
    period = counter.period
    assert driver.counter_period == period
    ticks = first_ticks(driver, clock, 6)
    for earlier, later in itertools.pairwise(ticks):
        assert later - earlier == pytest.approx(period, abs=period / 60)


def test_counters_of_one_node_are_not_in_step() -> None:
    clock = VirtualClock(100.0)
    drivers = build("v100x4", clock, 1.0)
    phases = [driver.sensors.counter.phase for driver in drivers if driver.sensors.counter]
    assert len({round(phase, 6) for phase in phases if phase is not None}) == 4


@settings(max_examples=60, deadline=None)
@given(key=st.sampled_from(COUNTED), schedule=schedules, slot=st.integers(0, 3))
def test_counters_are_exact_at_ticks_whatever_changes_in_between(
    key: str, schedule: list[Any], slot: int
) -> None:
    clock = VirtualClock(100.0)
    driver = build(f"{key}x4", clock, None, "live-power")[slot]
    model, counter = driver.model, driver.sensors.counter
    assert counter is not None
    assert counter.phase is not None
    period, phase = counter.period, counter.period * counter.phase
    # A truth of our own: what the GPU says it draws after each change, summed by hand.
    history: list[tuple[float, float]] = [(clock.now(), driver.instant_power())]

    def joules(instant: float) -> float:
        total = 0.0
        for (start, watts), (end, _) in itertools.pairwise([*history, (instant, 0.0)]):
            total += watts * max(0.0, min(end, instant) - start)
        return total

    def check() -> None:
        now = clock.now()
        tick = phase + math.floor((now - phase) / period) * period
        shown = driver.energy()
        # A tick at this very instant may or may not have been counted.
        rounding = 1e-9 * now
        latest = now + rounding
        ticks = [max(100.0, tick + k * period) for k in (-1, 0, 1) if tick + k * period <= latest]
        near = min(abs(now - tick), abs(tick + period - now)) < rounding
        allowed = [joules(tick) for tick in (ticks if near else ticks[-1:])]
        assert any(shown == pytest.approx(truth, abs=2e-3) for truth in allowed)
        assert driver.exact_energy() == pytest.approx(joules(now), abs=2e-3)
        assert shown <= driver.exact_energy() + 2e-3

    seen = [driver.energy()]
    for pause, (what, value, share) in schedule:
        for part in (0.3, 0.7):
            clock.sleep(pause * part)
            check()
            seen.append(driver.energy())
        if what == "load":
            driver.set_load(value, share)
        elif what == "idle":
            driver.set_load(IDLE)
        elif what == "limit":
            limits = driver.power_limits()
            driver.set_power_limit(limits.minimum + value * (limits.maximum - limits.minimum))
        else:
            high = model.lowest_clock + value * (model.highest_clock - model.lowest_clock)
            driver.lock_graphics_clock(ClockRange(model.lowest_clock, round(high)))
        history.append((clock.now(), driver.instant_power()))
        check()
        seen.append(driver.energy())
    clock.sleep(1.0)
    check()
    assert seen == sorted(seen)  # never backwards


def test_a_day_of_energy_is_as_exact_as_a_second_of_it() -> None:
    driver, clock = virtual("v100", 1.0)
    clock.sleep(86400.0)
    assert driver.exact_energy() == pytest.approx(250.0 * 86400.0)
    assert driver.energy() == pytest.approx(250.0 * 86400.0, abs=250.0 * 0.02 + 0.01)
