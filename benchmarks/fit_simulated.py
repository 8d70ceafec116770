"""Fit the simulated GPUs to recorded power sweeps.

Reads the published sweeps (time per epoch and average power of every batch size and power limit)
and fits, per GPU model, the shape of its power-over-clock curve, and per recorded job how it uses
the GPU. The printed figures are the ones in `zeus/device/_simulated_models.py` and
`zeus/testing/recorded_jobs.csv`. Needs SciPy (``pip install scipy``).
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, minimize

TRACES = Path(os.environ.get("ZEUS_TRACES", Path(__file__).parents[2] / "shared" / "traces"))
CLOCKS = {"v100": (135, 1380), "a40": (210, 1740)}
MAX_POWER = {"v100": 250.0, "a40": 300.0}
GRID = 4000


def sweeps(gpu: str) -> dict[tuple[str, str, str, int], np.ndarray]:
    """Recorded (limit, time, power) rows of every job."""
    rows = defaultdict(list)
    with (TRACES / "nsdi23" / f"summary_power_{gpu}.csv").open() as file:
        for row in csv.DictReader(file):
            key = (row["dataset"], row["network"], row["optimizer"], int(row["batch_size"]))
            rows[key].append(
                [float(row[c]) for c in ("power_limit", "time_per_epoch", "average_power")]
            )
    return {key: np.array(sorted(value)) for key, value in rows.items()}


def power_curve(device: np.ndarray, lowest: float) -> tuple[np.ndarray, np.ndarray]:
    """Relative clocks, and relative dynamic power at them: x * voltage(x)^2."""
    _, floor_voltage, knee = device
    x = np.linspace(lowest, 1.0, GRID)
    rise = np.maximum(0.0, (x - knee) / (1 - knee))
    return x, x * (floor_voltage + (1 - floor_voltage) * rise) ** 2


def predict(job, limits, device, curve, dynamic_range):
    """Time (in units of the time at full clock) and average power at each limit."""
    activity, compute_bound, host = job
    static = device[0]
    x_grid, phi_grid = curve
    target = (limits - static) / (activity * dynamic_range)
    x = np.interp(target, phi_grid, x_grid)
    busy_power = static + activity * dynamic_range * np.interp(x, x_grid, phi_grid)
    gpu_time = (1 - host) * (compute_bound / x + 1 - compute_bound)
    time = host + gpu_time
    return time, (host * static + gpu_time * busy_power) / time


def fit_job(rows, device, curve, dynamic_range):
    """Least squares on relative errors; returns job, epoch seconds, relative errors."""
    limits, times, powers = rows.T

    def residual(parameters):
        time, power = predict(parameters[:3], limits, device, curve, dynamic_range)
        return np.concatenate(
            [np.log(time * np.exp(parameters[3]) / times), np.log(power / powers)]
        )

    fits = [
        least_squares(
            residual,
            [activity, 0.7, host, np.log(times[-1])],
            bounds=([0.01, 0, 0, -10], [1.6, 1, 0.99, 20]),
            loss="soft_l1",
            f_scale=0.05,
        )
        for activity, host in ((0.9, 0.05), (0.4, 0.5), (0.6, 0.2))
    ]
    best = min(fits, key=lambda fit: fit.cost)
    return best.x, residual(best.x), best.cost


def fit_gpu(gpu: str):
    """Fit the device's curve over all jobs, then each job."""
    data = sweeps(gpu)
    lowest = CLOCKS[gpu][0] / CLOCKS[gpu][1]

    def total(device):
        static, floor_voltage, knee = device
        if not (5 < static < 99 and 0.2 < floor_voltage < 1 and 0 <= knee < 0.95):
            return 1e9
        curve = power_curve(device, lowest)
        return sum(
            fit_job(rows, device, curve, MAX_POWER[gpu] - static)[2] for rows in data.values()
        )

    start = {"v100": [37.0, 0.6, 0.5], "a40": [80.0, 0.6, 0.5]}[gpu]
    found = minimize(
        total, start, method="Nelder-Mead", options={"xatol": 2e-3, "fatol": 1e-4, "maxfev": 120}
    )
    curve = power_curve(found.x, lowest)
    jobs, time_errors, power_errors = {}, [], []
    for key, rows in data.items():
        job, residual, _ = fit_job(rows, found.x, curve, MAX_POWER[gpu] - found.x[0])
        half = len(residual) // 2
        time_errors.extend(np.abs(residual[:half]))
        power_errors.extend(np.abs(residual[half:]))
        jobs["/".join(map(str, key))] = [
            round(float(job[0]), 4),
            round(float(job[1]), 4),
            round(float(job[2]), 4),
            float(f"{np.exp(job[3]):.5g}"),
        ]
    quantiles = lambda e: [round(float(q), 4) for q in np.quantile(e, (0.5, 0.95, 1))]  # noqa: E731
    return {
        "static_power": round(float(found.x[0]), 2),
        "floor_voltage": round(float(found.x[1]), 4),
        "knee": round(float(found.x[2]), 4),
        "time_error_p50_p95_max": quantiles(time_errors),
        "power_error_p50_p95_max": quantiles(power_errors),
        "jobs": jobs,
    }


if __name__ == "__main__":
    json.dump({gpu: fit_gpu(gpu) for gpu in sys.argv[1:] or ["v100", "a40"]}, sys.stdout, indent=1)
