"""What the steps of a running job show: whether plans keep their promise, and who straggles.

Ranks report the time and energy of their steps under the plan, and of reference steps at the
highest clocks. All of it is in memory only: after a restart it is reported again within seconds.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from zeus._student import COVERAGE, student_factor
from zeus.optimizer.pipeline_frequency.job._messages import RankPlace, StepReport, StepSums

_FEWEST = 3  # steps under a plan before anything follows from their time
_FEWEST_JUDGED = 5
_SLOWER = 0.015  # relative: less than that is not noticed
_SIGMAS = 4.0  # judged again after every step, for days
_REMEMBERED = 8  # reports of a rank that stragglers are found from
_LATEST = 3  # of these: the median of so many is robust, and soon shows what has changed
_JUMP = 0.04  # relative: by how much the latest must differ from all to count alone
_SAME_PLAN = 0.02  # relative: plans of about the same time are compared as one


@dataclass(frozen=True)
class Saved:
    """What a plan saves, as measured.

    Attributes:
        plan: Time (s) and energy (J) of a step under the plan, over all ranks that reported.
        reference: The same of reference steps at the highest clocks.
        steps: Number of steps under the plan.
        references: Number of reference steps.
    """

    plan: tuple[float, float]
    reference: tuple[float, float]
    steps: int
    references: int

    @property
    def energy(self) -> float:
        """Share of the energy that is saved."""
        return 1 - self.plan[1] / self.reference[1]

    @property
    def slowdown(self) -> float:
        """Share of time by which steps take longer."""
        return self.plan[0] / self.reference[0] - 1


class _Steps(NamedTuple):
    """Steps of a rank between two of its reports."""

    version: int  # of the plan
    steps: int
    span: float  # seconds, in total


class Supervision:
    """Reports of all ranks of a job."""

    def __init__(self) -> None:
        self._latest: dict[int, deque[_Steps]] = {}
        self._planned: dict[int, Mapping[int, float]] = {}  # by version: seconds by pipeline
        self._reports: dict[int, tuple[RankPlace, StepReport]] = {}
        self._void: dict[int, StepSums] = {}  # reference steps that do not count any more
        self._failures = 0

    def take(self, seat: RankPlace, report: StepReport) -> None:
        """Take the latest report of a rank."""
        self._remember(seat.rank, report)
        void = self._void.get(seat.rank)
        if void is not None:
            report = replace(report, reference=report.reference.minus(void))
        self._reports[seat.rank] = seat, report

    def _remember(self, rank: int, report: StepReport) -> None:
        """Remember the steps since the rank's report before."""
        before = self._reports.get(rank)
        plan = report.plan
        latest = self._latest.setdefault(rank, deque(maxlen=_REMEMBERED))
        if before is not None and before[1].version == report.version:
            if plan.steps < before[1].plan.steps:
                latest.clear()  # it counts again from the start
            else:
                plan = plan.minus(before[1].plan)
        if plan.steps:
            latest.append(_Steps(report.version, plan.steps, plan.span))

    def forget(self, rank: int) -> None:
        """Drop the report of a rank, which has started again."""
        self._latest.pop(rank, None)
        self._reports.pop(rank, None)
        self._void.pop(rank, None)

    def drift(self) -> None:
        """Drop the reference steps so far: instructions take another time than they did then."""
        for rank, (seat, report) in self._reports.items():
            self._void[rank] = self._void.get(rank, StepSums()).joined(report.reference)
            self._reports[rank] = seat, replace(report, reference=StepSums())

    def step_time(self, version: int) -> float | None:
        """Return seconds of a step under a version of the plan; `None` until some are known."""
        times = [
            time
            for _, report in self._current(version)
            if report.plan.steps >= _FEWEST and (time := report.plan.time) is not None
        ]
        return statistics.median(times) if times else None

    def saved(self, version: int) -> Saved | None:
        """Return what the plan saves; `None` until both kinds of steps are measured."""
        plans: list[StepSums] = []
        references: list[StepSums] = []
        for _, report in self._current(version):
            both = (report.plan, report.reference)
            if all(each.steps and each.measured for each in both):
                plans.append(report.plan)
                references.append(report.reference)
        if not plans:
            return None
        return Saved(
            _mean(plans),
            _mean(references),
            min(each.steps for each in plans),
            min(each.steps for each in references),
        )

    def slower_than(self, promised: float, version: int, deviation: float = 0.0) -> float | None:
        """Return how much longer recent steps take than reference steps, if that is too long.

        After each time, four times as many steps under a plan must have passed before the next.

        Args:
            promised: The same ratio by the plan, 1 or more.
            version: Version of the plan.
            deviation: Relative standard deviation of the time of a step, as expected: few steps
                may be closer to each other by chance.
        """
        ratios = []
        noise = 0.0
        for _, report in self._current(version):
            recent, reference = report.recent, report.reference
            patience = _FEWEST_JUDGED * 4**self._failures
            if report.plan.steps < patience or recent.steps < _FEWEST_JUDGED or not reference.steps:
                continue
            ratios.append((recent.time or 0.0) / (reference.time or math.inf))
            relative = _deviation(report.plan) / (recent.time or math.inf)
            # A deviation of few steps may be far too small. Several standard deviations become
            # more by about the square of what two do.
            relative *= (student_factor(report.plan.steps - 1) / COVERAGE) ** 2
            relative = max(relative, deviation)
            noise = max(noise, relative * math.sqrt(1 / recent.steps + 1 / max(reference.steps, 1)))
        if not ratios:
            return None
        ratio = statistics.median(ratios)
        if ratio <= promised * (1 + max(_SLOWER, _SIGMAS * noise)):
            return None
        self._failures += 1
        return ratio

    def slowdowns(self, planned: Callable[[int], float], version: int) -> Mapping[int, float]:
        """Return by which factor each pipeline is slower than the fastest of its peers.

        Each is compared with its own plan, so that one that is slow on purpose is not slow. Steps
        under earlier plans count where these were as fast, as ranks that drift cause several plans
        in a row. Empty until all ranks have reported some steps.

        Args:
            planned: Seconds of an iteration by the plan that a pipeline follows.
            version: Version of the plan.
        """
        pipelines = {seat.dp_rank for seat, _ in self._reports.values()}
        if len(pipelines) < 2:
            return {}
        self._planned[version] = {pipeline: planned(pipeline) for pipeline in pipelines}
        for old in sorted(self._planned)[: -2 * _REMEMBERED]:
            del self._planned[old]
        ratios: dict[int, tuple[float, float]] = {}
        for seat, _ in self._reports.values():
            found = self._ratios(seat, version)
            if found is None:
                # Ranks do not begin a plan at the same step: alone, a pipeline is as fast as its
                # peers.
                return {}
            known = ratios.get(seat.dp_rank, found)
            ratios[seat.dp_rank] = max(found[0], known[0]), max(found[1], known[1])
        least = [min(each[which] for each in ratios.values()) for which in (0, 1)]
        if min(least) <= 0:
            return {}  # reports of steps without a time
        slow = {}
        for pipeline, each in ratios.items():
            latest, mean = (ratio / by for ratio, by in zip(each, least, strict=True))
            slow[pipeline] = latest if abs(latest / mean - 1) > _JUMP else mean
        return slow

    def _ratios(self, seat: RankPlace, version: int) -> tuple[float, float] | None:
        """Return a rank's spans against its plans: of the latest reports, and of all remembered.

        `None` if there are too few under plans like the one of this version.
        """
        now = self._planned[version]
        used: list[tuple[int, float]] = []  # steps and ratio, the latest first
        for each in reversed(self._latest.get(seat.rank, ())):
            then = self._planned.get(each.version)
            if then is None or not _alike(then, now):
                break
            used.append((each.steps, each.span / each.steps / then[seat.dp_rank]))
        steps = sum(count for count, _ in used)
        if steps < _FEWEST:
            return None
        mean = math.fsum(count * ratio for count, ratio in used) / steps
        return statistics.median(ratio for _, ratio in used[:_LATEST]), mean

    def _current(self, version: int) -> list[tuple[RankPlace, StepReport]]:
        return [each for each in self._reports.values() if each[1].version == version]


def _alike(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Return whether plans of two versions take about the same time in all pipelines."""
    return one.keys() == other.keys() and all(
        abs(one[pipeline] / other[pipeline] - 1) <= _SAME_PLAN for pipeline in one
    )


def _mean(sums: list[StepSums]) -> tuple[float, float]:
    """Return mean seconds of a step, and joules over all ranks."""
    times = [each.time for each in sums if each.time is not None]
    return math.fsum(times) / len(times), math.fsum(each.energy or 0.0 for each in sums)


def _deviation(sums: StepSums) -> float:
    mean = sums.time or 0.0
    if sums.steps < 2:
        return mean
    variance = (sums.squares - sums.steps * mean * mean) / (sums.steps - 1)
    return math.sqrt(max(variance, 0.0))
