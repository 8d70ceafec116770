"""Where the regret of our policy comes from, by cause, and what could be reached at best.

For each workload and GPU: what the first runs of the default cost beyond the oracle, what profiling
costs, what trials cost that were given up after their first epoch or cut off later, what those cost
that converged elsewhere than at the best batch size, and what luck the runs had. Beside the sum
stand the paper's policy, and ours if it knew Epochs beforehand: what is left without any learning.

Overlapping recurrences are kept at `--slots` here: as soon as one ends, the next begins.

    python benchmarks/replay_causes.py [--slots N] [--seeds N] [--traces DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zeus.optimizer.batch_size.job._job_batch import Ints, Role, Rows, Trials
from zeus.optimizer.batch_size.policies._valuation import valued
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy
from zeus.optimizer.batch_size.policies._zeus_state import ZeusState
from zeus.replay._jobs import Job, replay
from zeus.replay._table import JobTable, job_table
from zeus.replay._traces import load_traces
from zeus.replay._workloads import WORKLOADS

CAUSES = ("default", "profiles", "given up", "cut off", "explored", "exploited", "luck")


def jobs_of(table: JobTable, policy: str, seeds: Sequence[int]) -> list[Job]:
    """As often as in the paper: twice as often as there are configurations."""
    runs = [0] * table.recurrences
    return [Job(table.spec(policy, seed), [table], runs, seed) for seed in seeds]


class KnowsEpochs(ZeusPolicy):
    """Our policy if it knew the expected Epochs of every batch size; what an epoch costs it learns.

    Args:
        table: The truth.
    """

    def __init__(self, table: JobTable) -> None:
        super().__init__()
        known = np.isfinite(table.expected_epochs)
        # What never converges takes longer than any run may.
        self._truth = np.log(np.where(known, table.expected_epochs, 1e6))

    def _fit(self, state: ZeusState, rows: Rows, gpu: Ints) -> None:
        super()._fit(state, rows, gpu)
        state.belief.mean[rows] = self._truth
        state.belief.covariance[rows] = 1e-6 * np.eye(len(self._truth))
        valued(self.assume, state, rows, gpu).store(state.view, rows)


class Recorder(ZeusPolicy):
    """Our policy, keeping its trials."""

    def __init__(self) -> None:
        super().__init__()
        self.trials: list[Trials] = []

    def ended(self, state: ZeusState, rows: Rows, trials: Trials) -> None:
        """Keep them."""
        self.trials.append(trials)
        super().ended(state, rows, trials)


def causes(table: JobTable, seeds: Sequence[int], slots: int) -> dict[str, float]:
    """Regret of one job by cause, in runs of the oracle; a mean over seeds."""
    recorder = Recorder()
    replay(jobs_of(table, "zeus", seeds), slots=slots, policy=recorder)

    def all_of(name: str) -> np.ndarray:
        return np.concatenate([getattr(trials, name) for trials in recorder.trials])

    least = table.optimum.cost
    expected = table.expected_epochs * np.nanmin(table.epoch_cost, axis=1) / least
    role, converged, epochs = (all_of(name) for name in ("role", "converged", "epochs"))
    run = epochs * all_of("epoch_cost") / least
    usual = expected[all_of("arm")]
    explored = role == Role.EXPLORE
    # A run that does not reach the target is paid in full; another only beyond the oracle's.
    beyond = np.where(converged, usual - 1, 0.0)
    parts = (
        beyond[role == Role.DEFAULT],
        all_of("cost") / least - run,
        run[~converged & explored & (epochs <= 1)],
        run[~converged & ~(explored & (epochs <= 1))],
        beyond[explored],
        beyond[~explored & (role != Role.DEFAULT)],
        (run - usual)[converged],
    )
    return {name: float(part.sum()) / len(seeds) for name, part in zip(CAUSES, parts, strict=True)}


def regret(table: JobTable, policy: str, seeds: Sequence[int], slots: int) -> float:
    return float(replay(jobs_of(table, policy, seeds), slots=slots).regret.mean())


def bound(table: JobTable, seeds: Sequence[int], slots: int) -> float:
    """Mean regret of our policy if Epochs were known beforehand."""
    jobs = jobs_of(table, "zeus", seeds)
    return float(replay(jobs, slots=slots, policy=KnowsEpochs(table)).regret.mean())


def main() -> None:
    here = Path(__file__).resolve().parents[2] / "shared" / "traces" / "nsdi23"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=1, help="recurrences that overlap")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--traces", type=Path, default=here, metavar="DIR")
    chosen = parser.parse_args()
    traces, seeds = load_traces(chosen.traces), range(chosen.seeds)
    columns = (*CAUSES, "ours", "paper", "bound")
    print(f"{'':22}" + "".join(f"{name:>10}" for name in columns))
    for gpu in traces.power:
        for workload in WORKLOADS:
            table = job_table(traces, gpu, workload)
            parts = causes(table, seeds, chosen.slots)
            figures = (
                *parts.values(),
                sum(parts.values()),
                regret(table, "paper", seeds, chosen.slots),
                bound(table, seeds, chosen.slots),
            )
            name = f"{gpu} {workload.name}"
            print(f"{name:22}" + "".join(f"{figure:10.2f}" for figure in figures))


if __name__ == "__main__":
    main()
