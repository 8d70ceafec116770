"""The settings in which policies for recurring jobs are compared, as cells of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from replay_authors import authors_cells
from replay_gpus import bent
from zeus.errors import TraceError
from zeus.replay._scenarios import DRIFTS, Scenario, drifting, moving, with_default
from zeus.replay._table import JobTable, job_table
from zeus.replay._traces import Traces
from zeus.replay._workloads import WORKLOADS, workload_named

# Jobs go on for at least so long, for what becomes of them after 100 nights.
LEAST_NIGHTS = 200
DRIFT_NIGHTS, DRIFT_WINDOW = 114, 10
# Workload and target before and after: another batch size is best.
_DRIFTS = (
    (("shufflenetv2", 0.6), ("shufflenetv2", 0.4)),
    (("shufflenetv2", 0.4), ("shufflenetv2", 0.65)),
    (("neumf", 0.41), ("shufflenetv2", 0.5)),
    (("shufflenetv2", 0.6), ("neumf", 0.41)),
    (("resnet50", 0.6), ("resnet50", 0.65)),
)


@dataclass(frozen=True)
class Cell:
    """One setting.

    Attributes:
        name: For people.
        scenario: What the jobs meet.
        recurrences: Recurrences that count for the regret; the scenario may be longer.
        since: First recurrence that counts.
        options: Fields of the specification: `beta`, `window`.
        authors: Mean regret of the authors' own program, if it is known.
    """

    name: str
    scenario: Scenario
    recurrences: int
    since: int = 0
    options: Mapping[str, float | int | None] = field(default_factory=dict)
    authors: float | None = None

    @property
    def table(self) -> JobTable:
        """The table of the first recurrence."""
        return self.scenario.tables[0]

    @property
    def workload(self) -> str:
        """Name of the workload."""
        return self.table.workload


def steady(table: JobTable, name: str = "", recurrences: int | None = None, **more: object) -> Cell:
    """Return a cell in which nothing changes."""
    count = table.recurrences if recurrences is None else recurrences
    scenario = Scenario.steady(table, max(count, LEAST_NIGHTS))
    label = f"{table.gpu} {table.workload} {table.target_metric:g}"
    return Cell(f"{label} {name}".strip(), scenario, count, **more)  # type: ignore[arg-type]


def of_authors(traces: Traces) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of the authors' figures: the paper's targets (Table 1), and others."""
    paper: list[Cell] = []
    others: list[Cell] = []
    for each in authors_cells(traces):
        cell = steady(each.table, recurrences=each.recurrences, authors=each.regret)
        usual = workload_named(each.table.workload).target_metric
        (paper if each.table.target_metric == usual else others).append(cell)
    return paper, others


def recorded(traces: Traces, eta: float = 0.5) -> list[JobTable]:
    """Return the 12 pairs of Table 1."""
    return [
        job_table(traces, gpu, workload, eta_knob=eta)
        for gpu in traces.power
        for workload in WORKLOADS
    ]


def every_default(traces: Traces) -> tuple[list[Cell], list[Cell]]:
    """Return one cell for each trained batch size as default; those that never converge apart."""
    converge: list[Cell] = []
    never: list[Cell] = []
    for table in recorded(traces):
        for size, epochs in zip(table.batch_sizes, table.expected_epochs, strict=True):
            cell = steady(with_default(table, size), f"default {size}")
            (converge if np.isfinite(epochs) else never).append(cell)
    return converge, never


def other_weights(traces: Traces) -> dict[str, list[Cell]]:
    """Return the cells with other weights of energy, and with other thresholds."""
    cells = {
        f"eta {eta:g}": [steady(table, f"eta {eta:g}") for table in recorded(traces, eta)]
        for eta in (0.0, 0.25, 1.0)
    }
    for beta in (1.5, 3.0, 5.0):
        name = f"beta {beta:g}"
        cells[name] = [steady(table, name, options={"beta": beta}) for table in recorded(traces)]
    return cells


def made_up(traces: Traces, numbers: Iterable[int]) -> list[Cell]:
    """Return the 12 pairs on synthetic GPUs."""
    return [steady(bent(table, number)) for number in numbers for table in recorded(traces)]


def drifts(traces: Traces) -> list[Cell]:
    """Return jobs whose data drift to where another batch size is best."""
    cells = []
    for gpu in traces.power:
        for ends in _DRIFTS:
            first, then = (
                job_table(traces, gpu, workload_named(name), target_metric=target)
                for name, target in ends
            )
            for kind in DRIFTS:
                scenario = drifting(first, then, kind, DRIFT_NIGHTS)
                name = f"{gpu} {ends[0][0]} {ends[0][1]:g} to {ends[1][0]} {ends[1][1]:g}, {kind}"
                options = {"window": DRIFT_WINDOW}
                cells.append(Cell(name, scenario, DRIFT_NIGHTS, options=options))
    return cells


def overlapping(traces: Traces, *, regular: bool = False) -> list[Cell]:
    """Return jobs of which four overlap on average."""
    cells = []
    for table in recorded(traces):
        scenario = replace(Scenario.steady(table), overlap=4.0, regular=regular)
        cells.append(Cell(f"{table.gpu} {table.workload}", scenario, table.recurrences))
    return cells


def moves(traces: Traces) -> list[tuple[Cell, Cell]]:
    """Return jobs that move to another GPU, each with the same job that starts there.

    They move once, so that all epochs are known; or there and back, so that on the last GPU all
    prices are known as well. Targets are those of the authors' figures.
    """
    paper, others = of_authors(traces)
    found = []
    for cell in (*paper, *others):
        end = cell.table
        workload = workload_named(end.workload)
        for gpu in traces.power:
            if gpu == end.gpu:
                continue
            try:
                start = job_table(traces, gpu, workload, target_metric=end.target_metric)
                once = moving([start, end], [start.recurrences, end.recurrences])
                stays = [end.recurrences, start.recurrences, end.recurrences]
                back = moving([end, start, end], stays)
            except TraceError:
                continue
            for name, scenario in (("once", once), ("and back", back)):
                since = scenario.recurrences - end.recurrences
                label = f"{gpu} to {cell.name}, {name}"
                moved = Cell(label, scenario, end.recurrences, since=since)
                fresh = Scenario.steady(scenario.last, end.recurrences)
                found.append((moved, Cell(f"{cell.name}, fresh", fresh, end.recurrences)))
    return found
