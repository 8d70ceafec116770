"""The history of a job: its steps by plan and over time, and the energy of all of them.

Ranks report sums of their steps again and again, so what is missed between two reports is in the
next one. The JSON form is bounded, however long the job runs: past plans are kept as one record
each, and the older the points over time, the fewer there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

from zeus.optimizer.pipeline_frequency.job._messages import StepReport, StepSums
from zeus.optimizer.pipeline_frequency.storage._step_series import StepPoint, StepSeries

_MAX_PLANS = 100  # of a job, the latest
_OPEN = 2  # plans of which reports may still come; ranks do not begin a plan at the same step


@dataclass(frozen=True)
class PlanPeriod:
    """Steps of a job under one version of what its ranks do.

    Attributes:
        version: The version.
        since: When the first of its steps were reported, in seconds since 1970.
        planned: Expected seconds and joules of an iteration of all pipelines; `None` if unknown.
        steps: Number of steps, of the rank with the most.
        time: Mean seconds of a step, over ranks.
        ranks: Number of ranks with a measured energy.
        energy: Mean joules of a step, of these ranks together; `None` without any.
    """

    version: int
    since: float
    planned: tuple[float, float] | None
    steps: int
    time: float
    ranks: int
    energy: float | None


@dataclass(frozen=True)
class EnergyUse:
    """Energy of the measured steps of a job: under plans, for reference, and while exploring.

    Steps before clocks are explored, or while the rank waits for a plan, are not among them.

    Attributes:
        since: When the first were reported, in seconds since 1970.
        joules: Energy of all ranks.
        steps: Number of measured steps, of the rank with the most under each plan.
    """

    since: float
    joules: float
    steps: int


@dataclass(frozen=True)
class History:
    """The history of a job.

    Attributes:
        periods: Steps by plan, the latest first.
        energy: Energy of all measured steps; `None` if there are none.
        points: Step time and energy over time.
    """

    periods: Sequence[PlanPeriod] = ()
    energy: EnergyUse | None = None
    points: Sequence[StepPoint] = ()


class RankReport(NamedTuple):
    """A report of steps.

    Attributes:
        rank: The rank.
        session: Identifies its process; sums of another one begin at 0.
        report: The report.
        at: When it came, in seconds since 1970.
    """

    rank: int
    session: str
    report: StepReport
    at: float


@dataclass
class _Sum:
    """Sums that a rank reports again and again, and that begin at 0 when it restarts."""

    past: StepSums = field(default_factory=StepSums)
    latest: StepSums = field(default_factory=StepSums)
    session: str = ""

    def take(self, session: str, sums: StepSums) -> StepSums:
        """Take a report, and return what it adds; nothing if it is older than the latest."""
        known = self.latest
        if session != self.session:
            self.past, known = self.past.joined(known), StepSums()
        elif sums.steps < known.steps or sums.measured < known.measured:
            return StepSums()
        self.latest, self.session = sums, session
        return sums.minus(known)

    @property
    def total(self) -> StepSums:
        return self.past.joined(self.latest)

    def to_list(self) -> list[Any]:
        return [astuple(self.past), astuple(self.latest), self.session]

    @classmethod
    def from_list(cls, row: Sequence[Any]) -> _Sum:
        past, latest, session = row
        return cls(StepSums(*past), StepSums(*latest), session)


@dataclass
class _Period:
    since: float
    planned: tuple[float, float] | None = None
    ranks: dict[int, _Sum] = field(default_factory=dict)


@dataclass
class _Total:
    """Measured steps, of the rank with the most, and the energy of all ranks."""

    steps: int = 0
    joules: float = 0.0

    def add(self, sums: Iterable[_Sum]) -> None:
        totals = [each.total for each in sums]
        self.steps += max((each.measured for each in totals), default=0)
        self.joules += math.fsum(each.joules for each in totals)


class PlanHistory:
    """Collects the history of one job."""

    def __init__(self) -> None:
        self._open: dict[int, _Period] = {}
        self._closed: dict[int, PlanPeriod] = {}
        self._past = _Total()  # of plans that are closed
        self._apart: dict[str, dict[int, _Sum]] = {"reference": {}, "explored": {}}
        self._series = StepSeries()
        self._since: float | None = None

    def take(self, reported: RankReport) -> None:
        """Take the latest report of a rank."""
        rank, session, report, at = reported
        self._since = at if self._since is None else self._since
        for name, ranks in self._apart.items():
            ranks.setdefault(rank, _Sum()).take(session, getattr(report, name))
        if not report.plan.steps:
            return
        version = report.version
        if version not in self._open:
            if version in self._closed or version < min(self._open, default=0):
                return  # it comes too late
            self._open[version] = _Period(at)
            while len(self._open) > _OPEN:
                self._close(min(self._open))
        added = self._open[version].ranks.setdefault(rank, _Sum()).take(session, report.plan)
        self._series.add(rank, version, added, at)

    def expect(self, version: int, time: float, energy: float) -> None:
        """Set what the plan of a version expects of an iteration, in seconds and joules."""
        period = self._open.get(version)
        if period is not None and period.planned is None:
            period.planned = time, energy

    def summary(self) -> History:
        """Return the history so far."""
        periods = {**self._closed, **{n: _summed(n, each) for n, each in self._open.items()}}
        latest = tuple(periods[version] for version in sorted(periods, reverse=True))
        return History(latest[:_MAX_PLANS], self._energy(), tuple(self._series.points()))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "since": self._since,
            "past": astuple(self._past),
            "closed": [astuple(each) for each in self._closed.values()],
            "open": [
                [version, each.since, each.planned, _rows(each.ranks)]
                for version, each in self._open.items()
            ],
            **{name: _rows(ranks) for name, ranks in self._apart.items()},
            "points": self._series.to_list(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> PlanHistory:
        """Return the history from its JSON form; the inverse of `to_dict`.

        Raises:
            ValueError: If it is not one, or a `TypeError` or `KeyError`.
        """
        found = cls()
        found._since = record["since"]
        found._past = _Total(*record["past"])
        for version, since, planned, *rest in record["closed"]:
            found._closed[version] = PlanPeriod(version, since, _pair(planned), *rest)
        for version, since, planned, rows in record["open"]:
            found._open[version] = _Period(since, _pair(planned), _ranks(rows))
        found._apart = {name: _ranks(record[name]) for name in found._apart}
        found._series = StepSeries.from_list(record["points"])
        return found

    def _energy(self) -> EnergyUse | None:
        total = _Total(self._past.steps, self._past.joules)
        for ranks in (*self._apart.values(), *(each.ranks for each in self._open.values())):
            total.add(ranks.values())
        return EnergyUse(self._since or 0.0, total.joules, total.steps) if total.steps else None

    def _close(self, version: int) -> None:
        period = self._open.pop(version)
        self._past.add(period.ranks.values())
        self._closed[version] = _summed(version, period)
        while len(self._closed) > _MAX_PLANS:
            del self._closed[min(self._closed)]


def _rows(ranks: Mapping[int, _Sum]) -> list[Any]:
    return [[rank, each.to_list()] for rank, each in ranks.items()]


def _ranks(rows: Sequence[Any]) -> dict[int, _Sum]:
    return {int(rank): _Sum.from_list(row) for rank, row in rows}


def _pair(planned: Sequence[float] | None) -> tuple[float, float] | None:
    return None if planned is None else (planned[0], planned[1])


def _summed(version: int, period: _Period) -> PlanPeriod:
    sums = [each.total for each in period.ranks.values()]
    times = [each.time for each in sums if each.time is not None]
    energies = [each.energy for each in sums if each.energy is not None]
    return PlanPeriod(
        version,
        period.since,
        period.planned,
        max(each.steps for each in sums),
        math.fsum(times) / len(times),
        len(energies),
        math.fsum(energies) if energies else None,
    )
