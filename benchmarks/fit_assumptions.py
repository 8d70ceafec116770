"""Fit the priors of the `zeus` policy to recorded workloads, and with each of them left out.

Maximum likelihood of the Gaussian processes in `policies/_learning.py` and `policies/_prices.py`:
of log Epochs over all recorded targets of each workload (targets of one workload share its weight),
and of log EpochCost over all power sweeps, given the cost and the load at one batch size. Weak
priors keep the constants within an order of magnitude, as few workloads cannot determine them all.

    python benchmarks/fit_assumptions.py [--traces DIR]

prints, as JSON, the constants fitted to all workloads and with each workload or GPU left out,
beside those of the product. The product's differ where a search for low regret moved them; the
spread over what is left out shows how much the records leave open.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from replay_policies import TRACES
from zeus.optimizer.batch_size.policies._assumptions import Assumptions
from zeus.optimizer.batch_size.policies._belief import matern
from zeus.optimizer.batch_size.policies._zeus_state import LEVEL
from zeus.replay._table import job_table
from zeus.replay._traces import Traces, load_traces
from zeus.replay._workloads import WORKLOADS

# Where the search starts; the logarithm of each constant may move by about one.
EPOCHS = {"bend": 0.4, "bend_length": 3.0, "tilt": 0.15, "rough": 0.07, "noise": 0.17, "whole": 0.2}
COSTS = {"price_bend": 0.2, "price_length": 2.2, "price_tilt": 0.125, "price_rough": 0.02}
_TREND, _IDLE = 0.08, 0.6


def epochs_of(traces: Traces) -> list[tuple[str, float, np.ndarray, list[np.ndarray]]]:
    """Workload, weight, positions in doublings, and epochs of the runs at each, by target."""
    found = []
    for workload in WORKLOADS:
        rows = [
            row
            for row in traces.training[workload.key]
            if workload.admits(row.batch_size, row.learning_rate)
        ]
        targets = []
        for target in sorted({row.target_metric for row in rows}):
            runs: dict[int, list[float]] = {}
            for row in rows:
                if row.target_metric == target:
                    runs.setdefault(row.batch_size, []).append(row.target_epoch)
            whole = {size: np.array(each) for size, each in sorted(runs.items())}
            whole = {size: each for size, each in whole.items() if np.isfinite(each).all()}
            if len(whole) >= 3:
                position = np.log2(np.array(list(whole)) / workload.default_batch_size)
                targets.append((position, list(whole.values())))
        found += [(workload.name, 1 / len(targets), *each) for each in targets]
    return found


def epochs_loss(
    data: list[tuple[str, float, np.ndarray, list[np.ndarray]]],
) -> Callable[[np.ndarray, str], float]:
    def loss(theta: np.ndarray, left_out: str) -> float:
        trend, (bend, length, tilt, rough, noise, whole) = theta[0], np.exp(theta[1:])
        total = 0.5 * ((trend - _TREND) / 0.3) ** 2
        total += 0.5 * float(((theta[1:] - np.log(list(EPOCHS.values()))) ** 2).sum())
        for name, weight, position, runs in data:
            if name == left_out:
                continue
            kernel = LEVEL**2 + matern(position[None], bend, length, tilt, rough)[0]
            mean = np.array([np.log(each).mean() for each in runs]) - trend * position
            count = np.array([len(each) for each in runs])
            kernel += np.diag((whole / np.array([each.mean() for each in runs])) ** 2)
            kernel += np.diag(noise**2 / count)
            squares = sum(float(np.var(np.log(each)) * len(each)) for each in runs)
            total += weight * (
                normal_loss(mean - mean.mean(), kernel)
                + 0.5 * squares / noise**2
                + float((count - 1).sum()) * np.log(noise)
            )
        return total

    return loss


def costs_of(traces: Traces) -> list[tuple[str, str, np.ndarray, np.ndarray, np.ndarray]]:
    """Workload, GPU, positions, log cost of an epoch and load at each, by weight of energy."""
    found = []
    for gpu in traces.power:
        for workload in WORKLOADS:
            for eta in (0.0, 0.5, 1.0):
                table = job_table(traces, gpu, workload, eta_knob=eta, untrained="fail")
                best = np.arange(len(table.best_power)), table.best_power
                load = (table.power / np.array(table.power_limits))[best]
                position = np.log2(np.array(table.batch_sizes))
                cost = np.log(table.epoch_cost[best])
                found.append((workload.name, gpu, position, cost, load))
    return found


def costs_loss(
    data: list[tuple[str, str, np.ndarray, np.ndarray, np.ndarray]],
) -> Callable[[np.ndarray, str], float]:
    def loss(theta: np.ndarray, left_out: str) -> float:
        idle, (bend, length, tilt, rough) = 1 / (1 + np.exp(-theta[0])), np.exp(theta[1:])
        total = 0.5 * float(((theta[1:] - np.log(list(COSTS.values()))) ** 2).sum())
        for name, gpu, position, cost, load in data:
            if left_out in (name, gpu):
                continue
            for known in range(len(position)):
                away = position - position[known]
                busy = 1 - idle * (1 - min(load[known], 1.0))
                off = cost - cost[known] - np.log(busy + (1 - busy) * 2.0**-away)
                kernel = LEVEL**2 + matern(away[None], bend, length, tilt, rough)[0]
                kernel += 1e-6 * np.eye(len(away))
                column = kernel[:, known]
                kernel = kernel - np.outer(column, column) / kernel[known, known]
                others = np.arange(len(away)) != known
                part = kernel[np.ix_(others, others)] + 1e-9 * np.eye(int(others.sum()))
                total += normal_loss(off[others], part) / len(position) / 3
        return total

    return loss


def normal_loss(off: np.ndarray, covariance: np.ndarray) -> float:
    """Return the negative log likelihood of a Gaussian, without its constant."""
    root = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(off)))
    scaled = np.linalg.solve(root, off)
    return float(0.5 * scaled @ scaled + np.log(np.diag(root)).sum())


def fitted(
    loss: Callable[[np.ndarray, str], float], start: np.ndarray, left_out: str
) -> np.ndarray:
    options = {"maxiter": 800, "xatol": 0.02, "fatol": 0.02}
    return minimize(loss, start, args=(left_out,), method="Nelder-Mead", options=options).x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES / "nsdi23")
    traces = load_traces(parser.parse_args().traces)
    of_epochs, of_costs = epochs_loss(epochs_of(traces)), costs_loss(costs_of(traces))
    start = np.array([_TREND, *np.log(list(EPOCHS.values()))])
    price_start = np.array([np.log(_IDLE / (1 - _IDLE)), *np.log(list(COSTS.values()))])
    product = asdict(Assumptions())
    names = ("trend", *EPOCHS, "idle", *COSTS)
    report = {"product": {name: product[name] for name in names}}
    for left_out in ("nothing", *(workload.name for workload in WORKLOADS), *traces.power):
        values: dict[str, float] = {}
        if left_out not in traces.power:
            theta = fitted(of_epochs, start, left_out)
            values |= dict(zip(("trend", *EPOCHS), (theta[0], *np.exp(theta[1:])), strict=True))
        theta = fitted(of_costs, price_start, left_out)
        idle = 1 / (1 + np.exp(-theta[0]))
        values |= dict(zip(("idle", *COSTS), (idle, *np.exp(theta[1:])), strict=True))
        report[f"without {left_out}"] = {name: round(float(v), 3) for name, v in values.items()}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
