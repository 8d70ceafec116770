"""Recurrences of a job as programs that are started, monitored and classified from outside.

A trial is one start of the program. One that is stopped early, or does not reach the target, is
retried with another batch size (section 4.4 of the paper), until the target is reached or there
were too many attempts. The documentation of `zeus run` says what a program must do.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.errors import RunError
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor._measurement import GPU
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Decision, TrialInfo, Verdict
from zeus.optimizer.batch_size.job._share import can_share, nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._gpus import Gpus
from zeus.optimizer.batch_size.running._launch_context import Answer, LaunchContext, TrialUse
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._placeholders import (
    SHARES,
    SIZES,
    check_placeholders,
    filled,
    used,
    values_of,
)
from zeus.optimizer.batch_size.running._reporter import Reporter
from zeus.optimizer.batch_size.running._run_report import RunReport


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        exit_code: As in a shell: 128 + N if signal N ended it.
        signal: Name of that signal, if any.
        interrupted: Whether the end was requested from outside.
    """

    exit_code: int
    signal: str | None = None
    interrupted: bool = False

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
        outcome: converged, stopped, failed or cancelled.
        note: Why.
        epochs: Number of reported epochs; 1 for a program that is measured from outside.
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


class Launcher:
    """Runs a job's program as its trials.

    Args:
        spec: The job.
        place: Where it is kept.
        monitor: Monitor of the GPUs that the program uses.
        program: Its command line, in which placeholders such as `{batch_size}` are filled in.
        start: Runs a program with an environment to its end.
        attempts: Maximum number of trials of one recurrence.
        begun: Called with each decision before its trial starts.
        ended: Called with the result of each trial.
        replicas: Number of data-parallel replicas of the program, which share each batch equally.
            By default one for each GPU, if these can share any batch size of the job, or else 1.
        max_local_batch_size: Maximum samples that one replica trains on at once.
        trust_exit_code: Whether exit code 0 of a program that reports nothing means that the target
            was reached.
        tags: Tags of a job that does not exist yet.

    Raises:
        RunError: If the command has an unknown placeholder, no batch size can be shared equally by
            as many replicas as were stated or are needed to fill it in, or an exit code is trusted
            for a target that must hold in several evaluations.
    """

    def __init__(
        self,
        spec: JobSpec,
        place: Location,
        monitor: ZeusMonitor,
        program: Sequence[str],
        start: Callable[[Sequence[str], Mapping[str, str]], ProgramEnd],
        *,
        attempts: int,
        begun: Callable[[Decision], None],
        ended: Callable[[TrialEnd], None],
        replicas: int | None = None,
        max_local_batch_size: int | None = None,
        trust_exit_code: bool = False,
        tags: Sequence[str] = (),
    ) -> None:
        check_placeholders(program)
        if trust_exit_code and spec.patience > 1:
            raise RunError(
                "a program whose exit code is trusted has no evaluations in a row: `patience == 1` "
                f"must hold, but got patience={spec.patience}"
            )
        self._spec = spec
        self._tags = tuple(tags)
        self._place = place
        self._monitor = monitor
        self._gpus = Gpus.of(monitor)
        self._program = tuple(program)
        self._start = start
        self._attempts = attempts
        self._begun = begun
        self._ended = ended
        self._stated_replicas = replicas
        self._replicas = self._count_replicas()
        self._max_local = max_local_batch_size
        self._trust = trust_exit_code

    def recur(self) -> list[TrialEnd]:
        """Run one recurrence; return its trials, of which the last has its result."""
        trials: list[TrialEnd] = []
        for attempt in range(self._attempts):
            before = trials[-1].trial if trials else None
            reporter = self._reporter(before or None)
            try:
                if not reporter.decision.trial and self._was_tried(trials, reporter):
                    break  # without server or store, only the default is known
                trials.append(self._trial(reporter, attempt))
            except BaseException as error:
                why = str(error) or type(error).__name__
                reporter.end(Outcome.CANCELLED, note=f"did not run to its end: {why}")
                raise
            finally:
                reporter.close()
            self._ended(trials[-1])
            if trials[-1].final or trials[-1].outcome not in (Outcome.STOPPED, Outcome.FAILED):
                break
        return trials

    def _was_tried(self, trials: Sequence[TrialEnd], reporter: Reporter) -> bool:
        return any(trial.batch_size == reporter.decision.batch_size for trial in trials)

    def _count_replicas(self) -> int:
        sizes = self._spec.batch_sizes
        replicas = self._stated_replicas or self._gpus.number
        if self._stated_replicas is None and not used(self._program, SHARES):
            # No shares are asked for: one process may train on all GPUs.
            return replicas if any(can_share(size, replicas) for size in sizes) else 1
        nearest_shared(self._spec.default_batch_size, sizes, replicas)  # raises if there is none
        return replicas

    def _reporter(self, retry_of: str | None) -> Reporter:
        gpus = self._gpus
        notes = RunReport(
            place=self._place.url,
            spec=self._spec,
            gpu=gpus.name,
            gpus=gpus.number,
            max_power=gpus.max_power,
            batch_size=nearest_shared(
                self._spec.default_batch_size, self._spec.batch_sizes, self._replicas
            ),
            at=time.time(),
            memory=gpus.memory,
            replicas=self._replicas,
            max_local_batch_size=self._max_local,
            retry_of=retry_of,
            tags=self._tags,
        )
        return Reporter(self._place, notes)

    def _trial(self, reporter: Reporter, attempt: int) -> TrialEnd:
        decision = reporter.decision
        self._begun(decision)
        with tempfile.TemporaryDirectory(prefix="zeus-run-") as directory:
            path = Path(directory) / "answer.json"
            handover = LaunchContext(
                reporter.notes, decision, path, self._place.timeout, self._stated_replicas
            )
            window = self._monitor.open_scope("run", True)
            end = self._start(
                filled(self._program, values_of(decision, handover.share)),
                {**os.environ, **handover.variables(self._place)},
            )
            measured = self._monitor.close_scope(window, True, True)
            answer, use = Answer.read(path), TrialUse.read(handover.use)
        # Deliver the reports that the program could not.
        reporter.resume(answer.trial if answer is not None else "")
        judge = _Judge(self._spec, reporter, end, use, trust_exit_code=self._trust)
        judged = judge.judged(answer, measured, self._gpus)
        judged["warning"] = _warning(self._program, self._replicas, use)
        return TrialEnd(
            trial=reporter.notes.trial or "",
            recurrence=decision.recurrence,
            attempt=attempt,
            batch_size=decision.batch_size,
            role=decision.role,
            reason=decision.reason,
            exit_code=end.exit_code,
            signal=end.signal,
            **judged,
        )


_NOTHING_REPORTED = (
    "the program ended with exit code 0 but reported no epoch and no metric, so it is unknown "
    "whether it reached the target: let it report by BatchSizeOptimizer or ZeusDataLoader, or give "
    "--trust-exit-code if exit code 0 means that the target was reached"
)


def _warning(program: Sequence[str], replicas: int, use: TrialUse | None) -> str:
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


class _Judge:
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
        if self._end.interrupted or self._end.exit_code:
            return self._cancelled(f"ended after {answer.epochs} epochs by {self._end}")
        note = f"the program ended after {answer.epochs} epochs without reaching the target"
        return self._failed(note)

    def _silent(self, seconds: float, joules: float | None) -> tuple[str, str, bool]:
        """Return outcome, note and finality of a program that has reported nothing."""
        end, spec = self._end, self._spec
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
