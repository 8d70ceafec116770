"""Fit the simulated server to a measured sweep of clocks and batch sizes.

Reads `serving/v100_mistral7b_clock_sweep.csv` of the recorded traces (time and power of decode and
prefill by clock, and of decode by batch size at the default clock, which is the V100's boost) and
prints the figures in `zeus/testing/_serving_workload.py` with the errors that remain. Needs SciPy.

Not fitted, because the sweep does not show them: static power, which is that of the simulated V100
(fitted to the power sweeps of the Zeus paper), the sharpness of the roofline's ridge, and the
time and energy of reading contexts, which follow from the bytes per token of context (131,072 for
this model) at the bandwidth and energy per byte at which weights are read.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from zeus.testing import ServingWorkload

TRACES = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
SWEEP = TRACES / "serving" / "v100_mistral7b_clock_sweep.csv"
STEPS = 256  # tokens that each request generates
CONTEXT = STEPS / 2  # tokens of context per request on average; prompts were short
CONTEXT_SHARE = 131072 / (2 * 7.24e9)  # bytes of a token of context, relative to the weights
TIMES = {
    "weight_time": (0.024, 1e-3, 0.1),
    "launch_time": (0.001, 0, 0.02),
    "token_time": (2e-4, 1e-6, 1e-2),
    "sequence_time": (1e-4, 0, 1e-2),
    "memory_knee": (0.46, 0.1, 0.9),
    "memory_steepness": (16, 2, 40),
}
ENERGIES = {
    "clock_power": (90, 0, 300),
    "weight_energy": (0.8, 0, 5),
    "token_energy": (0.035, 0, 1),
    "sequence_energy": (0.02, 0, 1),
    "floor_voltage": (0.7, 0.2, 1),
    "knee": (0.65, 0, 0.95),
}


def rows(path: Path = SWEEP) -> list[tuple[str, float, int, float, float, float]]:
    """Phase, MHz, batch size, tokens, seconds and watts of each row."""
    boost = ServingWorkload.mistral_7b_v100().highest_clock
    with path.open() as file:
        return [
            (
                row["phase"],
                boost if row["clock_mhz"] == "default" else float(row["clock_mhz"]),
                int(row["batch_size"]),
                float(row["tokens"]),
                float(row["seconds"]),
                float(row["watts"]),
            )
            for row in csv.DictReader(file)
        ]


def errors(workload: ServingWorkload, measured: list) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of time and energy of each row, as logarithms."""
    times, energies = [], []
    for phase, clock, batch, tokens, seconds, watts in measured:
        if phase == "decode":
            step, power = workload.decode(clock, batch, CONTEXT * batch)
            step *= tokens / batch
        else:
            step, power = workload.prefill(clock, tokens)
        times.append(np.log(step / seconds))
        energies.append(np.log(step * power / (seconds * watts)))
    return np.array(times), np.array(energies)


def fitted(workload: ServingWorkload, measured: list) -> ServingWorkload:
    """Fit times first, then energies."""
    for names, which in ((TIMES, 0), (ENERGIES, 1)):
        start, low, high = (np.array(each, float) for each in zip(*names.values(), strict=True))

        def made(values: np.ndarray, names=names, start=start, base=workload) -> ServingWorkload:
            found = replace(base, **dict(zip(names, (values * start).tolist(), strict=True)))
            return replace(
                found,
                context_time=found.weight_time * CONTEXT_SHARE,
                context_energy=found.weight_energy * CONTEXT_SHARE,
            )

        found = least_squares(
            lambda values, made=made, which=which: errors(made(values), measured)[which],
            np.ones(len(names)),
            bounds=(low / start, high / start),
            loss="soft_l1",
            f_scale=0.01,
        )
        workload = made(found.x)
    return workload


if __name__ == "__main__":
    measured = rows(Path(sys.argv[1]) if len(sys.argv) > 1 else SWEEP)
    workload = fitted(ServingWorkload.mistral_7b_v100(), measured)
    summary = {
        name: {"median": float(np.median(abs(each))), "worst": float(max(abs(each)))}
        for name, each in zip(("time", "energy"), errors(workload, measured), strict=True)
    }
    figures = {
        name: float(f"{value:.4g}")
        for name, value in asdict(workload).items()
        if isinstance(value, float | int)
    }
    json.dump({"errors": summary, "figures": figures}, sys.stdout, indent=1)
