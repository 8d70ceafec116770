"""Is our policy for recurring jobs better than the paper's? The protocol, and its answer as JSON.

The baseline is the program that the authors of the Zeus paper published: their own figures where
there are any (`replay_authors.py`), and elsewhere the policy `paper`, which reproduces them. Batch
sizes that were never trained are not offered. Both policies meet the same recorded runs, with seeds
from 501 on. The GPUs share one training trace, so intervals are over workloads: 95 % by Student's t
of the mean logarithm.

What was developed on what: the shape of the policy was found by looking at all six recorded
workloads on both GPUs and at their other targets, with seeds below 20,000, and at made-up GPUs 0,
1, 2, 5 to 8 and, with fewer batch sizes, 20 to 23; its assumptions (`policies/_assumptions.py`) by
some 600 trials on those. So no workload here is unseen, nor are the seeds; what is unseen are the
made-up GPUs (40 to 43, see `replay_gpus.py`).

Programs measure for some seconds what an epoch costs at every batch size, before their first run on
a GPU model, as `BatchSizeOptimizer.measure_batch_sizes` lets them; it is paid for. The rows
`unmeasured` are without.

A night is a recurrence. "Too expensive" is a choice whose expected cost on that night is more than
5 % above the oracle's. "Behind" is what costs more, from the first night on, than the default at
full power, or than the default at its best power limit, on the same recorded runs.

Four jobs overlapping on average: recurrences are submitted whether or not earlier ones have ended
("a later job starts before the completion of an earlier job", section 4.4 of the paper, and the
cluster trace of section 6.3), such that there would be four at a time if all were run as the
default. Nobody decides when to submit, so a policy that makes runs shorter has fewer at a time.
Submissions at random (a Poisson process) are what "on average" says, and are reported first. What
the first epoch of a new batch size costs is known to all from its end on, as it is in production,
whichever the policy.

    python benchmarks/replay_policies.py [--quick] [--only ROW,ROW] [--traces DIR]

In Python, with `benchmarks` on the path, for a policy that is being developed:

    protocol = Protocol(load_traces(TRACES / "nsdi23"), policy=MyPolicy())
    for row in protocol.table_1(): print(row["case"], row["values"], row["worst"])
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import replay_cells
from harness import QUICK, Bench, say
from replay_cells import Cell
from replay_measures import PowerLimitOnly, Runs, compared, replayed
from rows import Row, row
from tools import OURS
from zeus.optimizer.batch_size.policies._base import Policy
from zeus.optimizer.batch_size.policies._zeus import ZeusPolicy
from zeus.replay._jobs import replay
from zeus.replay._scenarios import Scenario
from zeus.replay._traces import Traces, load_traces

TRACES = Path(
    os.environ.get("ZEUS_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces")
)
FIRST_SEED = 501
MADE_UP = (40, 41, 42, 43)
_AGAINST = "cumulative regret against the authors' figures"
_BESIDE = "cumulative regret against the policy `paper`"
_REPAIRED = "cumulative regret against the policy `paper-repaired`"


class Unmeasured(ZeusPolicy):
    """Our policy where programs do not measure their batch sizes before the first trial."""

    measures_sizes = False


class Protocol:
    """The rows of the comparison, each a method that yields them.

    Args:
        traces: Recorded traces, with the authors' figures beside them.
        seeds: Number of jobs in each cell.
        policy: Name of a policy, or a policy object that is being developed.
    """

    def __init__(self, traces: Traces, seeds: int = 50, policy: str | Policy = "zeus") -> None:
        self.traces, self.policy = traces, policy
        self.seeds = range(FIRST_SEED, FIRST_SEED + seeds)
        self._cells: dict[str, list[Cell]] = {}
        self._runs: dict[tuple[str, str], list[Runs]] = {}

    # --- cells and runs, once each ----------------------------------------------------------------

    def cells(self, name: str) -> list[Cell]:
        """Return cells by name: those of `GROUPS`, of other weights, or overlapping ones."""
        if name not in self._cells:
            self._cells |= _CELLS[name](self.traces)
        return self._cells[name]

    def runs(self, name: str, policy: str | Policy | None = None) -> list[Runs]:
        """Replay the cells of that name; by default with the policy that is measured."""
        chosen = self.policy if policy is None else policy
        label = chosen if isinstance(chosen, str) else f"{type(chosen).__name__} {id(chosen)}"
        if (name, label) not in self._runs:
            say(f"replay: {name}, {label.split()[0]}")
            self._runs[name, label] = replayed(self.cells(name), chosen, self.seeds)
        return self._runs[name, label]

    def _against(  # noqa: PLR0917
        self,
        measure: str,
        name: str,
        rival: str,
        target: float | None,
        worst: float | None = None,
        instead: Policy | None = None,
    ) -> Iterator[Row]:
        """Yield the geometric mean over cells, and the worst cell."""
        cells = self.cells(name)
        ours = [each.regret for each in self.runs(name, instead)]
        if rival == "authors":
            theirs = [cell.authors or 0.0 for cell in cells]
        else:
            theirs = [each.regret for each in self.runs(name, rival)]
        result = compared(ours, theirs, cells)
        yield row(
            "replay", measure, name, "ratio", {OURS: result["geometric_mean"]}, target=target,
            **result,
        )  # fmt: skip
        if worst is not None:
            yield row(
                "replay", measure, f"{name}, worst cell", "ratio", {OURS: result["worst"]},
                target=worst, cell=result["cells"][0]["cell"], worse=result["worse"],
            )  # fmt: skip

    # --- the rows ---------------------------------------------------------------------------------

    def faithful(self) -> Iterator[Row]:
        """The policy `paper` against the authors' own program."""
        for name in ("Table 1", "other targets"):
            cells = self.cells(name)
            ours = [each.regret for each in self.runs(name, "paper")]
            result = compared(ours, [cell.authors or 0.0 for cell in cells], cells)
            yield row(
                "replay", "`paper` against the authors' program", name, "ratio of regrets",
                {OURS: result["geometric_mean"]}, **result,
            )  # fmt: skip

    def table_1(self) -> Iterator[Row]:
        """The 12 pairs of Table 1."""
        yield from self._against(_AGAINST, "Table 1", "authors", 0.24, 0.8)

    def other_targets(self) -> Iterator[Row]:
        """The other targets of the authors' figures."""
        yield from self._against(_AGAINST, "other targets", "authors", 0.40, 1.0)

    def defaults(self) -> Iterator[Row]:
        """Every trained batch size as the default.

        Where the default never reaches the target the authors' program ends with an error. There,
        the repaired one is the baseline.
        """
        yield from self._against(_BESIDE, "every default", "paper", 0.30, 1.0)
        yield from self._against(_REPAIRED, "defaults that never converge", "paper-repaired", None)

    def unmeasured(self) -> Iterator[Row]:
        """The same for programs that do not measure their batch sizes on the first night."""
        policy = Unmeasured()
        for name, rival in zip(_STEADY, ("authors", "authors", "paper"), strict=True):
            measure = f"{_AGAINST if rival == 'authors' else _BESIDE}, sizes not measured"
            yield from self._against(measure, name, rival, None, instead=policy)

    def weights(self) -> Iterator[Row]:
        """Other weights of energy, and other thresholds."""
        for name in _WEIGHTS:
            yield from self._against(_BESIDE, name, "paper", 0.28, 1.0)

    def too_expensive(self) -> Iterator[Row]:
        """Nights after the first 100 on which the choice is too expensive, in any cell above."""
        for name in (*_STEADY, *_WEIGHTS):
            for policy in (None, "paper"):
                runs = self.runs(name, policy)
                worst = sorted(runs, key=lambda each: -each.too_expensive)
                yield row(
                    "replay", f"too expensive after 100 nights, {policy or 'ours'}, worst cell",
                    name, "fraction", {OURS: worst[0].too_expensive},
                    target=0.02 if policy is None else None,
                    mean=float(np.mean([each.too_expensive for each in runs])),
                    settled_wrong=max(each.settled_wrong for each in runs),
                    cells=[
                        {"cell": each.cell.name, "nights": each.too_expensive,
                         "settled_wrong": each.settled_wrong}
                        for each in worst if each.too_expensive > 0.02
                    ],
                )  # fmt: skip

    def drift(self) -> Iterator[Row]:
        """Data that drift to where another batch size is best; windows of ten observations."""
        for rival in ("paper", "paper-repaired"):
            measure = f"drift: cumulative regret against the windowed policy `{rival}`"
            yield from self._against(measure, "drift", rival, 0.2, 1.0)
        for policy in (None, "paper", "paper-repaired"):
            runs = self.runs("drift", policy)
            yield row(
                "replay", "drift: recurrences that never reach the target", policy or "ours",
                "count", {OURS: sum(each.unreached for each in runs)},
                target=0 if policy is None else None, of=sum(each.cost.size for each in runs),
            )  # fmt: skip

    def overlap(self) -> Iterator[Row]:
        """Four submissions that overlap on average.

        The authors' program does not explore while a job runs. Where the default is the best, that
        is luck which no policy that explores can have; so the worst cell is that of the repaired.
        """
        for name in ("four overlapping at random times", "four overlapping at equal intervals"):
            yield from self._against(_BESIDE, name, "paper", 0.2)
            yield from self._against(_REPAIRED, name, "paper-repaired", 0.2, 1.0)

    def moves(self) -> Iterator[Row]:
        """Moves between GPUs with everything that is known, against starting from scratch."""
        runs = self.runs("moves")
        moved, fresh = runs[::2], runs[1::2]
        result = compared(
            [each.regret for each in moved],
            [each.regret for each in fresh],
            [each.cell for each in moved],
        )
        yield row(
            "replay", "regret after a move against starting there from scratch", "worst cell",
            "ratio", {OURS: result["worst"]}, target=1.0, **result,
        )  # fmt: skip

    def converged(self) -> Iterator[Row]:
        """Expected cost of what a job has converged to: the last run, and the last five."""
        for policy in (None, "paper"):
            runs = self.runs("Table 1", policy)
            for what, last in (("last five nights", 5), ("last night", 1)):
                costs = np.array(
                    [
                        each.expected[:, each.cell.recurrences - last : each.cell.recurrences]
                        for each in runs
                    ]
                ).mean(axis=2)
                for how, value, target in (
                    ("mean", costs.mean(), None),
                    ("worst seed", costs.max(), 1.05),
                ):
                    yield row(
                        "replay", f"converged cost against the oracle's, {policy or 'ours'}",
                        f"{what}, {how}", "ratio", {OURS: float(value)},
                        target=None if policy else target, above=int((costs > 1.05).sum()),
                        of=costs.size, worst=runs[int(costs.max(axis=1).argmax())].cell.name,
                    )  # fmt: skip

    def behind(self) -> Iterator[Row]:
        """Pairs that are behind the default, or behind its best power limit."""
        for name in ("Table 1", "other targets"):
            ours = self.runs(name)
            for rival, what, nights, target in (
                ("default", "the default", 10, 1),
                (PowerLimitOnly(), "power limit only", 100, 0),
            ):
                theirs = replayed(self.cells(name), rival, self.seeds)
                ratios = {
                    mine.cell.name: float(
                        mine.cost[:, :nights].sum() / other.cost[:, :nights].sum()
                    )
                    for mine, other in zip(ours, theirs, strict=True)
                }
                late = {cell: ratio for cell, ratio in ratios.items() if ratio > 1}
                yield row(
                    "replay", f"pairs behind {what} over the first {nights} nights", name,
                    "count", {OURS: len(late)}, target=target, of=len(ratios), behind=late,
                    cost_ratios=ratios,
                )  # fmt: skip

    def made_up(self) -> Iterator[Row]:
        """Synthetic GPUs that nobody has seen."""
        yield from self._against(_BESIDE, "made-up GPUs", "paper", 0.30, 1.0)

    def speed(self) -> Iterator[Row]:
        """Recurrences per second of one core."""
        tables = replay_cells.recorded(self.traces)
        for policy in (self.policy, "paper", "grid", "default"):
            name, instead = (policy, None) if isinstance(policy, str) else ("zeus", policy)
            scenarios = [Scenario.steady(table) for table in tables]
            seeds = range(2 * len(self.seeds))
            jobs = [job for each in scenarios for job in each.jobs(name, seeds)]
            began = time.process_time()
            result = replay(jobs, policy=instead)
            seconds = time.process_time() - began
            yield row(
                "replay", "recurrences per core-second", name, "1/s",
                {OURS: int(result.recurrences.sum()) / seconds}, target=100_000, at_least=True,
            )  # fmt: skip


def _authors(traces: Traces) -> dict[str, list[Cell]]:
    return dict(zip(("Table 1", "other targets"), replay_cells.of_authors(traces), strict=True))


def _defaults(traces: Traces) -> dict[str, list[Cell]]:
    names = ("every default", "defaults that never converge")
    return dict(zip(names, replay_cells.every_default(traces), strict=True))


def _overlaps(traces: Traces) -> dict[str, list[Cell]]:
    return {
        "four overlapping at random times": replay_cells.overlapping(traces),
        "four overlapping at equal intervals": replay_cells.overlapping(traces, regular=True),
    }


_STEADY = ("Table 1", "other targets", "every default")
_WEIGHTS = ("eta 0", "eta 0.25", "eta 1", "beta 1.5", "beta 3", "beta 5")
_CELLS: dict[str, Callable[[Traces], dict[str, list[Cell]]]] = {
    **dict.fromkeys(("Table 1", "other targets"), _authors),
    **dict.fromkeys(("every default", "defaults that never converge"), _defaults),
    **dict.fromkeys(_WEIGHTS, replay_cells.other_weights),
    "made-up GPUs": lambda traces: {"made-up GPUs": replay_cells.made_up(traces, MADE_UP)},
    "drift": lambda traces: {"drift": replay_cells.drifts(traces)},
    **dict.fromkeys(
        ("four overlapping at random times", "four overlapping at equal intervals"), _overlaps
    ),
    "moves": lambda traces: {
        "moves": [cell for pair in replay_cells.moves(traces) for cell in pair]
    },
}
ROWS: dict[str, Callable[[Protocol], Iterator[Row]]] = {
    "faithful": Protocol.faithful,
    "table_1": Protocol.table_1,
    "other_targets": Protocol.other_targets,
    "defaults": Protocol.defaults,
    "unmeasured": Protocol.unmeasured,
    "weights": Protocol.weights,
    "too_expensive": Protocol.too_expensive,
    "drift": Protocol.drift,
    "overlap": Protocol.overlap,
    "moves": Protocol.moves,
    "converged": Protocol.converged,
    "behind": Protocol.behind,
    "made_up": Protocol.made_up,
    "speed": Protocol.speed,
}


def rows(protocol: Protocol, only: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of the whole protocol, or only some."""
    for name in ROWS if only is None else only:
        yield from ROWS[name](protocol)


def bench_replay(bench: Bench) -> Iterator[Row]:
    """Policies for recurring jobs on recorded traces; ours only."""
    quick = bench.effort.imports <= QUICK.imports
    yield from rows(Protocol(load_traces(TRACES / "nsdi23"), 8 if quick else 50))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds; less exact")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="ROW,ROW",
                        help=f"of {', '.join(ROWS)}")  # fmt: skip
    parser.add_argument("--policy", default="zeus", help="a policy by name (zeus)")
    parser.add_argument("--brief", action="store_true", help="one line for each row")
    parser.add_argument("--traces", type=Path, default=TRACES / "nsdi23", metavar="DIR")
    chosen = parser.parse_args()
    protocol = Protocol(load_traces(chosen.traces), 8 if chosen.quick else 50, chosen.policy)
    if chosen.brief:
        for each in rows(protocol, chosen.only):
            value, target = each["values"][OURS], each["target"]
            print(f"{value:12.4g} {'' if target is None else target:>8} "
                  f"{'' if each['met'] is None else 'met' if each['met'] else 'MISSED':6} "
                  f"{each['measure']}: {each['case']}", flush=True)  # fmt: skip
    else:
        found = list(rows(protocol, chosen.only))
        print(json.dumps(found, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
