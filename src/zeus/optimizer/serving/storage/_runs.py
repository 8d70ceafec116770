"""The runs of a service: the latest one as it is reported, and sums of those before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zeus.optimizer.serving.api._messages import RunState, ServiceStart

_MAX_PAST = 50  # runs of a service, the latest


@dataclass(frozen=True)
class Run:
    """From the begin of a process that controls a service to its end.

    Attributes:
        start: What it began with.
        began: When, in seconds since 1970.
        heard: When the latest message of it came.
        ended: When it said that it ends; `None` if it has not.
        state: Sums, and what is so now.
    """

    start: ServiceStart
    began: float
    heard: float
    ended: float | None = None
    state: RunState = field(default_factory=RunState)

    @property
    def bounds_kept(self) -> tuple[int, int]:
        """The number of bounds that had requests, and of those that were kept over the run."""
        found = [
            each.above <= asked.bound().budget
            for each, asked in zip(self.state.bounds, self.start.bounds, strict=False)
            if each.requests > 0
        ]
        return len(found), sum(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "start": self.start.to_dict(),
            "began": self.began,
            "heard": self.heard,
            "ended": self.ended,
            "state": self.state.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Run:
        """Return the run of a JSON form; the inverse of `to_dict`."""
        return cls(
            ServiceStart.from_dict(record["start"]),
            float(record["began"]),
            float(record["heard"]),
            None if record["ended"] is None else float(record["ended"]),
            RunState.from_dict(record["state"]),
        )


@dataclass(frozen=True)
class Totals:
    """Energy and tokens of runs that are not listed any more.

    Attributes:
        runs: Their number.
        energy: Joules.
        tokens: Generated tokens.
    """

    runs: int = 0
    energy: float = 0.0
    tokens: float = 0.0

    def added(self, run: Run) -> Totals:
        """Return the totals with a run."""
        state = run.state
        return Totals(
            self.runs + 1,
            self.energy + (state.energy or 0.0),
            self.tokens + state.generated_tokens,
        )


@dataclass(frozen=True)
class Runs:
    """All runs of a service.

    Attributes:
        latest: The latest.
        past: Those before, the latest first.
        older: Those before these.
    """

    latest: Run
    past: tuple[Run, ...] = ()
    older: Totals = field(default_factory=Totals)

    def followed(self, run: Run) -> Runs:
        """Return the runs with another one."""
        past = (self.latest, *self.past)
        older = self.older
        for dropped in past[_MAX_PAST:]:
            older = older.added(dropped)
        return Runs(run, past[:_MAX_PAST], older)

    def reported(self, at: float, state: RunState) -> Runs:
        """Return the runs after a report; one that comes after the end begins again."""
        return replace(self, latest=replace(self.latest, heard=at, ended=None, state=state))

    def ended(self, at: float) -> Runs:
        """Return the runs after the end of the latest."""
        return replace(self, latest=replace(self.latest, heard=at, ended=at))

    @property
    def totals(self) -> Totals:
        """Energy and tokens of all of them."""
        totals = self.older
        for run in (self.latest, *self.past):
            totals = totals.added(run)
        return totals

    def past_to_dict(self) -> dict[str, Any]:
        """Return the JSON form of all but the latest."""
        return {"past": [each.to_dict() for each in self.past], "older": asdict(self.older)}

    @classmethod
    def from_dicts(cls, latest: Mapping[str, Any], before: Mapping[str, Any]) -> Runs:
        """Return the runs of the JSON forms of the latest, and of those before."""
        return cls(
            Run.from_dict(latest),
            tuple(map(Run.from_dict, before["past"])),
            Totals(**before["older"]),
        )
