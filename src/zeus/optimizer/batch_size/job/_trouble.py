"""Why a job needs a person: its latest runs failed, missed the target or have a warning."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from zeus.optimizer._stopping import Outcome, better
from zeus.optimizer.batch_size.job._alike import WARNING
from zeus.optimizer.batch_size.job._spec import JobSpec

_LONGEST = 120  # characters of a run's own note
_MAX_SIZES = 256


@dataclass
class Recent:
    """Runs since the target was last reached.

    Attributes:
        runs: Number of runs, all of which missed it.
        recurrences: Number of recurrences that they belong to; `recurrence` is the latest.
        misses: Number of runs that were stopped or failed; `nights` is the number of recurrences
            with such runs, and `night` the latest of them.
        failed: Number of runs that failed before the end of their first epoch; `expired` and
            `cancelled` likewise.
        sizes: Their batch sizes.
        best: The best metric of any of them; `None` if there was none.
        note: Why the latest one ended, in words.
        unmeasured: Whether the energy of the latest run was not measured.
        warning: What the program of the latest run seems to do wrong; empty if nothing.
    """

    runs: int = 0
    recurrences: int = 0
    recurrence: int = 0
    misses: int = 0
    nights: int = 0
    night: int = 0
    failed: int = 0
    expired: int = 0
    cancelled: int = 0
    sizes: list[int] = field(default_factory=list)
    best: float | None = None
    note: str = ""
    unmeasured: bool = False
    warning: str = ""

    def add(
        self,
        spec: JobSpec,
        *,
        state: str,
        recurrence: int,
        batch_size: int,
        epochs: int,
        best: float | None,
        note: str,
        unmeasured: bool,
    ) -> None:
        """Add a run that has ended; see the attributes of `TrialInfo`."""
        if epochs:
            self.unmeasured = unmeasured
            self.warning = note.partition(WARNING)[2]
        if state == Outcome.CONVERGED:
            self._forget()
            return
        self.runs += 1
        if recurrence > self.recurrence:
            self.recurrences += 1
            self.recurrence = recurrence
        if state in (Outcome.STOPPED, Outcome.FAILED):
            self.misses += 1
            if recurrence > self.night:
                self.nights += 1
                self.night = recurrence
        self.failed += state == Outcome.FAILED and not epochs
        self.expired += state == Outcome.EXPIRED
        self.cancelled += state == Outcome.CANCELLED
        if batch_size not in self.sizes and len(self.sizes) < _MAX_SIZES:
            self.sizes.append(batch_size)
        if best is not None:
            self.best = better(self.best, best, higher_is_better=spec.higher_is_better)
        said = " ".join(note.split())
        self.note = said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"

    def resume(self) -> None:
        """Take out a run that had expired, and goes on."""
        self.expired = max(0, self.expired - 1)
        self.runs = max(0, self.runs - 1)
        if not self.runs:
            self._forget()

    def _forget(self) -> None:
        latest = {"unmeasured": self.unmeasured, "warning": self.warning}
        vars(self).update({**vars(Recent()), **latest})

    def trouble(self, running: Collection[int]) -> str:
        """Say in words what needs a person; empty if nothing does.

        Args:
            running: Recurrences with a running trial, whose outcome is open.
        """
        said = [self.missed(running), self.warning]
        if self.unmeasured:
            said.append("the energy of the latest run was not measured")
        return "; ".join(filter(None, said))

    def missed(self, running: Collection[int] = ()) -> str:
        """Say in words that the target is not reached; empty if it is.

        Args:
            running: Recurrences with a running trial, whose outcome is open.
        """
        if self.recurrences <= (self.recurrence in running):
            return ""
        why = f": {self.note}" if self.note else ""
        if self.cancelled == self.runs:
            # A single one may have been interrupted by a person, who knows.
            return f"the latest {self.runs} runs were cancelled{why}" if self.runs > 1 else ""
        if self.expired + self.cancelled == self.runs:
            which = _latest(self.expired)
            return f"{which} stopped reporting, and {_its(self.expired)} expired"
        if self.failed and self.failed + self.expired + self.cancelled == self.runs:
            return f"{_latest(self.failed)} failed before the end of the first epoch{why}"
        sizes = f"batch size {self.sizes[0]}" if len(self.sizes) == 1 else "any batch size"
        nights = self.nights - (self.night in running)
        where = f"the latest {nights} recurrences" if nights > 1 else "the latest recurrence"
        best = "" if self.best is None else f"; best metric {self.best:.6g}"
        return f"target not reached by {sizes} in {where}{best}"


def _latest(runs: int) -> str:
    return "the latest run" if runs == 1 else f"the latest {runs} runs"


def _its(runs: int) -> str:
    return "its lease" if runs == 1 else "their leases"
