"""The paper's policy without one of its components does what its name says, and nothing else."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from tests.replay.tables import VALLEY, table

from paper.ablation import WithoutJitProfiling, WithoutPruning
from zeus.optimizer.batch_size.policies._paper import PaperPolicy
from zeus.replay._jobs import Job, replay


class Seen:
    """Takes down the batch sizes and power limits of a policy's trials."""

    def __init__(self, policy):
        self.trials: list = []
        ended = policy.ended

        def watch(state, rows, trials):
            self.trials.append(
                (int(trials.arm[0]), int(trials.power[0]), bool(trials.converged[0]))
            )
            ended(state, rows, trials)

        policy.ended = watch


def run(policy, world, recurrences):
    seen = Seen(policy)
    result = replay([Job(world.spec("paper"), [world], [0] * recurrences, 0)], policy=policy)
    return seen.trials, result


def test_without_pruning_a_batch_size_that_failed_is_tried_again():
    # The smallest two and the largest never reach the target.
    world = table({8: [np.inf], 16: [np.inf], 32: [9], 64: [9], 128: [np.inf]}, default=32)
    pruned, _ = run(PaperPolicy(), world, 20)
    assert 0 not in {arm for arm, _, _ in pruned}  # behind 16, which failed
    trials, result = run(WithoutPruning(), world, 20)
    failed = [arm for arm, _, converged in trials if not converged]
    assert {arm: failed.count(arm) for arm in (0, 1, 4)} == {0: 2, 1: 2, 4: 2}  # once a round
    # But they are not taken for cheap because they were stopped.
    assert trials[-1][2]
    assert (result.unreached == 0).all()


def test_without_jit_profiling_power_limits_come_one_by_one():
    world = table(VALLEY, default=64, power_limits=(100.0, 150.0, 200.0))
    trials, _ = run(WithoutJitProfiling(), world, 60)
    by_arm = defaultdict(list)
    for arm, power, _ in trials:
        by_arm[arm].append(power)
    best = world.best_power
    for arm, powers in by_arm.items():
        assert powers[:3] == [2, 1, 0][: len(powers)]
        assert set(powers[3:]) <= {int(best[arm])}
    assert max(map(len, by_arm.values())) > 3


def test_profiling_costs_nothing_where_each_limit_has_its_own_run():
    world = table({64: [5]}, default=64)
    _, result = run(WithoutJitProfiling(), world, 2)
    assert result.cost[0] == 5 * (world.epoch_cost[0, 0] + world.epoch_cost[0, 1])
