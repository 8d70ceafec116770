"""How often our power limit optimizer decides right, and how long it takes, in virtual time.

On the recorded A40 profiles, for every objective, and on simulated GPUs with hosts that disturb
the training (`zeus.testing.HostNoise`). The figures are the same on any machine.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness import Bench, say
from rows import Row, row
from tools import OURS
from whole_runs import state_of_our_own, traces

TASK = "power_limit_decisions"
GOOD = 0.01  # cost above the least that counts as right
GPUS = ("v100", "a40", "a100", "rtx6000", "h100")
STEP_TIMES = (0.001, 0.005, 0.01, 0.05)
# One step in a hundred is late by five on average.
LATE = 1.05


@dataclass(frozen=True)
class Decision:
    """What came of a run until its decision."""

    chosen: float
    seconds: float
    steps: int


def decide(node: Any, work: Any, objective: Any, **lengths: Any) -> Decision:
    """Train until the optimizer has chosen."""
    from zeus.monitor import ZeusMonitor
    from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

    begun, steps = node.clock.now(), 0
    with ZeusMonitor(cpu_indices=[], node=node) as monitor:
        optimizer = GlobalPowerLimitOptimizer(monitor, objective, **lengths)
        while not optimizer.decided:
            if optimizer.trouble:
                raise RuntimeError(optimizer.trouble)
            optimizer.on_step_begin()
            work.run(node.gpus)
            optimizer.on_step_end()
            steps += 1
        seconds = node.clock.now() - begun
        assert optimizer.selection is not None
        chosen = float(optimizer.selection.point.knob)
        optimizer.close()
    return Decision(chosen, seconds, steps)


def excess(objective: Any, chosen: float, true: Any) -> float:
    """By which share a choice costs more than the best, or is slower than it may be."""
    cost = objective.select(true.with_points([true.at(chosen)])).cost
    above = cost / objective.select(true).cost - 1
    factor = getattr(objective, "factor", None)
    if factor is not None:
        above = max(above, true.at(chosen).time / (factor * true.fastest.time) - 1)
    return above


def objectives() -> list[Any]:
    """The twelve for recorded profiles."""
    from zeus.frontier import Energy, MaxSlowdownConstraint, Time, ZeusCost

    return [
        *map(ZeusCost, (0.25, 0.5, 0.75, 1)),
        Energy(),
        Time(),
        *map(MaxSlowdownConstraint, (1.0, 1.1, 1.2, 1.3, 1.5, 3.0)),
    ]


def recorded(**lengths: int) -> tuple[int, int]:
    """Decisions on recorded profiles that are right, and all."""
    from zeus.testing import ProfileNode, RecordedProfile

    right = count = 0
    for path in sorted((traces().parent / "profiles").glob("*.csv")):
        profile = RecordedProfile.read(path)
        for objective in objectives():
            found = decide(ProfileNode(profile), profile, objective, **lengths)
            right += excess(objective, found.chosen, profile.frontier()) <= GOOD
            count += 1
    return right, count


def noisy(seed: int, step_time: float) -> tuple[float, Decision, float]:
    """Cost above the least of one decision on a noisy host, with the time at the reference."""
    from zeus.frontier import Energy, Frontier, Point, ZeusCost
    from zeus.testing import HostNoise, SimulatedNode, Workload

    chance = random.Random(seed)
    spec = chance.choice(GPUS)
    waiting = chance.choice([0.0, 0.0, 0.2])
    work = Workload(
        "work",
        step_time * (1 - waiting),
        step_time * waiting,
        chance.uniform(0.5, 1.3),
        chance.uniform(0.2, 0.9),
    )
    objective = chance.choice([ZeusCost(0.25), ZeusCost(0.5), ZeusCost(0.75), Energy()])
    (gpu,) = SimulatedNode(spec).gpus
    highest, lowest = gpu.power_limits().maximum, gpu.power_limits().minimum
    points = []
    ladder = [highest - 25 * number for number in range(int((highest - lowest) // 25) + 1)]
    for limit in dict.fromkeys([*ladder, lowest]):
        gpu.driver.set_power_limit(limit)
        seconds = work.step_time(gpu)
        points.append(Point(limit, seconds, seconds * work.average_power(gpu)))
    true = Frontier(points, max_power=highest)
    found = decide(SimulatedNode(spec), HostNoise(seed).around(work), objective)
    at_reference = found.steps * points[0].time * LATE
    return excess(objective, found.chosen, true), found, found.seconds / at_reference


def bench_power_limit_decisions(bench: Bench) -> Iterator[Row]:
    """How often our power limit optimizer decides right on recorded GPUs and noisy hosts."""
    runs = bench.effort.noisy_runs
    with state_of_our_own():
        if (traces().parent / "profiles").is_dir() and runs >= len(STEP_TIMES):
            for case, lengths in (
                ("", {}),
                (", given lengths", {"warmup_steps": 10, "profile_steps": 40}),
            ):
                say(f"  recorded profiles{case}")
                right, count = recorded(**lengths)
                yield share_row(f"recorded A40 profiles x objectives{case}", right, count, 1.0)
        say("  noisy hosts")
        results = [
            (STEP_TIMES[number % len(STEP_TIMES)], *noisy(number, STEP_TIMES[number % 4]))
            for number in range(runs)
        ]
        right = sum(above <= GOOD for _, above, *_ in results)
        yield share_row("simulated GPUs, noisy hosts", right, runs, 0.98)
        for step_time in STEP_TIMES:
            mine = [each for each in results if each[0] == step_time]
            if not mine:
                continue
            case = f"noisy hosts, {step_time * 1e3:g} ms"
            seconds = [found.seconds for _, _, found, _ in mine]
            ratios = [ratio for *_, ratio in mine]
            yield row(TASK, "seconds until the decision, most", case, "s", {OURS: max(seconds)},
                      target=30.0)  # fmt: skip
            yield row(
                TASK,
                "time of the steps until the decision / at the reference limit",
                case,
                "1",
                {OURS: statistics.median(ratios)},
                target=1.10,
            )


def share_row(case: str, right: int, count: int, least: float) -> Row:
    """The share of decisions that are wrong, since targets are upper bounds."""
    found = row(
        TASK,
        "share of decisions that cost over 1 % more than the best",
        case,
        "1",
        {OURS: 1 - right / count},
        target=round(1 - least, 6),
    )
    found["within_one_percent"] = right / count
    found["right"] = right
    found["of"] = count
    return found
