"""Pipelines with Zeus on a harsh node, beside the same work at the highest clocks.

Sensors as A100s have them, 15 ms from the request for a clock to having it, instructions that vary
by 5 %, four ranks and eight microbatches, in virtual time: so the figures do not depend on the
machine. Alone: `python benchmarks/harsh_pipelines.py [--quick]` prints JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import QUICK, Bench, say
from harsh_bound import most_saved
from rows import Row, row
from tools import OURS
from zeus.device._simulated_models import MODELS, GpuModel
from zeus.optimizer.pipeline_frequency import Option, Profile, build, solve
from zeus.optimizer.pipeline_frequency._pipeline import Pipeline
from zeus.optimizer.pipeline_frequency._reserve import Variation
from zeus.optimizer.pipeline_frequency.storage._service import Pipelines
from zeus.store import Store
from zeus.testing._pipeline_training import PipelineTraining, TrainedIteration

TASK = "harsh_pipelines"
HARSH: dict[str, Any] = {
    "microbatches": 8,
    "seconds": (0.025, 0.05),
    "sensors": "a100",
    "clock_lag": 0.015,
    "variation": 0.05,
}
LOADS = ((1.0, 1.0, 1.0, 1.1), (1.0, 1.1, 0.95, 1.05), (1.2, 1.0, 1.0, 1.0))
SETTLED, STEPS = 30, 90  # the final plan is in force, and the last step
ACTIVITY, COMPUTE_BOUND = 0.9, 0.8  # of the simulated work


@dataclass
class Pair:
    """The same training with Zeus and without, step by step."""

    loads: Sequence[float]
    world: dict[str, Any]
    ours: list[TrainedIteration] = field(default_factory=list)
    plain: list[TrainedIteration] = field(default_factory=list)
    states: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.with_zeus = PipelineTraining(self.loads, **self.world)
        self.without = PipelineTraining(self.loads, **self.world)
        self.store = Store(f"sqlite:///{self.folder.name}/jobs.db")
        self.api = Pipelines(self.store, now=self.with_zeus.node.clock.now)
        self.with_zeus.connect(self.api)

    def step(self, count: int) -> None:
        """Train some steps, with the same work in both."""
        for _ in range(count):
            self.ours += self.with_zeus.iterate()
            self.plain += self.without.iterate()
            self.states.append([each.state for each in self.with_zeus.optimizers])

    def close(self) -> None:
        """End both."""
        self.with_zeus.close()
        self.store.close()
        self.folder.cleanup()

    def slower(self, first: int, last: int | None = None) -> float:
        """Return by how much the mean step takes longer, in percent; `first` counts from 0."""
        both = (sum(step.time for step in steps[first:last]) for steps in (self.ours, self.plain))
        return 100 * (next(both) / next(both) - 1)

    def slower_tail(self, first: int) -> float:
        """Return the same of the 95th percentile."""
        both = (tail([step.time for step in steps[first:]]) for steps in (self.ours, self.plain))
        return 100 * (next(both) / next(both) - 1)

    def saved(self, first: int) -> float:
        """Return the share of energy saved, in percent."""
        both = (sum(step.energy for step in steps[first:]) for steps in (self.ours, self.plain))
        return 100 * (1 - next(both) / next(both))

    def planned_after(self) -> int | None:
        """Return the number of steps before the first that all ranks begin under a plan."""
        for number, states in enumerate(self.states):
            if set(states) == {"following"}:
                return number
        return None


def tail(times: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(times, n=20)[-1]


def model_of(pair: Pair) -> GpuModel:
    return MODELS[pair.with_zeus.gpu]


def truth(model: GpuModel, seconds: float, clock: float) -> Option:
    """Return time and energy of an instruction at a clock, as the simulated GPU has them."""
    share = model.relative_clock(ACTIVITY, model.maximum_limit, clock)
    time = seconds * (COMPUTE_BOUND / share + 1 - COMPUTE_BOUND)
    return Option(clock, time, time * model.busy_power(share, ACTIVITY))


def true_pipeline(pair: Pair) -> Pipeline:
    """Return the pipeline with the true profile."""
    training, model = pair.with_zeus, model_of(pair)
    clocks = range(model.highest_clock, model.highest_clock // 2, -30)
    profile = Profile(
        {
            (stage, name): [truth(model, seconds * load, clock) for clock in clocks]
            for stage, load in enumerate(pair.loads)
            for name, seconds in zip(("forward", "backward"), training.seconds, strict=True)
        }
    )
    return build(
        profile,
        "1f1b",
        microbatches=training.microbatches,
        blocking_power=model.static_power,
        communication=training.links,
    )


def possible(pipeline: Pipeline) -> float:
    """Return what the solver saves with the true profile, no lag and no variation, in percent."""
    before = pipeline.at_highest_frequency()
    return 100 * (1 - solve(pipeline).frontier.fastest.energy / before.energy)


def profile_errors(pair: Pair) -> tuple[float, float]:
    """Return the mean error of the energies that ranks learned, and that of the blocking power."""
    model, errors, waiting = model_of(pair), [], []
    for rank, optimizer in enumerate(pair.with_zeus.optimizers):
        learning = optimizer._learning
        assert learning is not None
        power = learning.profiler.powers.waiting()
        waiting += [] if power is None else [power]
        for kind in learning.profiler.chosen:
            number = 0 if kind.name == "forward" else 1
            seconds = pair.with_zeus.seconds[number] * pair.loads[rank]
            for clock in learning.profiler.ladder:
                if clock < learning.profiler.times.lowest_clock(kind):
                    break
                option = learning.profiler.option(kind, clock)
                if option is not None:
                    errors.append(abs(option.energy / truth(model, seconds, clock).energy - 1))
    blocking = abs(statistics.median(waiting) / model.static_power - 1)
    return 100 * statistics.mean(errors), 100 * blocking


def bench_harsh_pipelines(bench: Bench) -> Iterator[Row]:
    """Pipelines with Zeus on a harsh node (ours only)."""
    yield from rows(*effort(quick=bench.effort == QUICK))


def effort(*, quick: bool) -> tuple[Sequence[int], Sequence[Sequence[float]]]:
    """Return the seeds and pipelines to measure."""
    return ((101,), LOADS[:1]) if quick else ((101, 102, 103), LOADS)


def one(measure: str, case: str, unit: str, value: float | None, target: float | None) -> Row:
    return row(TASK, measure, case, unit, {OURS: value}, target=target)


def rows(seeds: Sequence[int], pipelines: Sequence[Sequence[float]]) -> Iterator[Row]:
    """Yield all numbers: times and energies as means over the seeds, steps as the most."""
    yield from plain_rows(seeds, pipelines)
    yield from instruction_rows(seeds[0])
    yield from changing_rows(seeds)


def plain_rows(seeds: Sequence[int], pipelines: Sequence[Sequence[float]]) -> Iterator[Row]:
    for loads in pipelines:
        for shared in (False, True):
            pairs = []
            for seed in seeds:
                pairs.append(Pair(loads, {**HARSH, "seed": seed, "shared": shared}))
                pairs[-1].step(STEPS)
            alike = ", microbatches vary alike at all stages" if shared else ""
            case = f"stages {loads}{alike}"
            say(f"  {case}")
            planned = [pair.planned_after() or STEPS for pair in pairs]
            yield one("steps until the first plan", case, "steps", max(planned), 10)
            meanwhile = max(pair.slower(0, at) for pair, at in zip(pairs, planned, strict=True))
            yield one("step time until then", case, "% more", meanwhile, 10)
            slow = statistics.mean(pair.slower(SETTLED) for pair in pairs)
            yield one("step time under the plan, mean", case, "% more", slow, 0.5)
            slow = statistics.mean(pair.slower_tail(SETTLED) for pair in pairs)
            yield one("step time under the plan, p95", case, "% more", slow, 1.0)
            saved = statistics.mean(pair.saved(SETTLED) for pair in pairs)
            pipeline = true_pipeline(pairs[0])
            varies = Variation(HARSH["variation"], float(shared))
            for measure, most, target in (
                ("energy saved, of what the solver saves with the true profile",
                 possible(pipeline), 95),
                ("energy saved, of the most that a fixed plan can save with steps 0.5 % longer",
                 most_saved(pipeline, varies, 0.5), None),
            ):  # fmt: skip
                share = {OURS: 100 * saved / most}
                yield row(
                    TASK, measure, case, "%", share, target=target, at_least=True,
                    saved=saved, most=most,
                )  # fmt: skip
            for pair in pairs:
                pair.close()


def instruction_rows(seed: int) -> Iterator[Row]:
    for milliseconds in (2, 5, 20, 40, 60):
        seconds = (milliseconds / 1e3, milliseconds / 1e3)
        pair = Pair(LOADS[0], {**HARSH, "seconds": seconds, "seed": seed})
        pair.step(max(40, round(8 / (milliseconds / 1e3 * 11 * 2))))
        case = f"instructions of {milliseconds} ms"
        say(f"  {case}")
        yield one("steps until the first plan", case, "steps", pair.planned_after(), None)
        energies, blocking = profile_errors(pair)
        yield one("energy of instructions, mean error", case, "%", energies, 2)
        yield one("blocking power, error", case, "%", blocking, 5)
        pair.close()


def changing_rows(seeds: Sequence[int]) -> Iterator[Row]:
    slow: list[float] = []
    found: list[int] = []
    back: list[int] = []
    for seed in seeds:
        pair = Pair(LOADS[0], {**HARSH, "seed": seed})
        pair.step(40)
        for training in (pair.with_zeus, pair.without):
            training.slow_rank[0, 1] = 1.2
        pair.step(40)
        slow.append(pair.slower(50))
        pair.close()
        pair = Pair(LOADS[0], {**HARSH, "seed": seed, "pipelines": 2})
        pair.step(40)
        for factor, steps in ((1.2, found), (1.0, back)):
            for training in (pair.with_zeus, pair.without):
                training.slow[1] = factor
            steps.append(steps_until(pair, straggles=factor > 1))
        pair.close()
    say("  changes in mid-run")
    case = "a stage becomes 1.2x slower, after 10 steps"
    yield one("step time under the plan, mean", case, "% more", statistics.mean(slow), 1.0)
    case = "a pipeline 1.2x slower than its peers, not reported"
    yield one("steps until the others are slowed", case, "steps", max(found), 10)
    yield one("steps until they are fast again", case, "steps", max(back), 10)
    link = Pair(LOADS[0], {**HARSH, "seed": seeds[0], "message": [0.005, 0.05, 0.005]})
    link.step(STEPS)
    case = "one slow link of 50 ms, unknown at the start"
    yield one("step time under the plan, mean", case, "% more", link.slower(SETTLED), 0.5)
    link.close()


def steps_until(pair: Pair, *, straggles: bool, most: int = 30) -> int:
    """Return how many steps pass until a straggler is known, or is not any more."""
    for number in range(1, most + 1):
        pair.step(1)
        known = bool(pair.api._read("test").stragglers)
        if known == straggles:
            return number
    return most


if __name__ == "__main__":
    print(json.dumps(list(rows(*effort(quick="--quick" in sys.argv[1:]))), indent=1))
