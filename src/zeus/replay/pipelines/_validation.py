"""How well a model predicts the schedules that it was not fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zeus.replay.pipelines._model import MIN_RUNS, Model, fit_model
from zeus.replay.pipelines._recording import Array, Recording, Run


@dataclass(frozen=True)
class Split:
    """Some schedules to fit, others to predict.

    Attributes:
        name: What is fitted to what.
        fitted: Numbers of the schedules to fit.
        predicted: Numbers of the schedules to predict.
    """

    name: str
    fitted: list[int]
    predicted: list[int]


@dataclass(frozen=True)
class Errors:
    """Errors of predictions.

    Attributes:
        split: What was predicted from what.
        time: Relative errors of the time of an iteration, by predicted schedule.
        energy: Relative errors of its energy over all GPUs.
    """

    split: Split
    time: Array
    energy: Array


def splits(recording: Recording) -> list[Split]:
    """Return even from odd schedules, odd from even, and the faster half from the slower one.

    Where numbers are nearly all even or all odd, positions among them count instead.

    Args:
        recording: What was recorded.
    """
    runs = recording.planned
    odd = [run.number for run in runs if run.number % 2]
    even = [run.number for run in runs if run.number % 2 == 0]
    if min(len(odd), len(even)) < MIN_RUNS:
        even, odd = ([run.number for run in runs[first::2]] for first in (0, 1))
    slowest = [run.number for run in sorted(runs, key=lambda run: -run.time)]
    half = len(slowest) // 2
    return [
        Split("even from odd", odd, even),
        Split("odd from even", even, odd),
        Split("faster from slower half", slowest[:half], slowest[half:]),
    ]


def validate(recording: Recording, split: Split, model: Model | None = None) -> Errors:
    """Fit a model to one part of a recording and predict the other.

    Args:
        recording: The recording.
        split: Its two parts.
        model: Model fitted to `split.fitted`, if there is one already.
    """
    model = model or fit_model(recording, split.fitted)
    runs: Sequence[Run] = [recording.runs[number] for number in split.predicted]
    predictions = model.predict([run.clocks for run in runs])
    pairs = list(zip(predictions, runs, strict=True))
    return Errors(
        split,
        np.array([predicted.time / run.time - 1 for predicted, run in pairs]),
        np.array([predicted.energy / run.energy - 1 for predicted, run in pairs]),
    )
