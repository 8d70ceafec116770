"""How programs that run as trials end, and what that means for their trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zeus.monitor import Measurement
from zeus.monitor._measurement import GPU
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import TrialInfo, Verdict
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._gpus import Gpus
from zeus.optimizer.batch_size.running._launch_context import Answer, TrialUse
from zeus.optimizer.batch_size.running._placeholders import SHARES, SIZES, used
from zeus.optimizer.batch_size.running._reporter import Reporter


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        exit_code: As in a shell: 128 + N if signal N ended it.
        signal: Name of that signal, if any.
        interrupted: Whether the end was requested from outside.
        preempted: Whether that was by SIGTERM, as schedulers do before they start a run again.
    """

    exit_code: int
    signal: str | None = None
    interrupted: bool = False
    preempted: bool = False

    def __str__(self) -> str:
        return f"killed by {self.signal}" if self.signal else f"exit code {self.exit_code}"


@dataclass(frozen=True)
class TrialEnd:
    """Result of a trial.

    Attributes:
        trial: Identifier of the trial; empty if server or store could not be reached, and the
            default was run.
        recurrence: Number of the job's recurrence, from 1; 0 if server or store could not be
            reached.
        attempt: Attempt in this recurrence, from 0.
        batch_size: Batch size that it ran with.
        role: Purpose of the trial in a word; `reason` in a sentence.
        outcome: converged, stopped, failed or cancelled; running, if the program was preempted, and
            its trial goes on when it is started again.
        note: Why.
        epochs: Number of reported epochs, with those of earlier starts of the run; 1 for a program
            that is measured from outside.
        time: Seconds; `energy` in joules of all GPUs, `None` if a part could not be measured;
            `cost` in joules.
        metric: The last validation metric, if the program reported one.
        exit_code: Exit code of the program; `signal` that killed it, if any.
        reported: Whether the program reported by itself.
        warning: What the program seems to do wrong with its batch size; empty if nothing.
        final: Whether there must be no further attempt.
    """

    trial: str
    recurrence: int
    attempt: int
    batch_size: int
    role: str
    reason: str
    outcome: str
    note: str
    epochs: int
    time: float
    energy: float | None
    cost: float
    metric: float | None
    exit_code: int
    signal: str | None
    reported: bool
    final: bool
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {name: value for name, value in vars(self).items() if name != "final"}


_NOTHING_REPORTED = (
    "the program ended with exit code 0 but reported no epoch and no metric, so it is unknown "
    "whether it reached the target: let it report by BatchSizeOptimizer or ZeusDataLoader, or give "
    "--trust-exit-code if exit code 0 means that the target was reached"
)


def usage_warning(program: Sequence[str], replicas: int, use: TrialUse | None) -> str:
    """Return what a program seems to do wrong with its batch size, as far as can be known."""
    if not used(program, SIZES) and (use is None or not use.batch_size_read):
        # It cannot be seen whether a program has read its environment.
        return (
            "the batch size may be ignored: there is no {batch_size} in the command, and the "
            "program has not asked for it by BatchSizeOptimizer or ZeusDataLoader (reading "
            "ZEUS_BATCH_SIZE cannot be seen)"
        )
    if use is not None and use.replicas != replicas and used(program, SHARES):
        return (
            f"the command was filled in for {replicas} replicas, but the program has "
            f"{use.replicas}: give --replicas {use.replicas}"
        )
    return ""


class Judge:
    """Classifies a trial by its reports and exit code."""

    def __init__(
        self,
        spec: JobSpec,
        reporter: Reporter,
        end: ProgramEnd,
        use: TrialUse | None,
        *,
        trust_exit_code: bool,
    ) -> None:
        self._spec = spec
        self._reporter = reporter
        self._end = end
        self._use = use
        self._trust = trust_exit_code

    def judged(
        self, answer: Answer | None, measured: Measurement | None, gpus: Gpus
    ) -> dict[str, Any]:
        if answer is not None:
            figures = {
                "epochs": answer.epochs,
                "time": answer.time,
                "energy": answer.energy,
                "cost": answer.cost,
                "metric": answer.metric,
            }
            outcome, note, final = self._reported(answer)
            return {**figures, "outcome": outcome, "note": note, "final": final, "reported": True}
        seconds = 0.0 if measured is None else measured.time
        joules = _gpu_energy(measured) if gpus.known else None
        outcome, note, final = self._silent(seconds, joules)
        most = gpus.max_power
        return {
            "epochs": int(outcome == Outcome.CONVERGED),
            "time": seconds,
            "energy": joules,
            "cost": self._spec.cost(most * seconds if joules is None else joules, seconds, most),
            "metric": None,
            "outcome": outcome,
            "note": note,
            "final": final,
            "reported": False,
        }

    def _reported(self, answer: Answer) -> tuple[str, str, bool]:
        """Return outcome, note and finality of a program that has reported its epochs."""
        if answer.outcome is not None:
            # It has ended by its own reports; if these got lost, it must not stay open.
            self._reporter.end(Outcome.CANCELLED, note=f"the program reports: {answer.reason}")
            return answer.outcome, answer.reason, self._end.interrupted
        if self._preempted:
            return self._left_open()
        if self._end.interrupted or self._end.exit_code:
            return self._cancelled(f"ended after {answer.epochs} epochs by {self._end}")
        note = f"the program ended after {answer.epochs} epochs without reaching the target"
        return self._failed(note)

    def _silent(self, seconds: float, joules: float | None) -> tuple[str, str, bool]:
        """Return outcome, note and finality of a program that has reported nothing."""
        end, spec = self._end, self._spec
        if self._preempted:
            return self._left_open()
        if end.interrupted:
            return self._cancelled(f"ended by {end}")
        if self._use is not None and self._use.refusal:
            return self._cancelled(self._use.refusal)
        earlier = self._reporter.earlier_trials()
        if end.exit_code == 0:
            if not self._trust:
                # It says nothing about the batch size, so nothing may be learned from it.
                return self._cancelled(_NOTHING_REPORTED)
            if any(_reported_by_itself(trial, spec) for trial in earlier):
                return self._cancelled("the program reported nothing, unlike in earlier trials")
            verdict = self._reporter.report(time=seconds, energy=joules, metric=spec.target_metric)
            return _said(verdict, Outcome.CONVERGED, "exit code 0")
        note = f"crashed before the end of its first epoch ({end})"
        if self._use is not None and self._use.out_of_memory:
            note = f"out of memory before the end of its first epoch ({end})"
        size = self._reporter.decision.batch_size
        memory = self._use is not None and self._use.out_of_memory
        works = any(trial.batch_size == size and trial.epochs for trial in earlier)
        if not memory and (works or size == spec.default_batch_size):
            # The cause is something else, which must not count against the batch size.
            return self._cancelled(note)
        return self._failed(note, seconds, joules)

    @property
    def _preempted(self) -> bool:
        """Whether the run is expected to be started again."""
        return self._end.preempted and self._reporter.notes.run is not None

    def _left_open(self) -> tuple[str, str, bool]:
        run = self._reporter.notes.run
        note = f"interrupted by SIGTERM; the trial goes on if run {run!r} is started again"
        return Outcome.RUNNING, note, True

    def _cancelled(self, note: str) -> tuple[str, str, bool]:
        self._reporter.end(Outcome.CANCELLED, note=note)
        return Outcome.CANCELLED, note, True

    def _failed(
        self, note: str, seconds: float = 0.0, joules: float | None = 0.0
    ) -> tuple[str, str, bool]:
        self._reporter.end(Outcome.FAILED, time=seconds, energy=joules, note=note)
        return Outcome.FAILED, note, False


def _said(verdict: Verdict | None, outcome: str, note: str) -> tuple[str, str, bool]:
    if verdict is not None and verdict.outcome is not None:
        outcome, note = verdict.outcome, f"{note}: {verdict.reason}"
    return outcome, note, False


def _gpu_energy(measured: Measurement | None) -> float | None:
    if measured is None:
        return None
    energies = [reading.energy for reading in measured.readings if reading.domain == GPU]
    known = [energy for energy in energies if energy is not None]
    return sum(known) if known and len(known) == len(energies) else None


def _reported_by_itself(trial: TrialInfo, spec: JobSpec) -> bool:
    """Whether a trial's program reported its epochs, instead of being measured from outside."""
    return trial.epochs > 1 or (trial.epochs == 1 and trial.metric != spec.target_metric)
