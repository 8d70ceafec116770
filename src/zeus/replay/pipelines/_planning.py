"""Plans for a recorded workload by our solver, beside the schedules that were recorded.

Both are executed by the same model, fitted to other schedules. Links that neither times nor slack
determine are as slow as the recorded times admit: a plan that counts on a fast one would promise
what was never measured. For the same reason no computation is planned at a clock below or above
those that it ran at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zeus.optimizer.pipeline_frequency import Option, Pipeline, Plan, Solution, solve
from zeus.replay.pipelines._instructions import Kind, program
from zeus.replay.pipelines._model import Model, fit_model
from zeus.replay.pipelines._recording import Array, Recording
from zeus.replay.pipelines._times import KINDS
from zeus.replay.pipelines._validation import Split

_NAMES = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward"}
_PLANS = 300


@dataclass(frozen=True)
class Comparison:
    """A recorded schedule and our plan that takes no longer, by the same model.

    Attributes:
        number: Number of the schedule.
        time: Seconds of an iteration under the schedule.
        energy: Joules of an iteration under the schedule.
        planned_time: Seconds under our plan; infinite if no plan is as fast.
        planned_energy: Joules under our plan, likewise.
        bound: Joules that any plan takes at least that is as fast as the schedule, likewise.
        clocks: MHz of "forward" and "backward" under our plan, by rank and microbatch; none if no
            plan is as fast.
    """

    number: int
    time: float
    energy: float
    planned_time: float
    planned_energy: float
    bound: float
    clocks: Mapping[str, Array]

    @property
    def saved(self) -> float:
        """Share of the schedule's energy that our plan saves."""
        return 1 - self.planned_energy / self.energy

    @property
    def possible(self) -> float:
        """Share of the schedule's energy that any plan saves at most."""
        return 1 - self.bound / self.energy


def compare_plans(
    recording: Recording, split: Split, model: Model | None = None
) -> list[Comparison]:
    """Plan by a model fitted to one part of a recording, and compare with the other part.

    Args:
        recording: The recording.
        split: Its two parts.
        model: Model fitted to `split.fitted`, if there is one already.
    """
    model = (model or fit_model(recording, split.fitted)).cautious(
        [recording.runs[number].clocks for number in split.fitted]
    )
    solution = plan_recorded(recording, split.fitted, model)
    plans = solution.plans
    schedules = [recording.runs[number].clocks for number in split.predicted]
    found = []
    for number, predicted in zip(split.predicted, model.predict(schedules), strict=True):
        time, energy = predicted.time, predicted.energy
        fast = [plan for plan in plans if plan.time <= time]
        if fast:
            plan = min(fast, key=lambda plan: plan.energy)
            bound = solution.continuous.energy(time)
            own = _clocks(plan, recording)
            found.append(Comparison(number, time, energy, plan.time, plan.energy, bound, own))
        else:
            found.append(Comparison(number, time, energy, np.inf, np.inf, np.inf, {}))
    return found


def plan_recorded(recording: Recording, numbers: Sequence[int], model: Model) -> Solution:
    """Plan a recorded workload, with clocks that ran.

    Args:
        recording: The recording.
        numbers: Schedules that the clocks are of.
        model: The model to plan with.
    """
    known = [recording.runs[number].clocks for number in numbers]
    clocks = np.unique([each[kind] for each in known for kind in KINDS])
    return solve(pipeline_of(model, recording.microbatches, clocks), plans=_PLANS)


def _clocks(plan: Plan, recording: Recording) -> dict[str, Array]:
    """Return MHz by rank and microbatch; ranks of one stage have the same."""
    found = {kind: np.zeros((recording.stages, recording.microbatches)) for kind in KINDS}
    for operation, option in zip(plan.pipeline.operations, plan.options, strict=True):
        if operation.stage is not None:
            found[operation.instruction][operation.stage, operation.microbatch] = option.frequency
    return {
        kind: np.tile(each, (recording.ranks // recording.stages, 1))
        for kind, each in found.items()
    }


def pipeline_of(model: Model, microbatches: int, clocks: Array) -> Pipeline:
    """Return the iteration that the model executes, as a pipeline to plan.

    Loads are part of the forward that they precede, at blocking power. Ranks of one stage are taken
    as alike, with their mean power.

    Args:
        model: The model.
        microbatches: Microbatches in an iteration.
        clocks: MHz to choose from; a computation uses those within the range that it ran at.
    """
    options = _options(model, clocks)
    waiting = model.powers.blocking_power
    pipeline = Pipeline(model.stages, waiting, data_parallel=model.ranks // model.stages)
    last: list[tuple[int, ...]] = [()] * model.stages
    for step in program(model.stages, microbatches):
        at = step.stage
        if step.kind is Kind.EXCHANGE:
            both = {*last[at], *last[at + 1]}
            time = float(model.engine.links[at])
            last[at] = last[at + 1] = (pipeline.add_fixed("exchange", time, after=both),)
        elif step.kind in _NAMES:
            name = _NAMES[step.kind]
            last[at] = (
                pipeline.add(
                    name,
                    options[at, name],
                    device=at,
                    stage=at,
                    microbatch=step.microbatch,
                    after=last[at],
                ),
            )
    pipeline.add_fixed("tail", model.engine.tail, after={n for each in last for n in each})
    return pipeline


def _options(model: Model, clocks: Array) -> dict[tuple[int, str], tuple[Option, ...]]:
    watts = model.powers(clocks)
    found = {}
    for (stage, kind), curve in model.curves.items():
        load = float(model.engine.loads[stage]) if kind == "forward" else 0.0
        power = watts[stage :: model.stages].mean(0)
        found[stage, kind] = tuple(
            Option(
                float(clock),
                float(time) + load,
                float(time) * float(each) + load * model.powers.blocking_power,
            )
            for clock, time, each in zip(clocks, curve(clocks), power, strict=True)
            if curve.clocks[0] <= clock <= curve.clocks[-1]
        )
    return found
