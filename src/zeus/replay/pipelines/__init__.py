"""Recorded pipelines: models fitted to some schedules of real clusters, tested on the others.

    recording = read_recording("pipelines/a40-bert-huge-pp8-mb32.tar.xz")
    model = fit_model(recording, [3, 5, 7, 9, 11])      # numbers of schedules
    predicted, = model.predict([recording.runs[4].clocks])
    print(predicted.time, recording.runs[4].time)

`_recording.py` reads what was recorded, `_times.py`, `_links.py` and `_powers.py` fit, `_engine.py`
executes, `_validation.py` compares predictions with what was measured, and `_planning.py` our plans
with the recorded schedules. `_study.py` has all of it, beside power limits (`_power_limits.py`);
`_figure.py` draws that.
"""

from __future__ import annotations

from zeus.replay.pipelines._model import Model, Prediction, fit_model
from zeus.replay.pipelines._planning import Comparison, compare_plans
from zeus.replay.pipelines._recording import Recording, Run, read_recording
from zeus.replay.pipelines._validation import Errors, Split, splits, validate

__all__ = [
    "Comparison",
    "Errors",
    "Model",
    "Prediction",
    "Recording",
    "Run",
    "Split",
    "compare_plans",
    "fit_model",
    "read_recording",
    "splits",
    "validate",
]
