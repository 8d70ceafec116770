"""Figures of the authors' own program: `authors_regret.csv` beside the traces.

It holds the cumulative regret of the simulator and policy that the authors of the Zeus paper
published, run with seeds 501 to 550 at eta 0.5 and beta 2 on the batch sizes that were trained. Run
again with the same generator of random numbers, these figures come out to the last digit if a job
recurs twice as often as there are configurations *in the power trace*, batch sizes that were never
trained included. So comparisons with them take that number of recurrences.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zeus.replay._jobs import Job
from zeus.replay._table import JobTable, job_table
from zeus.replay._traces import Traces
from zeus.replay._workloads import workload_named

AUTHORS = "authors_regret.csv"
AUTHORS_SEEDS = range(501, 551)


@dataclass(frozen=True)
class AuthorsCell:
    """Regret of the authors' program on one workload.

    Attributes:
        table: The workload on a GPU, at a target.
        recurrences: Number of recurrences of a job.
        regret: Mean over seeds, in runs of the oracle; `standard_error` is that of the mean.
    """

    table: JobTable
    recurrences: int
    regret: float
    standard_error: float

    @property
    def name(self) -> str:
        """Name for people."""
        return f"{self.table.gpu} {self.table.workload} {self.table.target_metric:g}"

    def jobs(self, policy: str, seeds: Sequence[int] = AUTHORS_SEEDS) -> list[Job]:
        """Return one job for each seed, as the authors ran them."""
        schedule = [0] * self.recurrences
        return [Job(self.table.spec(policy, seed), [self.table], schedule, seed) for seed in seeds]


def authors_cells(traces: Traces) -> list[AuthorsCell]:
    """Read the figures: first the paper's targets (Table 1), then others."""
    with (Path(traces.folder) / AUTHORS).open(newline="", encoding="utf-8") as file:
        return [_cell(traces, row) for row in csv.DictReader(file) if row["gpu"] in traces.power]


def _cell(traces: Traces, row: dict[str, str]) -> AuthorsCell:
    gpu, workload, target = row["gpu"], workload_named(row["workload"]), float(row["target"])
    whole = job_table(traces, gpu, workload, target_metric=target, untrained="fail")
    return AuthorsCell(
        table=job_table(traces, gpu, workload, target_metric=target),
        recurrences=whole.recurrences,
        regret=float(row["regret_mean"]),
        standard_error=float(row["standard_error"]),
    )
