"""The made-up job: as its formulas say, and a world in which the policies have something to do."""

from __future__ import annotations

import math

import pytest

from zeus.errors import TraceError
from zeus.replay._example import example_traces
from zeus.replay._table import job_table
from zeus.replay._workloads import MADE_UP, workload_named
from zeus.testing import SimulatedNode, Workload


def table(gpu="v100", **options):
    return job_table(example_traces(), gpu, MADE_UP, **options)


def test_epochs_follow_from_the_formula():
    job = table()
    arm = job.batch_sizes.index(512)
    exact = 10 * (1 + 512 / 2000)
    assert list(job.epochs[arm]) == [math.ceil(exact * luck) for luck in (0.9, 0.96, 1, 1.05, 1.12)]
    assert [int((epochs == math.inf).sum()) for epochs in job.epochs] == [0] * 7 + [2, 5]


@pytest.mark.parametrize("limit", [125, 200, 250])
def test_time_and_power_are_those_of_the_simulated_gpu(limit):
    """An epoch of the same step on the simulated node, which knows nothing of this module."""
    size = 1024
    step = Workload(
        "step", gpu_time=0.012 + size / (450 * 14.0), host_time=0.004,
        activity=0.3 + 0.7 * size / (size + 256), compute_bound=0.7,
    )  # fmt: skip
    job = table()
    at = job.batch_sizes.index(size), job.power_limits.index(limit)
    with SimulatedNode("v100") as node, node.gpus[0].hold(power_limit=limit):
        steps = 100_000 / size
        assert job.time[at] == pytest.approx(step.step_time(node.gpus[0]) * steps, rel=1e-6)
        assert job.power[at] == pytest.approx(step.average_power(node.gpus[0]), rel=1e-6)


def test_the_best_choice_is_another_one_on_each_gpu_and_at_each_target():
    chosen = {
        (gpu, target): table(gpu, target_metric=target).optimum
        for gpu in ("v100", "a40")
        for target in (0.6, 0.7, 0.75)
    }
    assert len({optimum.arm for optimum in chosen.values()}) >= 3
    assert all(best.arm != table(gpu).default for (gpu, _), best in chosen.items() if gpu == "v100")


def test_other_gpus_and_workloads_are_refused_with_what_there_is():
    with pytest.raises(TraceError, match="has not run on p100; it has on v100, a40"):
        example_traces(["a40", "p100"])
    with pytest.raises(TraceError, match="the made-up job has no neumf"):
        job_table(example_traces(), "v100", workload_named("neumf"))
    assert workload_named("Made-up job") is MADE_UP
