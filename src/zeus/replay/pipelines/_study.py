"""Everything that a recording shows: predictions, plans, and power limits, at equal time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zeus.replay.pipelines._model import Model, fit_model
from zeus.replay.pipelines._planning import Comparison, compare_plans, plan_recorded
from zeus.replay.pipelines._power_limits import LimitedRun
from zeus.replay.pipelines._recording import Recording, Run
from zeus.replay.pipelines._validation import Errors, splits, validate

RECORDED, OURS = "recorded schedules", "our plans, by the model"
SLOWER = (1, 3, 5, 10)
"""Percent by which an iteration may take longer, where approaches are compared."""

Point = tuple[float, float]
"""Seconds and joules of an iteration."""


@dataclass(frozen=True)
class Study:
    """What a recording shows.

    Attributes:
        recording: The recording.
        errors: Errors of predictions, by split.
        comparisons: Our plans beside recorded schedules, each by a model fitted to other ones.
        checked: The same plans and schedules, by a model fitted to those schedules instead: by how
            much longer a plan takes than the schedule, and the share of energy that it saves.
        model: Model fitted to all schedules.
        points: Times and energies of each approach: measured, but for our plans.
    """

    recording: Recording
    errors: Sequence[Errors]
    comparisons: Sequence[Comparison]
    checked: Sequence[tuple[float, float]]
    model: Model
    points: Mapping[str, Sequence[Point]]

    @property
    def reference(self) -> Point | None:
        """The fastest run with all GPUs at one power limit, or else at the highest clocks."""
        fastest = [run for run in self.recording.runs.values() if run.uniform]
        limited = self.points.get("one power limit", ())
        measured = limited or [(run.time, run.energy) for run in fastest]
        return min(measured, default=None)

    def saved(self, approach: str, percent: float) -> float | None:
        """Return the share of the reference's energy that an approach saves.

        Args:
            approach: One of `points`.
            percent: By which an iteration may take longer than that of the reference.

        Returns:
            None if there is no run that fast, or no reference.
        """
        if self.reference is None:
            return None
        time, energy = self.reference
        allowed = time * (1 + percent / 100)
        least = min((e for t, e in self.points[approach] if t <= allowed), default=None)
        return None if least is None else 1 - least / energy

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        recording = self.recording
        return {
            "name": recording.name,
            "gpu": recording.board.name,
            "gpus": recording.ranks,
            "stages": recording.stages,
            "microbatches": recording.microbatches,
            "schedules": len(recording.planned),
            "predictions": [
                {
                    "split": each.split.name,
                    "time": _magnitudes(each.time),
                    "energy": _magnitudes(each.energy),
                }
                for each in self.errors
            ],
            "plans": [
                {
                    "schedule": each.number,
                    "time": each.time,
                    "energy": each.energy,
                    "planned_time": _finite(each.planned_time),
                    "planned_energy": _finite(each.planned_energy),
                    "bound": _finite(each.bound),
                }
                for each in self.comparisons
            ],
            "links": [float(each) for each in self.model.engine.links],
            "tail": self.model.engine.tail,
            "reference": self.reference,
            "saved": {
                approach: {f"{percent}": self.saved(approach, percent) for percent in SLOWER}
                for approach in self.points
            },
            "points": {approach: list(points) for approach, points in self.points.items()},
        }


def study(
    recording: Recording,
    limits: Mapping[str, Sequence[LimitedRun]],
    progress: Callable[[float], None] = lambda _: None,
) -> Study:
    """Fit models to a recording, predict and plan.

    Args:
        recording: The recording.
        limits: Its runs under power limits, by approach.
        progress: Called with the share that is done.

    Raises:
        TraceError: If there are too few schedules.
    """
    parts = splits(recording)
    models = []
    for number, split in enumerate(parts):
        models.append(fit_model(recording, split.fitted))
        progress((number + 1) / (len(parts) + 1))
    planned = [run.number for run in recording.planned]
    whole = fit_model(recording, planned)
    plans = plan_recorded(recording, planned, whole).plans
    halves = list(zip(parts[:2], models[:2], models[1::-1], strict=True))
    compared = [compare_plans(recording, split, own) for split, own, _ in halves]
    points: dict[str, Sequence[Point]] = {
        RECORDED: [(run.time, run.energy) for run in recording.planned],
        OURS: [(plan.time, plan.energy) for plan in plans],
        **{name: [(run.time, run.energy) for run in runs] for name, runs in limits.items()},
    }
    return Study(
        recording,
        [validate(recording, *each) for each in zip(parts, models, strict=True)],
        [each for part in compared for each in part],
        [
            each
            for part, (_, _, other) in zip(compared, halves, strict=True)
            for each in _checked(part, recording.runs, other)
        ],
        whole,
        points,
    )


def _checked(
    comparisons: Sequence[Comparison], runs: Mapping[int, Run], model: Model
) -> list[tuple[float, float]]:
    fast = [each for each in comparisons if each.clocks]
    ours = model.predict([each.clocks for each in fast])
    theirs = model.predict([runs[each.number].clocks for each in fast])
    return [
        (own.time / other.time - 1, 1 - own.energy / other.energy)
        for own, other in zip(ours, theirs, strict=True)
    ]


def _magnitudes(errors: np.ndarray) -> dict[str, float]:
    return {"median": float(np.median(abs(errors))), "worst": float(abs(errors).max())}


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
