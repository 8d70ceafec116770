"""Plans for a recorded workload by our solver, beside the schedules that were recorded.

Both are executed by the same model, fitted to other schedules. Its links are as slow as the
recorded times admit: a link that is not on any critical path could be as fast as one likes, and a
plan that counts on it would promise what nobody has measured. For the same reason no computation is
planned at a clock below or above those that it ran at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zeus.optimizer.pipeline_frequency import Option, Pipeline, solve
from zeus.replay.pipelines._instructions import Kind, program
from zeus.replay.pipelines._model import Model, fit_model
from zeus.replay.pipelines._recording import Array, Recording
from zeus.replay.pipelines._times import KINDS
from zeus.replay.pipelines._validation import Split

_NAMES = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward"}
_PLANS = 100


@dataclass(frozen=True)
class Comparison:
    """A recorded schedule and our plan that takes no longer, by the same model.

    Attributes:
        number: Number of the schedule.
        time: Seconds of an iteration under the schedule.
        energy: Joules of an iteration under the schedule.
        planned_time: Seconds under our plan; infinite if no plan is as fast.
        planned_energy: Joules under our plan, likewise.
    """

    number: int
    time: float
    energy: float
    planned_time: float
    planned_energy: float

    @property
    def saved(self) -> float:
        """Share of the schedule's energy that our plan saves."""
        return 1 - self.planned_energy / self.energy


def compare_plans(recording: Recording, split: Split) -> list[Comparison]:
    """Plan by a model fitted to one part of a recording, and compare with the other part.

    Args:
        recording: The recording.
        split: Its two parts.
    """
    known = [recording.runs[number].clocks for number in split.fitted]
    model = fit_model(recording, split.fitted).cautious(known)
    clocks = np.unique([each[kind] for each in known for kind in KINDS])
    plans = solve(pipeline_of(model, recording.microbatches, clocks), plans=_PLANS).plans
    schedules = [recording.runs[number].clocks for number in split.predicted]
    found = []
    for number, predicted in zip(split.predicted, model.predict(schedules), strict=True):
        least = min(
            ((plan.energy, plan.time) for plan in plans if plan.time <= predicted.time),
            default=(np.inf, np.inf),
        )
        found.append(Comparison(number, predicted.time, predicted.energy, least[1], least[0]))
    return found


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
