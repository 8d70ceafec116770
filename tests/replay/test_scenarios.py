"""Worlds that change: drifting data, other GPUs, other defaults, and recurrences that overlap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.replay.tables import VALLEY, table

from zeus.errors import TraceError
from zeus.replay._jobs import replay
from zeus.replay._scenarios import (
    DRIFTS,
    Scenario,
    blended,
    common,
    drift_shares,
    drifting,
    farthest,
    moving,
    with_default,
)
from zeus.replay._study import study

LARGE = {8: [20], 16: [14], 32: [10], 64: [8, 9], 128: [7], 256: [7, 8], 512: [7]}


def test_blending_goes_from_one_to_the_other():
    first, second = table(VALLEY, default=64), table(LARGE, default=64)
    assert (blended(first, second, 0.0).epochs[0] == [9, 10]).all()
    assert (blended(first, second, 1.0).epochs[0] == 20).all()
    between = blended(first, second, 0.5).epochs
    assert 9 < between[0].min() <= between[0].max() < 20
    # 512 never converges in the first: it does what the nearer of the two does.
    assert np.isinf(blended(first, second, 0.4).epochs[-1]).all()
    assert (blended(first, second, 0.6).epochs[-1] == 7).all()


def test_common_batch_sizes_keep_the_nearest_default():
    first = table({8: [1], 32: [1], 64: [1]}, default=64)
    second = table({8: [1], 16: [1], 32: [1]}, default=16)
    one, other = common([first, second])
    assert one.batch_sizes == other.batch_sizes == (8, 32)
    assert one.default == other.default == 1


@pytest.mark.parametrize("kind", DRIFTS)
def test_every_drift_begins_as_the_data_were_and_gets_to_the_others(kind):
    shares = drift_shares(kind, 114)
    assert len(shares) == 114
    assert shares[0] == 0
    assert shares.min() == 0
    assert shares.max() == 1
    assert shares[-1] == (kind == "ramp")  # which stays; the others come back
    steps = np.abs(np.diff(shares))
    assert steps.max() == 1 if kind == "sudden" else steps.max() <= 0.1
    assert drift_shares(kind, 1).tolist() == [0]


def test_a_drift_needs_few_tables_however_long_it_is():
    first, second = table(VALLEY, default=64), table(LARGE, default=64)
    scenario = drifting(first, second, "sinusoidal", 1000)
    assert scenario.recurrences == 1000
    assert len(scenario.tables) == 21
    assert len(drifting(first, second, "sudden", 90).tables) == 2


@pytest.mark.parametrize("kind", DRIFTS)
def test_drift_is_followed_and_every_run_reaches_its_target(kind):
    first, second = table(VALLEY, default=64), table(LARGE, default=64)
    scenario = drifting(first, second, kind, 120)
    result = replay(scenario.jobs("zeus", range(10), window=10), history=True)
    assert (result.unreached == 0).all()
    sizes = np.array(scenario.tables[0].batch_sizes)
    share = drift_shares(kind, 120)
    chosen = sizes[result.history["arm"].astype(int)]
    # Where the data have been the others for a while, and where they are the first again.
    other = [at for at in range(10, 120) if share[at - 10 : at + 1].min() == 1]
    if other:
        assert np.median(chosen[:, other]) >= 128
    if kind in ("sudden", "linear"):
        assert np.median(chosen[:, -8:]) <= 64


def test_a_sudden_change_to_where_the_best_never_converges_is_survived():
    broken = {size: [np.inf] if size >= 64 else [6] for size in VALLEY}
    scenario = drifting(table(LARGE, default=256), table(broken, default=256), "ramp", 75)
    result = replay(scenario.jobs("zeus", range(8), window=10))
    assert (result.unreached == 0).all()
    assert (np.array(scenario.tables[0].batch_sizes)[result.last_arm] < 64).all()


def test_the_farthest_data_are_those_where_another_batch_size_is_best():
    world = table(VALLEY, default=64)
    near, far = ({**VALLEY, 128: [5]}, {**VALLEY, 256: [5]})
    never = {size: [np.inf] for size in VALLEY}
    tables = [table(each, default=64) for each in (VALLEY, near, never, far)]
    assert farthest(world, tables) is tables[3]
    # With the same best batch size everywhere, those with the most different epochs.
    slow, slower = (
        table({size: [3 * e for e in v] for size, v in VALLEY.items()}, default=64, max_epochs=100)
        for _ in range(2)
    )
    slower = replace(slower, epochs=2 * slower.epochs)
    assert farthest(world, [slow, slower, slow]) is slower
    with pytest.raises(TraceError, match="no other target within reach"):
        farthest(world, tables[2:3])


def test_what_was_learned_moves_along_to_another_gpu():
    first = table(VALLEY, default=256)
    second = table(VALLEY, default=256, step_cost=0.5, sample_cost=0.2, gpu="other")
    jobs = moving([first, second], [60, 40]).jobs("zeus", range(10))
    moved = replay(jobs, history=True).history["cost"][:, 60:].sum(axis=1)
    fresh = replay(Scenario.steady(second, 40).jobs("zeus", range(10)))
    assert moved.mean() < 0.97 * fresh.cost.mean()


@pytest.mark.parametrize("policy", ["paper", "paper-repaired", "grid"])
def test_a_policy_that_does_not_cross_gpus_starts_over_and_comes_back_to_what_it_knew(policy):
    first = table(VALLEY, default=256)
    second = table(VALLEY, default=256, step_cost=0.5, sample_cost=0.2, gpu="other")
    scenario = moving([first, second, first], [40, 40, 40])
    arms = replay(scenario.jobs(policy, [3]), history=True).history["arm"][0]
    alone = [
        replay(Scenario.steady(each, 80).jobs(policy, [3]), history=True).history["arm"][0]
        for each in (second, first)
    ]
    # What is drawn depends on the number of the recurrence, the exploration hardly does.
    assert (arms[40:46] == alone[0][:6]).all()
    assert (arms[:40] == alone[1][:40]).all()
    # Grid search ends at the best; after the way back nothing is explored a second time.
    assert set(arms[80:]) <= set(arms[30:40]) | set(alone[1][40:])


def test_another_default_is_one_of_the_batch_sizes():
    world = with_default(table(VALLEY, default=64), 8)
    assert world.spec("zeus").default_batch_size == 8
    with pytest.raises(TraceError, match=r"must be one of the batch sizes 8, 16, .* but got 9"):
        with_default(world, 9)


@pytest.mark.parametrize("regular", [False, True])
def test_so_many_overlap_on_average_if_all_are_run_as_the_default(regular):
    world = table({64: [8, 12], 128: [9, 9]}, default=64)
    scenario = replace(Scenario.steady(world, 300), overlap=4.0, regular=regular)
    jobs = scenario.jobs("default", [3, 4])
    result = replay(jobs)
    for row, job in enumerate(jobs):
        assert job.start is not None
        assert job.start[0] == 0.0
        assert result.time[row] / job.start[-1] == pytest.approx(4, rel=0.2)
        assert (np.diff(job.start).std() < 1e-6) == regular


def test_jobs_cannot_overlap_by_a_default_that_never_ends():
    world = table({64: [np.inf], 128: [9, 9]}, default=64)
    scenario = replace(Scenario.steady(world, 30), overlap=4.0)
    with pytest.raises(TraceError, match="default 64, which never reaches the target"):
        scenario.jobs("zeus", [0])


def test_overlapping_jobs_learn_from_each_other_before_they_end():
    # The default leaves most of the GPU idle, so a larger batch size is the way to go.
    epochs = {64: [10], 128: [10], 256: [10], 512: [10]}
    world = table(epochs, default=64, step_cost=1.0, sample_cost=0.01)
    idle = replace(world, power=0.3 * world.power)
    alone, slower = (
        replay(
            replace(Scenario.steady(each, 40), overlap=4.0, regular=True).jobs("zeus", [5]),
            measure_sizes=False,
        ).regret[0]
        for each in (idle, world)
    )
    assert alone < slower


def test_records_of_changing_worlds_compare_with_the_default_of_each_recurrence():
    first, second = table(VALLEY, default=64), table(LARGE, default=64)
    scenario = drifting(first, second, "ramp", 120)
    (record,) = study([scenario], "default", [1])
    assert record.cumulative_eta_vs_default == pytest.approx(1.0, rel=0.02)
    assert record.recurrences == 120
    assert record.optimal_batch_size == scenario.last.batch_sizes[scenario.last.optimum.arm]
    assert record.too_expensive_after_100 == 1.0
    (short,) = study([first], "default", [1], recurrences=100)
    assert short.too_expensive_after_100 is None
    assert short.energy / short.time == pytest.approx(0.9 * 200)
