"""Recorded profiles as GPUs, and hosts that disturb training."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from zeus.errors import SimulationError
from zeus.testing import HostNoise, ProfileNode, RecordedProfile, SimulatedNode, Workload

PROFILE = RecordedProfile(
    "made up", "a40", (100.0, 200.0, 300.0), (0.4, 0.2, 0.1), ((99, 98), (190, 180), (230, 220))
)
STEP = Workload("step", 0.01)


def test_steps_take_and_draw_what_was_recorded():
    with ProfileNode(PROFILE) as node:
        for limit, time, powers in zip(PROFILE.limits, PROFILE.times, PROFILE.powers, strict=True):
            for gpu in node.gpus:
                gpu.driver.set_power_limit(limit)
            before = [node.exact_energy(gpu) for gpu in (0, 1)]
            assert PROFILE.run(node.gpus, 10) == pytest.approx(10 * time)
            for index in (0, 1):
                joules = node.exact_energy(index) - before[index]
                assert joules == pytest.approx(10 * time * powers[index])


def test_between_recorded_limits_in_proportion():
    assert PROFILE.time_at(250) == pytest.approx(0.15)
    assert PROFILE.power_at(150, 1) == pytest.approx(139)
    point = PROFILE.frontier().at(300)
    assert (point.time, point.energy) == pytest.approx((0.1, 45.0))
    assert PROFILE.frontier().max_power == 600


def test_only_recorded_limits_are_accepted():
    (gpu, _) = ProfileNode(PROFILE).gpus
    assert (gpu.power_limits().minimum, gpu.power_limits().maximum) == (100, 300)


def test_a_log_of_windows_is_read(tmp_path):
    path = tmp_path / "A40+job+gpu0.csv"
    path.write_text(
        "start_time,window_name,elapsed_time,gpu0_energy\n"
        "1,__Optimizer_300,10,2000\n2,__Optimizer_100,30,2700\n"
    )
    profile = RecordedProfile.read(path, step_time=0.02)
    assert profile.limits == (100, 300)
    assert profile.times == pytest.approx((0.06, 0.02))
    assert profile.powers == ((90,), (200,))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("A40+x.csv", "window_name,elapsed_time\nnothing,1\n", "line 2 of .* is not a window"),
        ("A40+x.csv", "window_name,elapsed_time\n", "has no windows"),
        ("X9+x.csv", "window_name,elapsed_time,gpu0_energy\na_300,1,2\n", "must begin with"),
    ],
)
def test_what_is_no_profile_is_told(tmp_path, name, text, told):
    (tmp_path / name).write_text(text)
    with pytest.raises(SimulationError, match=told):
        RecordedProfile.read(tmp_path / name)


def test_profiles_that_cannot_be_are_refused():
    with pytest.raises(SimulationError, match="must ascend"):
        RecordedProfile("x", "a40", (300.0, 100.0), (1, 1), ((1,), (1,)))
    with pytest.raises(SimulationError, match="must have a time and powers"):
        RecordedProfile("x", "a40", (100.0, 300.0), (1,), ((1,), (1,)))
    with pytest.raises(SimulationError, match="above 0"):
        RecordedProfile("x", "a40", (100.0,), (0,), ((1,),))


# --- Hosts --------------------------------------------------------------------------------------


def times(noise: HostNoise, steps: int, limits: tuple[float, ...] = (250,)) -> list[float]:
    with SimulatedNode("v100") as node:
        work = noise.around(STEP)
        found = []
        for limit in limits:
            node.gpus[0].driver.set_power_limit(limit)
            found += [work.run(node.gpus) / STEP.step_time(node.gpus[0]) for _ in range(steps)]
        return found


QUIET: dict[str, Any] = {"jitter": 0.0, "late_share": 0.0, "drift": 0.0, "disturbed_share": 0.0}


def test_a_host_without_noise():
    assert times(HostNoise(**QUIET), 20) == pytest.approx([1.0] * 20)


def test_the_same_seed_is_the_same_host():
    assert times(HostNoise(3), 200) == times(HostNoise(3), 200)
    assert times(HostNoise(3), 200) != times(HostNoise(4), 200)


def test_jitter():
    logs = [math.log(time) for time in times(HostNoise(**QUIET | {"jitter": 0.02}), 2000)]
    assert statistics.pstdev(logs) == pytest.approx(0.02, rel=0.1)


def test_late_steps():
    late = [t for t in times(HostNoise(**QUIET | {"late_share": 0.01}), 5000) if t > 1.5]
    assert len(late) == pytest.approx(50, abs=25)
    assert all(3.0 <= time <= 9.0 + 1e-9 for time in late)


def test_drift_is_slow_and_as_wide_as_told():
    levels = []
    for seed in range(300):
        first, *_, last = times(HostNoise(seed, **QUIET | {"drift": 0.015}), 2)
        levels.append(math.log(first))
        assert abs(math.log(last / first)) < 0.003, "0.01 s later"
    assert statistics.pstdev(levels) == pytest.approx(0.015, rel=0.15)


def test_one_stay_in_ten_is_disturbed_throughout():
    limits = tuple(100 + stay % 2 for stay in range(1000))
    stays = times(HostNoise(**QUIET | {"disturbed_share": 0.1}), 2, limits)
    assert stays[::2] == pytest.approx(stays[1::2]), "from beginning to end"
    assert {round(time, 6) for time in stays} == {1.0, 1.03}
    assert sum(time > 1.01 for time in stays) / len(stays) == pytest.approx(0.1, abs=0.03)


def test_a_setting_may_be_disturbed_for_good():
    noise = HostNoise(1, **QUIET | {"disturbed_share": 0.5}, stays=False)
    limits = (100.0, 125.0, 150.0, 175.0)
    first = times(noise, 1, limits + limits)
    assert first[:4] == pytest.approx(first[4:])


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan])
def test_shares_out_of_range_are_refused(value):
    with pytest.raises(SimulationError, match="0 <= jitter <= 1"):
        HostNoise(jitter=value)
    with pytest.raises(SimulationError, match="drift_time > 0"):
        HostNoise(drift_time=0)
