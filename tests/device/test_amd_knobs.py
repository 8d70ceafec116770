"""The AMD back end: power limits and clocks."""

from __future__ import annotations

import pytest
from tests.device.amd_clients import CLOCKS, Ask, same

from simulated_drivers import AmdGpuSpec

# --- The power limit ------------------------------------------------------------------------------


def test_the_power_limit_is_set_and_put_back(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    limits, seen = ask(
        simulation,
        """
limits = driver.power_limits()
gpu = Gpu(0, driver)
seen = [gpu.power_limit()]
simulation.set_power_limit(0, 600.0)
with gpu.hold(power_limit=300.0):
    seen.append(gpu.power_limit())
seen.append(gpu.power_limit())
answer([[limits.minimum, limits.maximum, limits.default], seen])
""",
    )
    assert limits == same(100.0, 750.0, 750.0)
    assert seen == same(750.0, 300.0, 600.0)
    assert simulation.power_limit(0) == 600.0


def test_a_power_limit_out_of_range_names_the_range(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    wrong = [99.0, 750.5, -1.0]
    answers = ask(simulation, f"answer([outcome(driver.set_power_limit, w) for w in {wrong}])")
    for watts, (kind, message) in zip(wrong, answers, strict=True):
        assert kind == "knob"
        assert f"100 W <= power_limit <= 750 W must hold for {AmdGpuSpec.name}" in message
        assert f"got {watts:g} W" in message
    assert simulation.power_limit(0) == 750.0


def test_refused_control_says_what_grants_it(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec())
    simulation.deny_control()
    answers = ask(
        simulation,
        """
answer([outcome(driver.set_power_limit, 300.0),
        outcome(driver.lock_graphics_clock, ClockRange(900, 1300)),
        outcome(driver.lock_graphics_clock, None)])
""",
    )
    assert [said[0] for said in answers] == ["no permission"] * 3
    assert all("root" in said[2] for said in answers)
    assert simulation.power_limit(0) == 750.0
    assert simulation.performance_level(0) == 0


# --- Clocks ---------------------------------------------------------------------------------------


def test_clocks_are_listed_highest_first(simulate, ask: Ask) -> None:
    found = ask(
        simulate(AmdGpuSpec()),
        """
now, offered = driver.current_clocks(), driver.supported_clocks()
answer([[now.graphics, now.memory], offered.graphics, offered.memory])
""",
    )
    assert found == [[2100, 1300], [2100, 1700, 1300, 900, 500], [1300, 1100, 900]]


def test_a_clock_is_locked_read_back_and_unlocked(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    seen = ask(
        simulation,
        CLOCKS
        + """
seen = [clocks(driver)]
for clock in (ClockRange(900, 1700), ClockRange(500, 600), ClockRange(2000, 2100), None):
    driver.lock_graphics_clock(clock)
    seen.append([*clocks(driver), driver.current_clocks().graphics,
                 max(driver.supported_clocks().graphics), simulation.performance_level(0)])
answer(seen)
""",
    )
    assert seen == [
        [None, None],
        [[900, 1700], None, 1700, 2100, 3],
        [[500, 600], None, 600, 2100, 3],
        [[2000, 2100], None, 2100, 2100, 3],
        [None, None, 2100, 2100, 0],
    ]


@pytest.mark.parametrize(("clock", "bounds"), [(1300, (1299, 1300)), (500, (500, 501))])
def test_a_single_clock_gets_the_room_that_the_driver_wants(
    simulate, ask: Ask, clock: int, bounds: tuple[int, int]
) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    ask(simulation, f"driver.lock_graphics_clock(ClockRange({clock}, {clock})); answer(0)")
    assert simulation.graphics_bounds(0) == bounds


def test_unlocking_one_clock_leaves_the_other_locked(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    seen = ask(
        simulation,
        CLOCKS
        + """
driver.lock_memory_clock(ClockRange(900, 1100))
driver.lock_graphics_clock(ClockRange(900, 1300))
seen = [clocks(driver)]
driver.lock_graphics_clock(None)
seen.append(clocks(driver))
driver.lock_memory_clock(None)
answer([*seen, clocks(driver)])
""",
    )
    assert seen == [[[900, 1300], [900, 1100]], [None, [900, 1100]], [None, None]]
    assert simulation.performance_level(0) == 0


def test_unlocking_returns_to_the_level_before(simulate, ask: Ask) -> None:
    high = 2
    simulation = simulate(AmdGpuSpec(needs_root=False))
    simulation.set_performance_level(0, high)
    ask(
        simulation,
        "with Gpu(0, driver).hold(graphics_clock=(900, 1300)): pass\nanswer(0)",
    )
    assert simulation.performance_level(0) == high


def test_a_clock_out_of_range_changes_nothing(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False))
    script = "answer(outcome(driver.lock_graphics_clock, ClockRange(100, 2100)))"
    kind, message = ask(simulation, script)
    assert kind == "knob"
    assert "500 MHz <= lowest <= highest <= 2100 MHz must hold for the graphics clock" in message
    assert simulation.graphics_bounds(0) == (500, 2100)
    assert simulation.performance_level(0) == 0


def test_a_part_without_clock_limits_still_lists_clocks(simulate, ask: Ask) -> None:
    simulation = simulate(AmdGpuSpec(needs_root=False, clock_limits=False))
    lock, graphics, locking = ask(
        simulation,
        """
answer([driver.locked_graphics_clock(), driver.supported_clocks().graphics,
        outcome(driver.lock_graphics_clock, ClockRange(500, 900))])
""",
    )
    assert lock is None
    assert max(graphics) == 2100
    assert locking[0] == "unsupported"
