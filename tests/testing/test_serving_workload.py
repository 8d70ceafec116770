"""The simulated server's steps take the time and energy that were measured, and scale sensibly."""

from __future__ import annotations

import csv
import math
import statistics

import pytest

from zeus.device._simulated_models import MODELS
from zeus.testing import ServingWorkload

V100 = ServingWorkload.mistral_7b_v100()
GPUS = ("v100", "a40", "a100", "h100", "mi250x", "mi300x")


def sweep_errors(traces):
    times, energies = [], []
    with (traces / "serving" / "v100_mistral7b_clock_sweep.csv").open() as file:
        for row in csv.DictReader(file):
            default = row["clock_mhz"] == "default"
            clock = V100.highest_clock if default else float(row["clock_mhz"])
            batch, tokens = int(row["batch_size"]), int(row["tokens"])
            if row["phase"] == "decode":
                seconds, watts = V100.decode(clock, batch, 128 * batch)
                seconds *= tokens / batch
            else:
                seconds, watts = V100.prefill(clock, tokens)
            measured = float(row["seconds"])
            times.append(abs(seconds / measured - 1))
            energies.append(abs(seconds * watts / (measured * float(row["watts"])) - 1))
    return times, energies


def test_the_measured_sweep_is_reproduced(traces, record_property):
    times, energies = sweep_errors(traces)
    for name, found in (("time", times), ("energy", energies)):
        record_property(f"{name}_median_percent", 100 * statistics.median(found))
        record_property(f"{name}_worst_percent", 100 * max(found))
    assert statistics.median(times) <= 0.015
    assert max(times) <= 0.05
    assert statistics.median(energies) <= 0.02
    assert max(energies) <= 0.06


def test_decode_has_its_least_energy_where_memory_begins_to_be_slow():
    energies = {clock: math.prod(V100.decode(clock, 1)) for clock in range(700, 1530, 50)}
    assert min(energies, key=energies.__getitem__) in (850, 900, 950)


def test_settings_are_clocks_that_can_be_set():
    assert V100.setting(1e9) == V100.highest
    assert V100.setting(1530, 901).decode == 900
    assert V100.setting(0).prefill == V100.lowest_clock


def test_decode_hardly_depends_on_the_clock_and_prefill_goes_with_its_inverse():
    assert V100.decode(900, 1)[0] < 1.06 * V100.decode(1530, 1)[0]
    ratio = V100.prefill(765, 6250)[0] / V100.prefill(1530, 6250)[0]
    assert ratio == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("gpu", GPUS)
def test_workloads_of_other_gpus_are_plausible(gpu):
    work = ServingWorkload.on(gpu)
    limit = MODELS[gpu].maximum_limit
    clocks = work.clocks()
    assert clocks[0] == work.highest_clock
    assert clocks[-1] >= work.lowest_clock
    for batch in (1, 16, 128):
        times = [work.decode(clock, batch)[0] for clock in clocks]
        powers = [work.decode(clock, batch)[1] for clock in clocks]
        assert times == sorted(times)
        assert powers == sorted(powers, reverse=True)
        assert work.static_power < powers[-1] < powers[0] <= limit * 1.05
    per_token = [math.prod(work.decode(work.highest_clock, b)) / b for b in (1, 4, 16, 64)]
    assert per_token == sorted(per_token, reverse=True)
    # A large batch costs no less time than the same tokens as a prompt.
    assert work.decode(work.highest_clock, 512)[0] >= work.prefill(work.highest_clock, 512)[0]


def test_a_faster_gpu_is_faster_and_a_group_shares_the_work():
    slow, fast = ServingWorkload.on("a100"), ServingWorkload.on("h100")
    assert fast.decode(1e9, 8)[0] < slow.decode(1e9, 8)[0]
    assert fast.prefill(1e9, 4000)[0] < slow.prefill(1e9, 4000)[0]
    one = ServingWorkload.on("h100", parameters=30e9)
    four = ServingWorkload.on("h100", parameters=30e9, gpus=4)
    assert four.prefill(1e9, 4000)[0] == pytest.approx(one.prefill(1e9, 4000)[0] / 4, rel=0.1)
    assert four.prefill(1e9, 4000)[1] > 3 * one.prefill(1e9, 4000)[1]


def test_a_power_limit_lowers_the_clock_until_it_is_kept():
    clock = V100.clock_at(150, prompt=4000)
    assert V100.prefill(clock, 4000)[1] <= 150 < V100.prefill(clock + 2, 4000)[1]
    assert V100.clock_at(1000, prompt=4000) == V100.highest_clock
    assert V100.clock_at(1, prompt=4000) == V100.lowest_clock


@pytest.mark.parametrize(
    ("gpu", "options", "message"),
    [
        ("cray", {}, "gpu must be one of"),
        ("v100", {"parameters": 70e9}, "must fit into 1 x 32 GiB"),
        ("v100", {"parameters": math.nan}, "parameters"),
        ("v100", {"gpus": 0}, "gpus"),
    ],
)
def test_impossible_workloads_are_refused(gpu, options, message):
    with pytest.raises(ValueError, match=message):
        ServingWorkload.on(gpu, **options)
