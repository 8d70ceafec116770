"""The simulated GPUs against recorded power sweeps: epoch time and average power at every limit."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise
from statistics import quantiles

import pytest

from zeus.testing import SimulatedNode, recorded_jobs, recorded_workload

# Largest relative errors allowed: median and 95th percentile, of time and of power.
BOUNDS = {
    "v100": {"time": (0.015, 0.06), "power": (0.02, 0.06)},
    "a40": {"time": (0.035, 0.10), "power": (0.02, 0.10)},
}

# Batch sizes that the recorded jobs' authors start from.
DEFAULT_JOBS = {
    "cifar100": 1024,
    "librispeech": 192,
    "sentiment140": 128,
    "squad": 32,
    "imagenet": 256,
}


def run_epoch(gpu_model, work, limit):
    """Seconds and joules of one epoch under a power limit."""
    node = SimulatedNode(gpu_model)
    with node.gpus[0].hold(power_limit=limit):
        before = node.exact_energy()
        seconds = work.run(node.gpus)
        return seconds, node.exact_energy() - before


def energies(gpu_model, work):
    """Joules of one epoch by power limit, from the lowest to the highest."""
    limits = SimulatedNode(gpu_model).gpus[0].power_limits()
    watts = range(int(limits.minimum), int(limits.maximum) + 1, 25)
    return [run_epoch(gpu_model, work, limit)[1] for limit in watts]


def sweep(traces, gpu_model):
    with (traces / "nsdi23" / f"summary_power_{gpu_model}.csv").open() as file:
        yield from csv.DictReader(file)


@pytest.mark.parametrize("gpu_model", list(BOUNDS))
def test_time_and_power_are_those_recorded(traces, gpu_model, record_property, capsys):
    errors = defaultdict(list)
    for row in sweep(traces, gpu_model):
        batch_size, limit = int(row["batch_size"]), float(row["power_limit"])
        work = recorded_workload(gpu_model, row["dataset"], batch_size, row["optimizer"])
        seconds, joules = run_epoch(gpu_model, work, limit)
        errors["time"].append(abs(seconds / float(row["time_per_epoch"]) - 1))
        errors["power"].append(abs(joules / seconds / float(row["average_power"]) - 1))
    for quantity, (median_bound, high_bound) in BOUNDS[gpu_model].items():
        percentiles = quantiles(errors[quantity], n=100, method="inclusive")
        median, high, worst = percentiles[49], percentiles[94], max(errors[quantity])
        figures = {"median": median, "p95": high, "max": worst}
        for name, value in figures.items():
            record_property(f"{gpu_model}_{quantity}_{name}_error", round(value, 4))
        with capsys.disabled():
            shown = ", ".join(f"{name} {value:.1%}" for name, value in figures.items())
            print(f"\n{gpu_model} {quantity}, {len(errors[quantity])} points: {shown}", end="")
        assert median <= median_bound
        assert high <= high_bound


@pytest.mark.parametrize("gpu_model", list(BOUNDS))
def test_a_higher_limit_is_never_slower(gpu_model):
    highest = int(SimulatedNode(gpu_model).gpus[0].power_limits().maximum)
    for job in recorded_jobs():
        if job.gpu == gpu_model:
            work = job.workload
            times = [run_epoch(gpu_model, work, w)[0] for w in range(100, highest + 1, 25)]
            assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(times))


@pytest.mark.parametrize("gpu_model", list(BOUNDS))
@pytest.mark.parametrize(("dataset", "batch_size"), DEFAULT_JOBS.items())
def test_the_least_energy_is_below_the_highest_limit(gpu_model, dataset, batch_size):
    joules = energies(gpu_model, recorded_workload(gpu_model, dataset, batch_size))
    assert min(joules) < joules[-1]


@pytest.mark.parametrize("gpu_model", list(BOUNDS))
def test_a_job_that_draws_less_than_every_limit_feels_none(gpu_model):
    joules = energies(gpu_model, recorded_workload(gpu_model, "movielens-1m", 1024))
    assert joules == pytest.approx([joules[0]] * len(joules))
