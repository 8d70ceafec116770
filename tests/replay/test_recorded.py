"""On the recorded traces: the paper's policy does what was published, and ours does better."""

from __future__ import annotations

import numpy as np
import pytest

from replay_gpus import bent
from zeus.replay._study import study
from zeus.replay._table import job_table
from zeus.replay._traces import load_traces
from zeus.replay._workloads import WORKLOADS

# Measured with the authors' simulator and policy on the same traces, 50 seeds, V100.
PUBLISHED_ENERGY = (0.620, 0.828, 0.791, 0.809, 0.257, 0.345)
SEEDS = range(25)


@pytest.fixture(scope="module")
def tables(traces):
    recorded = load_traces(traces / "nsdi23")
    return {
        gpu: [job_table(recorded, gpu, workload) for workload in WORKLOADS]
        for gpu in recorded.power
    }


def mean(records, figure):
    by_workload: dict[str, list[float]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(getattr(record, figure))
    return [float(np.mean(by_workload[workload.name])) for workload in WORKLOADS]


def test_the_papers_policy_settles_where_the_authors_does(tables):
    records = study(tables["v100"], "paper", SEEDS)
    assert mean(records, "eta_last5_vs_default") == pytest.approx(PUBLISHED_ENERGY, rel=0.03)


def test_ours_regrets_less_on_recorded_and_made_up_gpus(tables):
    for group in (
        tables["v100"],
        tables["a40"],
        [bent(table, 20) for table in tables["a40"]],
    ):
        paper = mean(study(group, "paper", SEEDS), "cumulative_regret")
        ours = mean(study(group, "zeus", SEEDS), "cumulative_regret")
        ratio = np.array(ours) / np.array(paper)
        assert np.exp(np.log(ratio).mean()) < 0.45
        assert ratio.max() < 1.0


def test_ours_settles_on_the_best_configuration(tables):
    for group in tables.values():
        for table in group:
            expected = table.expected_epochs[:, None] * table.epoch_cost / table.optimum.cost
            costs = [
                expected[
                    table.batch_sizes.index(record.last_batch_size),
                    table.power_limits.index(record.last_power_limit),
                ]
                for record in study([table], "zeus", SEEDS)
            ]
            assert np.mean(costs) < 1.03, (table.gpu, table.workload)


def test_the_oracles_configurations_on_v100(tables):
    best = [table.batch_sizes[table.optimum.arm] for table in tables["v100"]]
    assert best == [48, 12, 64, 360, 128, 16384]


def test_a_bent_gpu_differs_only_in_what_a_gpu_decides(tables):
    table = tables["v100"][4]
    other = bent(table, 3)
    assert np.array_equal(other.epochs, table.epochs, equal_nan=True)
    assert other.batch_sizes == table.batch_sizes
    assert not np.allclose(other.time, table.time)
    assert (other.power <= other.max_power * 1.05).all()
    assert (bent(table, 3).time == other.time).all()
    assert not np.allclose(bent(table, 4).time, other.time)
