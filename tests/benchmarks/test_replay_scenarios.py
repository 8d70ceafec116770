"""Worlds that change: drifting data, other GPUs, and recurrences that overlap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.replay.tables import VALLEY, table

from replay_scenarios import blended, common, drifting, moving, overlapping
from zeus.replay._jobs import Job, replay
from zeus.replay.cluster._groups import run_groups

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


def test_drift_is_followed_and_every_run_reaches_its_target():
    worlds = [table(VALLEY, default=64), table(LARGE, default=64)]
    jobs = [drifting([*worlds, worlds[0]], "zeus", seed, slices=10, hold=25, window=10)
            for seed in range(10)]  # fmt: skip
    result = replay(jobs, history=True)
    assert (result.unreached == 0).all()
    sizes = np.array(jobs[0].spec.batch_sizes)
    there = sizes[result.history["arm"][:, 50:58].astype(int)]
    assert np.median(there) >= 128
    back = sizes[result.history["arm"][:, -8:].astype(int)]
    assert np.median(back) <= 64


def test_a_sudden_change_to_where_the_best_never_converges_is_survived():
    broken = {size: [np.inf] if size >= 64 else [6] for size in VALLEY}
    worlds = [table(LARGE, default=256), table(broken, default=256)]
    jobs = [drifting(worlds, "zeus", seed, slices=1, hold=25, window=10) for seed in range(8)]
    result = replay(jobs, history=True)
    assert (result.unreached == 0).all()
    assert (np.array(jobs[0].spec.batch_sizes)[result.last_arm] < 64).all()


def test_what_was_learned_moves_along_to_another_gpu():
    first = table(VALLEY, default=256)
    second = table(VALLEY, default=256, step_cost=0.5, sample_cost=0.2, gpu="other")
    jobs = [moving([first, second], "zeus", seed, before=60, after=40) for seed in range(10)]
    moved = replay(jobs, history=True).history["cost"][:, 60:].sum(axis=1)
    anew = replay([Job(second.spec("zeus", s), [second], [0] * 40, s) for s in range(10)])
    assert moved.mean() < 0.97 * anew.cost.mean()


def test_so_many_overlap_on_average_if_all_are_run_as_the_default():
    world = table({64: [8, 12], 128: [9, 9]}, default=64)
    for regular in (False, True):
        work = overlapping([world] * 2, [3, 4], [300, 200], at_once=4.0, regular=regular)
        sums = run_groups(work, [world] * 2, "default", {})
        assert sums.jobs.tolist() == [300, 300, 200, 200]
        for group in range(4):
            start = work.start[work.first[group] : work.first[group + 1]]
            assert start[0] == 0.0
            assert sums.time[group] / start[-1] == pytest.approx(4, rel=0.2)
        assert (sums.most_at_once > 6).all() != regular


def test_overlapping_jobs_learn_from_each_other_before_they_end():
    # The default leaves most of the GPU idle, so a larger batch size is the way to go.
    epochs = {64: [10], 128: [10], 256: [10], 512: [10]}
    world = table(epochs, default=64, step_cost=1.0, sample_cost=0.01)
    idle = replace(world, power=0.3 * world.power)
    work = overlapping([world, idle], [5], [40, 40], at_once=4.0, regular=True)
    sums = run_groups(work, [world, idle], "zeus", {})
    alone, slower = sums.runs[1] - 40, sums.runs[0] - 40
    assert alone < slower
