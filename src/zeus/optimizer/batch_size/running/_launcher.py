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
from pathlib import Path

from zeus.errors import RunError
from zeus.monitor import ZeusMonitor
from zeus.optimizer._stopping import Outcome
from zeus.optimizer.batch_size.api._answers import Decision
from zeus.optimizer.batch_size.job._share import can_share, nearest_shared
from zeus.optimizer.batch_size.job._spec import JobSpec
from zeus.optimizer.batch_size.running._gpus import Gpus
from zeus.optimizer.batch_size.running._launch_context import Answer, LaunchContext, TrialUse
from zeus.optimizer.batch_size.running._location import Location
from zeus.optimizer.batch_size.running._placeholders import (
    SHARES,
    check_placeholders,
    filled,
    used,
    values_of,
)
from zeus.optimizer.batch_size.running._reporter import Reporter
from zeus.optimizer.batch_size.running._run_id import RunId
from zeus.optimizer.batch_size.running._run_report import RunReport
from zeus.optimizer.batch_size.running._trial_end import (
    Judge,
    ProgramEnd,
    TrialEnd,
    usage_warning,
)


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
        run_id: Name of this run, under which it may be started again; see `RunId.find`.

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
        run_id: str | None = None,
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
        self._run_id = RunId.find(run_id)
        self._resumes = self._run_id is not None and self._run_id.restarted

    def recur(self) -> list[TrialEnd]:
        """Run one recurrence; return its trials, of which the last has its result."""
        trials: list[TrialEnd] = []
        attempt = 0
        while attempt < self._attempts:
            before = trials[-1].trial if trials else None
            reporter = self._reporter(before or None)
            try:
                if not reporter.decision.trial and self._was_tried(trials, reporter):
                    break  # without server or store, only the default is known
                attempt = max(attempt, reporter.decision.attempt)
                trials.append(self._trial(reporter, attempt))
            except BaseException as error:
                why = str(error) or type(error).__name__
                reporter.end(Outcome.CANCELLED, note=f"did not run to its end: {why}")
                raise
            finally:
                reporter.close()
            attempt += 1
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
            run=None if self._run_id is None else self._run_id.name,
            resume=self._resumes,
            retry_of=retry_of,
            tags=self._tags,
        )
        self._resumes = False  # only the first trial may have begun before
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
        judge = Judge(self._spec, reporter, end, use, trust_exit_code=self._trust)
        judged = judge.judged(answer, measured, self._gpus)
        if judged["outcome"] in (Outcome.STOPPED, Outcome.FAILED):
            verdict = reporter.standing()
            if verdict is not None and not verdict.retry:
                judged |= {"note": verdict.reason, "final": True}
        judged["warning"] = usage_warning(self._program, self._replicas, use)
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
